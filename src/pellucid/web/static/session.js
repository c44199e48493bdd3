// Values that this tab remembers over a reload; where a browser forbids that, until the page is closed.

export function remembered(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // the caller has it still
  }
}
