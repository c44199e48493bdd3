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

// What a reader may type: 0.1, −3e-5, 65,504, 2^-24, 1/3 or ∞; NaN if it is none of these.
export function numberIn(text) {
  const tidy = text.trim().toLowerCase().replaceAll("−", "-").replace(/^\+/, "");
  if (!tidy) return NaN;
  const infinite = /^(-?)(∞|inf|infinity)$/.exec(tidy);
  if (infinite) return infinite[1] ? -Infinity : Infinity;
  const power = /^(-?)2\^\(?(-?\d+)\)?$/.exec(tidy);
  if (power) return (power[1] ? -1 : 1) * 2 ** Number(power[2]);
  const [above, below, ...more] = tidy.split("/");
  if (more.length) return NaN;
  return below === undefined ? decimal(above) : decimal(above) / decimal(below);
}

// Commas between thousands go, any other is a decimal point.
function decimal(text) {
  const isLong = /^-?[1-9]\d{0,2}(,\d{3})+(\.|$)/.test(text);
  return text.trim() ? Number(isLong ? text.replaceAll(",", "") : text.replace(",", ".")) : NaN;
}
