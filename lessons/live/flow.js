// Tokens as particles on a sphere (lesson 12): attention without matrices, a residual step, and back onto the sphere.

// The tokens of the page, to four digits.
export const TOKENS = onTheSphere([
  [-0.7191, -0.4725, -0.5095],
  [0.6915, -0.6438, 0.3276],
  [0.6519, 0.6634, 0.3674],
  [-0.376, -0.6298, -0.6797],
  [-0.333, -0.0498, -0.9416],
  [-0.5173, 0.1394, -0.8444],
  [-0.1627, 0.3914, -0.9057],
  [-0.7441, -0.5085, 0.4333],
  [-0.0676, -0.9731, -0.2203],
  [0.6555, 0.636, 0.4073],
  [-0.1274, -0.9877, 0.0908],
  [-0.1132, 0.0494, 0.9923],
  [0.2662, 0.4004, 0.8768],
  [-0.2503, -0.6481, -0.7193],
  [0.7372, 0.485, -0.4705],
  [0.6486, 0.1037, -0.7541],
  [0.413, -0.0951, -0.9058],
  [0.7024, -0.4699, -0.5346],
  [0.2264, -0.8416, -0.4903],
  [-0.513, 0.3011, -0.8038],
  [-0.6854, -0.7237, -0.0807],
  [0.2572, -0.5526, -0.7928],
  [-0.2888, -0.3709, -0.8826],
  [0.5285, 0.6951, -0.4874],
]);

export function randomTokens() {
  const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  return onTheSphere(TOKENS.map((token) => token.map(normal)));
}

// All tokens after each layer; layers are computed when they are asked for.
export class Flow {
  constructor({ start, beta, step, isCausal }) {
    Object.assign(this, { beta, step, isCausal, path: [start] });
  }

  at(layer) {
    while (this.path.length <= layer) this.path.push(this.next(this.path.at(-1)));
    return this.path[layer];
  }

  next(tokens) {
    return onTheSphere(tokens.map((token, t) => plus(token, this.step, this.pull(tokens, t))));
  }

  // The mean of all tokens that token t sees, each with its share of the attention.
  pull(tokens, t) {
    const seen = this.isCausal ? tokens.slice(0, t + 1) : tokens;
    const raised = seen.map((token) => Math.exp(this.beta * (dot(tokens[t], token) - 1)));
    const total = raised.reduce((sum, each) => sum + each, 0);
    return seen.reduce((mean, token, s) => plus(mean, raised[s] / total, token), [0, 0, 0]);
  }
}

// How far apart any two tokens are at most, and how far any of them is from a place.
export const spread = (tokens) => Math.max(...tokens.map((token) => farthest(tokens, token)));
export const farthest = (tokens, place) => Math.max(...tokens.map((token) => Math.hypot(...plus(token, -1, place))));

export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const plus = (a, share, b) => a.map((number, i) => number + share * b[i]);

export function unit(a) {
  const length = Math.hypot(...a);
  return a.map((number) => number / length);
}

function onTheSphere(tokens) {
  return tokens.map(unit);
}
