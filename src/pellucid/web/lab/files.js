// What the page holds, unpacked; and the trained model as a file that `pellucid generate` reads.

const NUMBERS = { ids: Uint16Array, lengths: Uint16Array, nats: Float32Array, skill_of: Uint8Array };
const BLOCK = 512; // bytes of a tar file are counted in these

// {languages, worker}, of which web/lab.py writes the JSON, compressed and in base64.
export async function held(element) {
  const compressed = new Blob([bytesOf(element.textContent)]).stream();
  const text = await new Response(compressed.pipeThrough(new DecompressionStream("gzip"))).text();
  const { languages, worker } = JSON.parse(text);
  return { languages: languages.map(withArrays), worker };
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function withArrays(language) {
  const opened = (part) =>
    Object.fromEntries(
      Object.entries(part).map(([name, value]) => [
        name,
        name in NUMBERS ? new NUMBERS[name](bytesOf(value).buffer) : value,
      ]),
    );
  return { ...language, train: opened(language.train), held_out: opened(language.held_out) };
}

// A worker's own script, under an address that only this page knows.
export function workerAddress(code) {
  return URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
}

// A run folder with one checkpoint, its weights alone, as a tar file: `tar -xf FILE`, then `pellucid generate NAME`.
// trained: {step, tokens, seconds, loss}.
export async function runArchive(language, weights, trained) {
  const { config } = language;
  const { step, tokens, seconds, loss } = trained;
  const state = {
    step,
    tokens,
    elapsed_seconds: seconds,
    val_loss: loss,
    best_loss: loss,
    unreported: null,
    grad_scaler: {},
    data_fingerprint: language.fingerprint,
    torch_version: "none: trained by jax-js in a browser",
    device: "wasm",
    dtype: "torch.float32",
    threads: 1,
  };
  const checkpoint = {
    "model.safetensors": safetensors(weights),
    "state.json": encoded(JSON.stringify(state)),
    "config.yaml": encoded(JSON.stringify(config)), // JSON is YAML, too
    "tokenizer.json": encoded(language.tokenizer),
  };
  const folder = `${config.name}/step-${String(step).padStart(8, "0")}`;
  const files = Object.entries({ ...checkpoint, "manifest.json": await manifest(checkpoint) });
  const all = files.map(([name, bytes]) => [`${folder}/${name}`, bytes]);
  for (const name of ["config.yaml", "tokenizer.json"]) all.push([`${config.name}/${name}`, checkpoint[name]]);
  if (language.rules) all.push([config.corpus.file, encoded(language.rules)]); // evaluation reads the truth from them
  return new Blob([...all.flatMap(([name, bytes]) => tarEntry(name, bytes)), new Uint8Array(2 * BLOCK)]);
}

// As checkpoint/step_directory.py writes it: it reads no other.
async function manifest(files) {
  const lines = [];
  for (const name of Object.keys(files).sort())
    lines.push(`  "${name}": {"bytes": ${files[name].length}, "sha256": "${await sha256(files[name])}"}`);
  return encoded(`{"format": 2, "files": {\n${lines.join(",\n")}\n}}\n`);
}

const encoded = (text) => new TextEncoder().encode(text);

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The length of a header, the header in JSON, and the numbers (https://github.com/huggingface/safetensors).
function safetensors(weights) {
  const header = {};
  let end = 0;
  for (const [name, { shape, values }] of Object.entries(weights)) {
    header[name] = { dtype: "F32", shape, data_offsets: [end, end + values.byteLength] };
    end += values.byteLength;
  }
  let json = JSON.stringify(header);
  json = json.padEnd(Math.ceil(json.length / 8) * 8);
  const file = new Uint8Array(8 + json.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(json.length), true);
  file.set(encoded(json), 8);
  for (const [name, { values }] of Object.entries(weights))
    file.set(
      new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
      8 + json.length + header[name].data_offsets[0],
    );
  return file;
}

// A header of 512 bytes, and the bytes, filled up to whole blocks (POSIX ustar).
function tarEntry(name, bytes) {
  const header = new Uint8Array(BLOCK);
  const put = (text, at) => header.set(encoded(text), at);
  const octal = (number, digits) => number.toString(8).padStart(digits, "0");
  put(name, 0);
  put(octal(0o644, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(bytes.length, 11), 124);
  put(octal(Math.floor(Date.now() / 1000), 11), 136);
  put(" ".repeat(8), 148); // the checksum is computed with blanks in its place
  put("0", 156);
  put("ustar\u000000", 257);
  put(
    `${octal(
      header.reduce((sum, byte) => sum + byte),
      6,
    )}\u0000 `,
    148,
  );
  return [header, bytes, new Uint8Array((BLOCK - (bytes.length % BLOCK)) % BLOCK)];
}
