// The number line of lesson 5: a number between its neighbours, and the gaps to them.

import { fill, svg } from "pellucid/elements.js";
import { sized } from "./chart.js";
import { raised, written } from "./numbers.js";

// The gaps down and up: NaN where there is no neighbour, and infinite where it is infinity.
export function gapsAround(format, code) {
  return [-1, 1].map((by) => {
    const next = format.neighbour(code, by);
    return next === null ? NaN : Math.abs(format.value(next) - format.value(code));
  });
}

// The number between its neighbours, to scale, and what was asked for.
export function drawNeighbours(chart, { format, code, asked }) {
  const width = sized(chart, 118);
  const [axis, middle] = [46, width / 2];
  const value = format.value(code);
  const gaps = gapsAround(format, code);
  chart.toggleAttribute("hidden", !Number.isFinite(value));
  if (!Number.isFinite(value)) return fill(chart);
  const unit = Math.max(...gaps.filter(Number.isFinite));
  const x = (number) => middle + ((number - value) / unit) * (width / 3.1);
  const neighbours = [-1, 1].map((by, i) => neighbour(by, gaps[i]));
  const words = gaps.map((gap, i) => {
    if (!Number.isFinite(gap)) return `none ${i ? "above" : "below"}`;
    return `the next one ${i ? "up" : "down"} is ${powerOf(gap)} away`;
  });
  chart.setAttribute("aria-label", `${written(value, format.digits)} on a line: ${words.join(", ")}`);
  fill(
    chart,
    svg("line.axis", { x1: 0, x2: width, y1: axis, y2: axis }),
    neighbours,
    svg("line.tick.here", { x1: middle, x2: middle, y1: axis - 11, y2: axis + 11 }),
    svg("text.here", { x: middle, y: axis + 60, "text-anchor": "middle" }, written(value, format.digits)),
    asked !== null && asked !== value && Number.isFinite(asked) && wish(),
  );

  function neighbour(by, gap) {
    if (!Number.isFinite(gap)) {
      const isLast = Number.isNaN(gap);
      return svg(
        "text",
        { x: middle + (by * width) / 6.2, y: axis + 20, "text-anchor": "middle" },
        isLast ? "the last one" : "then infinity",
      );
    }
    const next = value + by * gap;
    return [
      svg("line.tick", { x1: x(next), x2: x(next), y1: axis - 8, y2: axis + 8 }),
      svg("text", { x: x(next), y: axis + 40, "text-anchor": "middle" }, written(next, format.digits)),
      svg("line.gap", { x1: x(next) - 5 * by, x2: middle + 5 * by, y1: axis, y2: axis }),
      svg("text.one", { x: x(value + (by * gap) / 2), y: axis + 20, "text-anchor": "middle" }, powerOf(gap)),
    ];
  }

  function wish() {
    const at = x(asked);
    const anchor = at < middle - 30 ? "end" : at > middle + 30 ? "start" : "middle";
    return [
      svg("line.wish", { x1: at, x2: at, y1: 22, y2: axis }),
      svg("text.two", { x: at, y: 14, "text-anchor": anchor }, `asked: ${written(asked, 6)}`),
    ];
  }
}

// A gap is a power of 2.
export function powerOf(gap) {
  return `2${raised(Math.round(Math.log2(gap)))}`;
}
