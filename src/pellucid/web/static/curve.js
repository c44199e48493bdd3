// The curve of part 1: a measure over the steps, the value it is to be compared with, and the checkpoints.

import { fill, svg, thousands } from "./elements.js";

const HEIGHT = 230;
const MARGIN = { left: 46, right: 16, top: 24, bottom: 24 };
const FEW = 30; // held-out points, each of which gets a dot

// Draws into an <svg>: `held` and `training`, both [[step, value]]; `level`, a value or null; the `unit` of the values;
// the checkpoints and the chosen one; `end`, the last step that is planned. Losses fall by factors, as do the steps it
// takes; `isEven` is for other measures. Returns where the checkpoints are: [{checkpoint, x}].
export function drawCurve(chart, { held, training, level, unit, isEven, checkpoints, chosen, end }) {
  const width = Math.max(280, chart.parentElement.clientWidth);
  chart.setAttribute("width", width);
  chart.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const points = [...held, ...training];
  if (!points.length) {
    const [x, y] = [width / 2, HEIGHT / 2];
    fill(chart, svg("text.empty", { x, y }, "The first numbers of this run will appear here."));
    return [];
  }
  const steps = [...points.map(([step]) => step), ...checkpoints.map(({ step }) => step), end ?? 0];
  const across = isEven ? evenScale(0, Math.max(...steps)) : factorScale(leastStep(steps), Math.max(...steps));
  const upward = scaleOfValues([...points.map(([, value]) => value), ...(level === null ? [] : [level])], isEven);
  const frame = { x1: MARGIN.left, x2: width - MARGIN.right, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom };
  const x = (step) => frame.x1 + across.share(step) * (frame.x2 - frame.x1);
  const y = (value) => frame.y2 - upward.share(value) * (frame.y2 - frame.y1);
  const places = checkpoints.map((checkpoint) => ({ checkpoint, x: x(checkpoint.step) }));
  // Where a checkpoint sits: on the held-out curve or, where that has not begun, on the other.
  const heightAt = (step) => {
    const curve = training.length && !(held[0]?.[0] <= step) ? training : held;
    const after = curve.find(([at]) => at >= step) ?? curve.at(-1);
    const before = curve.findLast(([at]) => at <= step) ?? after;
    const share = after === before ? 0 : (x(step) - x(before[0])) / (x(after[0]) - x(before[0])) || 0; // 0/0 at the edge
    return y(before[1]) + share * (y(after[1]) - y(before[1]));
  };
  const dot = (name, r) => (step) => svg(name, { cx: x(step), cy: heightAt(step), r });
  fill(
    chart,
    across.ticks
      .filter(Number.isInteger)
      .map((step) => [
        svg("line.grid", { ...frame, x1: x(step), x2: x(step) }),
        svg("text", { x: x(step), y: HEIGHT - 6, "text-anchor": "middle" }, thousands(step)),
      ]),
    upward.ticks.map((value) => [
      svg("line.grid", { ...frame, y1: y(value), y2: y(value) }),
      svg("text", { x: frame.x1 - 8, y: y(value) + 4, "text-anchor": "end" }, String(value).replace("-", "−")),
    ]),
    svg("text.axis", { x: 2, y: HEIGHT - 6 }, "step"),
    svg("text.axis", { x: 2, y: 12 }, upward.isOfFactors ? `${unit}; both axes grow by factors` : unit),
    line("train", training, x, y),
    level !== null && svg("line.floor", { ...frame, y1: y(level), y2: y(level) }),
    line("val", held, x, y),
    held.length <= FEW && held.map(([step]) => step).map(dot("circle.held", 3)),
    checkpoints.map(({ step }) => step).map(dot("circle.kept", 4.5)),
    chosen && svg("line.here", { ...frame, x1: x(chosen.step), x2: x(chosen.step) }),
    chosen && dot("circle.here", 8)(chosen.step),
    svg("desc", `held out: ${held.join(" ")}; in training: ${training.join(" ")}; level: ${level}`),
  );
  return places;
}

function line(name, points, x, y) {
  const corners = points.map(([step, value]) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`);
  return corners.length > 1 && svg("path", { class: name, d: `M${corners.join("L")}` });
}

const leastStep = (steps) => Math.min(...steps.filter((step) => step > 0));

// A scale: {share: how far along it a value is, ticks}.
function evenScale(low, high) {
  return { share: (value) => (high === low ? 1 : (value - low) / (high - low)), ticks: evenTicks(low, high) };
}

function factorScale(low, high) {
  const share = (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low);
  const ticks = high >= 5 * low ? factorTicks(low, high) : evenTicks(low, high);
  return { share: (value) => (high === low ? 1 : share(value)), ticks, isOfFactors: true };
}

function scaleOfValues(values, isEven) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (!isEven && least > 0 && most >= 2 * least) return factorScale(least * 0.93, most * 1.05);
  const edge = 0.08 * (most - least || 1);
  return evenScale(least - edge, most + edge);
}

// Four or five round numbers between two others.
function evenTicks(low, high) {
  const ten = 10 ** Math.floor(Math.log10((high - low) / 2));
  const step = [1, 2, 5, 10].map((digit) => digit * ten).find((each) => (high - low) / each <= 5);
  const n = Math.floor(high / step) - Math.ceil(low / step) + 1;
  return Array.from({ length: n }, (_, i) => Number(((Math.ceil(low / step) + i) * step).toPrecision(6)));
}

// 1, 2, 5, 10, 20, … between two numbers; fewer where there are many.
function factorTicks(low, high) {
  const all = [];
  for (let ten = 10 ** Math.floor(Math.log10(low)); ten <= high; ten *= 10)
    all.push(...[1, 2, 5].map((digit) => Number((digit * ten).toPrecision(1))));
  const inside = all.filter((each) => each >= low && each <= high);
  return inside.length > 8 ? inside.filter((each) => /^0?\.?0*1/.test(String(each))) : inside;
}
