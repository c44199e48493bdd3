// What this tab keeps over a reload, by name; where a browser forbids that, it is kept until the page is closed.

export function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // the caller has it still
  }
}
