// Numbers as one writes them by hand.

import { fixed } from "pellucid/elements.js";

// 3 and 0.5, not 3.00 and 0.50.
export function short(value, digits = 2) {
  const decimals = String(Number(value.toFixed(digits))).split(".")[1] ?? "";
  return fixed(value, decimals.length);
}

// Inside a sum or a product: a negative number stands in parentheses.
export function inside(value) {
  return value < 0 ? `(${short(value)})` : short(value);
}

// As many digits as asked for, if it needs them: 0.09998, 65,504 and 5.96 · 10⁻⁸.
export function written(value, digits) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value < 0 ? "−∞" : "∞";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-4 && size < 1e9)) return withCommas(value, digits);
  const [factor, power] = value.toExponential(digits - 1).split("e");
  return `${withCommas(Number(factor), digits)} · 10${raised(Number(power))}`;
}

// A whole number as an exponent: ⁻¹⁴.
export function raised(power) {
  return [...String(power)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("");
}

function withCommas(value, digits) {
  return value.toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
}
