// The scales of the page. Their ends stand in style.css, for light and dark; all can be told apart without red and green.

let scales = null;

export function forgetColours() {
  scales = null;
}

// What a canvas paints with: 256 colours for each scale, each as one number.
export function colours() {
  scales ??= {
    share: ramp(["--paper-cell", "--share-mid", "--share-end"]), // 0 … 1
    signed: ramp(["--minus-end", "--minus-mid", "--paper-cell", "--plus-mid", "--plus-end"]), // −most … most
    nothing: pixel(named("--nothing")),
  };
  return scales;
}

function named(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const full = text.length === 4 ? text.replace(/[0-9a-f]/gi, "$&$&") : text;
  return [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
}

// As image data holds it: red first, on machines with the lowest byte first.
function pixel([r, g, b]) {
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
}

function ramp(names) {
  const stops = names.map(named);
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const before = Math.min(Math.floor(place), stops.length - 2);
    const mixed = (from, channel) => Math.round(from + (place - before) * (stops[before + 1][channel] - from));
    return pixel(stops[before].map(mixed));
  });
}

// A matrix, row by row, as a picture, one pixel for each number; style.css makes it larger without smoothing. `colourOf` gives the
// colour of a value, as one number: a keystroke paints all heads.
export function paint(canvas, rows, columns, values, colourOf) {
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colourOf(values[i]);
  context.putImageData(image, 0, 0);
  canvas.numbers = values; // for a picture of it (picture.js)
}

// The row and column of such a picture that the pointer is on.
export function cellUnder({ target, clientX, clientY }) {
  const { left, top, width, height } = target.getBoundingClientRect();
  const within = (share, n) => Math.max(0, Math.min(n - 1, Math.floor(share * n)));
  return [within((clientY - top) / height, target.height), within((clientX - left) / width, target.width)];
}

// The colour of a share. The root makes small shares visible.
export function shareColour(share) {
  return colours().share[Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, share))))];
}

// The colour of a number between −most and most; the root makes small ones visible.
export function signedColour(value, most) {
  if (!Number.isFinite(value)) return colours().nothing;
  const share = Math.sqrt(Math.min(1, Math.abs(value) / most));
  return colours().signed[Math.round(255 * (0.5 + 0.5 * Math.sign(value) * share))];
}

// Shades of surprise, as classes: where one ends and the next begins, in nats.
const STEPS_NATS = [0.1, 0.5, 1.5, 3, 5];

export function shadeOf(nats) {
  return nats === null || nats === undefined ? "unknown" : `s${STEPS_NATS.filter((step) => nats >= step).length}`;
}

export const SHADES = ["< 0.1", "0.1", "0.5", "1.5", "3", "≥ 5 nats"];
