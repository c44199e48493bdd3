// One request of each name at a time, and after it only the newest: what was asked in between is stale.

export const REST = 250; // milliseconds without a keystroke

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

// A function that puts off `act` until it has not been called for a moment. As long, the page says that it is busy.
export function atRest(act) {
  let timer = 0;
  let end = null;
  return () => {
    clearTimeout(timer);
    if (!end) waitedFor(new Promise((resolve) => (end = resolve)));
    timer = setTimeout(() => {
      act();
      end();
      end = null;
    }, REST);
  };
}

// A function that asks, then hands the answer to `use`, unless a newer request of the same name waits by then.
export function newest(fail) {
  const waiting = {}; // by name of what is under way, what to ask after it: null, or [ask, use]

  async function run(name, ask, use) {
    waiting[name] = null;
    try {
      const answer = await waitedFor(ask());
      if (!waiting[name]) use(answer);
    } catch (error) {
      if (!waiting[name]) fail(error);
    }
    const next = waiting[name];
    delete waiting[name];
    if (next) run(name, ...next);
  }

  return (name, ask, use) => {
    if (name in waiting) waiting[name] = [ask, use];
    else run(name, ask, use);
  };
}
