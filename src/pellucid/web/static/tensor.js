// Tensors as the server sends them: {shape, dtype, data}, data in base64, row by row; and sums of numbers.

const NUMBERS = { float32: Float32Array, int32: Int32Array };

// A tensor with `shape` and `values`, a typed array. tensor.row(i, j, …) is the part with these first indices.
export class Tensor {
  constructor(shape, values) {
    this.shape = shape;
    this.values = values;
  }

  row(...indices) {
    const rest = this.shape.slice(indices.length);
    const size = rest.reduce((product, length) => product * length, 1);
    const start = indices.reduce((offset, index, axis) => offset * this.shape[axis] + index, 0) * size;
    return new Tensor(rest, this.values.subarray(start, start + size));
  }

  at(...indices) {
    return this.values[indices.reduce((offset, index, axis) => offset * this.shape[axis] + index, 0)];
  }
}

export function unpacked({ shape, dtype, data }) {
  const bytes = bytesOf(data);
  if (dtype === "float16") return new Tensor(shape, fromHalf(new Uint16Array(bytes.buffer)));
  return new Tensor(shape, new NUMBERS[dtype](bytes.buffer));
}

export function bytesOf(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

// 1 sign bit, 5 of exponent, 10 of fraction (IEEE 754). A table of all 65,536 is the fastest way.
let halves = null;

function fromHalf(bits) {
  halves ??= Float32Array.from({ length: 65536 }, (_, half) => {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  });
  const values = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) values[i] = halves[bits[i]];
  return values;
}

export function sum(numbers) {
  let total = 0;
  for (const each of numbers) total += each;
  return total;
}

// Null for none.
export function mean(numbers) {
  return numbers.length ? sum(numbers) / numbers.length : null;
}
