// One request at a time, and after it only the newest: what was asked in between is stale.

export function newest(ask, use, fail) {
  let running = false;
  let waiting = null;

  async function run(key) {
    running = true;
    try {
      const answer = await ask(key);
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
