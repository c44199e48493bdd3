// One request at a time, and after it only the newest: what was asked in between is stale.

let underWay = 0;

// Until nothing is under way, the page says that it is busy.
export async function waitedFor(promise) {
  const main = document.getElementById("main");
  main.setAttribute("aria-busy", String(++underWay > 0));
  try {
    return await promise;
  } finally {
    underWay -= 1;
    setTimeout(() => main.setAttribute("aria-busy", String(underWay > 0))); // after what the answer is used for
  }
}

export function newest(ask, use, fail) {
  let running = false;
  let waiting = null;

  async function run(key) {
    running = true;
    try {
      const answer = await waitedFor(ask(key));
      if (!waiting) use(answer, key);
    } catch (error) {
      if (!waiting) fail(error, key);
    }
    running = false;
    if (waiting) {
      const [next] = waiting;
      waiting = null;
      run(next);
    }
  }

  return (key) => {
    if (running) waiting = [key];
    else run(key);
  };
}
