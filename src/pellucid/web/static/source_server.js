// Where the page's numbers come from: here, the server that `pellucid serve` starts.
//
// docs/microscope.md lists the methods of a source and what each promises, with tensors unpacked; the exported page has
// another source with the same methods (source_offline.js). A refused request throws a SourceError with the server's own
// words.

import { unpacked } from "./tensor.js";

export class SourceError extends Error {}

export function serverSource() {
  return {
    canType: true,
    canPatch: true,
    isMeasured: false,
    isLive: true,
    run: () => get("api/run"),
    model: ({ checkpoint }) => get("api/model", { checkpoint }),
    examples: ({ checkpoint }) => get("api/examples", { checkpoint }),
    fable: ({ checkpoint, number }) => get("api/fable", { checkpoint, number }),
    trace: async (asked) => withTensors(await post("api/trace", asked)),
    logits: async (asked) => withTensors(await post("api/logits", asked)),
    inside: async (asked) => withTensors(await post("api/inside", asked)),
    truth: (asked) => post("api/truth", asked),
    deciding: (asked) => post("api/deciding", asked),
    beliefs: (asked) => post("api/beliefs", asked),
    heads: ({ checkpoint }) => get("api/heads", { checkpoint }),
    knockOutTable: (asked) => post("api/knock_out", asked),
    tours: () => get("api/tours"),
    tour: ({ name }) => get("api/tour", { name }),
    news: (seen) => get("api/news", seen),
  };
}

function get(route, parameters = {}) {
  return answer(fetch(`${route}?${new URLSearchParams(parameters)}`));
}

function post(route, { knockOut, patchText, ...rest }) {
  const body = JSON.stringify({ ...rest, knock_out: knockOut, patch_text: patchText });
  return answer(fetch(route, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

const GONE = "The server does not answer. Start `pellucid serve` again at the same port, and this page goes on.";

async function answer(response) {
  const received = await response.catch((error) => {
    throw error instanceof TypeError ? new SourceError(GONE) : error; // so fetch says that nobody was there
  });
  if (received.ok) return received.json();
  const { error } = await received.json().catch(() => ({}));
  const refused = new SourceError(error?.message ?? `the server answered ${received.status}`);
  throw Object.assign(refused, { isRefused: received.status === 400 });
}

// The same object with each packed tensor in it unpacked.
export function withTensors(value) {
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map(withTensors) : value;
  if (value === null || typeof value !== "object") return value;
  if ("dtype" in value && "data" in value) return unpacked(value);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withTensors(each)]));
}
