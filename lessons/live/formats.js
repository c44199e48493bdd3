// Floating-point formats, as lesson 5 takes them apart. A code is a number's bits, read as a whole number.

export class Format {
  // e bits of exponent and m of mantissa, besides one for the sign. digits: as many as tell neighbours apart.
  constructor(name, e, m, digits, hasInfinity = true) {
    Object.assign(this, { name, e, m, digits, hasInfinity, bias: 2 ** (e - 1) - 1, half: 2 ** (e + m) });
    // The code after that of the largest number. E4M3 has no infinity, and keeps a single code for NaN.
    this.past = hasInfinity ? this.half - 2 ** m : this.half - 1;
    this.last = hasInfinity ? this.past : this.past - 1; // what is too large becomes this one
    this.nan = hasInfinity ? this.past + 2 ** (m - 1) : this.past;
  }

  get largest() {
    return this.value(this.past - 1);
  }

  get smallest() {
    return this.value(1);
  }

  get smallestNormal() {
    return this.value(2 ** this.m);
  }

  fields(code) {
    const mantissa = code % 2 ** this.m;
    return { sign: code < this.half ? 0 : 1, exponent: ((code % this.half) - mantissa) / 2 ** this.m, mantissa };
  }

  kind(code) {
    const size = code % this.half;
    if (size >= this.past) return this.hasInfinity && size === this.past ? "infinite" : "NaN";
    if (size === 0) return "zero";
    return size < 2 ** this.m ? "subnormal" : "normal";
  }

  // The power of 2, and what it is multiplied by. The lowest exponent is read differently: no 1 in front.
  power(code) {
    return Math.max(this.fields(code).exponent, 1) - this.bias;
  }

  fraction(code) {
    const { exponent, mantissa } = this.fields(code);
    return (exponent ? 1 : 0) + mantissa / 2 ** this.m;
  }

  value(code) {
    const kind = this.kind(code);
    if (kind === "NaN") return NaN;
    const size = kind === "infinite" ? Infinity : this.fraction(code) * 2 ** this.power(code);
    return code < this.half ? size : -size;
  }

  // The code of the number that is nearest to x; of two, the even one.
  nearest(x) {
    if (Number.isNaN(x)) return this.nan;
    const sign = x < 0 || Object.is(x, -0) ? this.half : 0;
    const size = Math.abs(x);
    if (size === Infinity) return sign + this.last;
    const power = Math.max(powerIn(size), 1 - this.bias);
    const steps = toEven(size / 2 ** (power - this.m));
    return sign + Math.min((power - 1 + this.bias) * 2 ** this.m + steps, this.last);
  }

  // The code of the next larger number (by = 1) or the next smaller one (by = -1); null where there is none.
  neighbour(code, by) {
    const place = code < this.half ? code : this.half - code; // counted from zero, which has two codes
    const next = place + by;
    if (this.kind(code) === "NaN" || Math.abs(next) > this.last) return null;
    return next < 0 ? this.half - next : next;
  }
}

export const FORMATS = [
  new Format("float32", 8, 23, 9),
  new Format("float16", 5, 10, 5),
  new Format("bfloat16", 8, 7, 4),
  new Format("float8, E4M3", 4, 3, 4, false),
  new Format("float8, E5M2", 5, 2, 4),
];

// The largest k with 2^k ≤ size.
function powerIn(size) {
  const k = Math.floor(Math.log2(size)); // may be off by one, as logarithms are rounded, too
  if (2 ** k > size) return k - 1;
  return 2 ** (k + 1) <= size ? k + 1 : k;
}

function toEven(x) {
  return x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);
}
