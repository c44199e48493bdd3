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
