// Lesson 5: the bits of a number in five formats. Set the bits, or type a number and see which one the format has.

import { fill, h, svg } from "pellucid/elements.js";
import { FORMATS } from "./formats.js";
import { drawNeighbours, gapsAround, powerOf } from "./neighbours.js";
import { numberIn, raised, written } from "./numbers.js";

const FIELDS = ["sign", "exponent", "mantissa"];
const EXAMPLES = [
  ["0.1", () => 0.1],
  ["−0.75", () => -0.75],
  ["257", () => 257],
  ["largest", (format) => format.largest],
  ["smallest normal", (format) => format.smallestNormal],
  ["smallest", (format) => format.smallest],
];

export function floats(place) {
  // asked: the number that was typed; null after a bit was set.
  const state = { format: FORMATS[1], code: 0, asked: null };
  const choices = FORMATS.map((format) =>
    h("button", { onclick: () => ask(state.asked ?? state.format.value(state.code), format) }, format.name),
  );
  const typed = h("input", { id: "floats-number", autocomplete: "off", oninput: () => read() });
  const examples = EXAMPLES.map(([name, of]) => h("button", { onclick: () => ask(of(state.format)) }, name));
  const bits = h("div.bits", { role: "group", "aria-label": "The bits; arrow keys go from one to the next" });
  const readings = Object.fromEntries(FIELDS.map((name) => [name, h("p.reading")]));
  const result = h("p.result");
  const said = h("p.said", { role: "status" });
  const gaps = h("p.gaps");
  const chart = svg("svg.line", { role: "img" });
  const [down, up] = [-1, 1].map((by) =>
    h("button", { onclick: () => setCode(state.format.neighbour(state.code, by)) }, by < 0 ? "One down" : "One up"),
  );
  let buttons = [];
  bits.addEventListener("keydown", walk);
  fill(
    place,
    h("p.title", "Set the bits"),
    h("p.about", "Click on a bit, or type a number. Watch its value, and the gap to the next number."),
    h("div.choices", { role: "group", "aria-label": "The format" }, choices),
    h("div.ask", h("label", { for: "floats-number" }, "Number"), typed, h("div.choices", "Try:", examples)),
    bits,
    result,
    said,
    gaps,
    h("div.chart", chart),
    h("div.buttons", { role: "group", "aria-label": "To a neighbour" }, down, up),
  );
  addEventListener("resize", drawLine);
  ask(0.1, FORMATS[1]);

  // A format of its own has bits of its own.
  function ask(number, format = state.format) {
    const isNew = format !== state.format || buttons.length === 0;
    Object.assign(state, { format, code: format.nearest(number), asked: Number.isNaN(number) ? null : number });
    if (isNew) makeBits();
    typed.value = plain(number);
    draw();
  }

  function read() {
    const number = numberIn(typed.value);
    if (Number.isNaN(number)) {
      said.textContent = "Type a number, such as 0.1, −3e-5, 2^-24 or 1/3.";
      return;
    }
    Object.assign(state, { asked: number, code: state.format.nearest(number) });
    draw();
  }

  function setCode(code) {
    Object.assign(state, { code, asked: null });
    typed.value = plain(state.format.value(code));
    draw();
  }

  function makeBits() {
    const { e, m, half } = state.format;
    const worths = {
      sign: ["minus"],
      exponent: Array.from({ length: e }, (_, i) => `worth ${2 ** (e - 1 - i)}`),
      mantissa: Array.from({ length: m }, (_, i) => `worth 1/${(2 ** (i + 1)).toLocaleString("en")}`),
    };
    buttons = [];
    const button = (name, worth) => {
      const at = half / 2 ** buttons.length; // what the bit is worth in the code
      const flip = () => setCode(state.code + (hasBit(state.code, at) ? -at : at));
      const label = `${name} bit, ${worth}`;
      const made = h("button", { "data-worth": at, "aria-label": label, title: label, onclick: flip });
      made.addEventListener("focus", () => buttons.forEach((each) => (each.tabIndex = each === made ? 0 : -1)));
      made.tabIndex = buttons.length ? -1 : 0; // the tab key stops once, and arrows do the rest
      buttons.push(made);
      return made;
    };
    fill(
      bits,
      FIELDS.map((name) =>
        h(
          `div.field.${name}`,
          h("p.name", name),
          h(
            "div.row",
            worths[name].map((worth) => button(name, worth)),
          ),
          readings[name],
        ),
      ),
    );
  }

  function walk(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = buttons[buttons.indexOf(document.activeElement) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  function draw() {
    const { format, code } = state;
    choices.forEach((each, i) => each.setAttribute("aria-pressed", FORMATS[i] === format));
    for (const each of buttons) {
      const isSet = hasBit(code, Number(each.dataset.worth));
      each.textContent = isSet ? "1" : "0";
      each.setAttribute("aria-pressed", isSet);
    }
    [down, up].forEach((each, i) => (each.disabled = format.neighbour(code, 2 * i - 1) === null));
    if (document.activeElement?.disabled) buttons[0].focus();
    drawReadings(readings, format, code);
    fill(result, product(format, code), exact("value", format.value(code), written(format.value(code), 14)));
    said.textContent = `${whatWasAsked(state)} ${whatItIs(format, code)}`.trim();
    drawGaps(gaps, format, code);
    drawLine();
  }

  function drawLine() {
    drawNeighbours(chart, state);
  }
}

const hasBit = (code, worth) => Math.floor(code / worth) % 2 === 1;

// A number that a test can compare, without any rounding.
const exact = (name, value, shown) => h("span.figure", { "data-name": name, "data-value": spelled(value) }, shown);

const spelled = (number) => (Object.is(number, -0) ? "-0" : String(number));
const plain = (number) => (Number.isNaN(number) ? "" : spelled(number).replace("Infinity", "∞"));

function drawReadings(readings, format, code) {
  const { sign, exponent, mantissa } = format.fields(code);
  const isNumber = !["infinite", "NaN"].includes(format.kind(code));
  const size = (2 ** format.m).toLocaleString("en");
  fill(readings.sign, exact("S", sign, `S = ${sign}`), h("br"), sign ? "minus" : "plus");
  fill(
    readings.exponent,
    exact("E", exponent, `E = ${exponent}`),
    h("br"),
    !isNumber && "infinity or NaN",
    isNumber && ["2", h("sup", `${Math.max(exponent, 1)} − ${format.bias}`), " = "],
    isNumber && exact("power", format.power(code), `2${raised(format.power(code))}`),
  );
  fill(
    readings.mantissa,
    exact("M", mantissa, `M = ${mantissa.toLocaleString("en")}`),
    h("br"),
    isNumber && `${exponent ? 1 : 0} + ${mantissa.toLocaleString("en")}/${size} = `,
    isNumber && exact("fraction", format.fraction(code), written(format.fraction(code), format.digits)),
  );
}

// "+ 2⁻⁴ · 1.5996 = "; what is no number has no such product.
function product(format, code) {
  if (["infinite", "NaN"].includes(format.kind(code))) return null;
  return [
    h("span.sign", code < format.half ? "+" : "−"),
    " ",
    h("span.one", `2${raised(format.power(code))}`),
    " · ",
    h("span.two", written(format.fraction(code), format.digits)),
    " = ",
  ];
}

function drawGaps(element, format, code) {
  const [down, up] = gapsAround(format, code).map((gap, i) =>
    exact(i ? "gap up" : "gap down", gap, Number.isFinite(gap) ? `${powerOf(gap)} = ${written(gap, 3)}` : "–"),
  );
  element.hidden = !Number.isFinite(format.value(code));
  fill(element, "To the next number: ", h("span.one", "up ", up), ", ", h("span.one", "down ", down));
}

function whatWasAsked({ format, code, asked }) {
  const value = format.value(code);
  if (asked === null || (Math.abs(asked) === Infinity && format.hasInfinity)) return "";
  const name = written(asked, 6);
  if (asked === value) return `${name} is a number of ${format.name}: nothing is rounded.`;
  const largest = written(format.largest, format.digits);
  if (Math.abs(value) === Infinity) return `${name} is too far beyond the largest number, ${largest}.`;
  if (Math.abs(asked) > format.largest && !format.hasInfinity)
    return `${name} is beyond the largest number, and there is no infinity here. So it becomes ${written(value, 4)}.`;
  if (value === 0) return `${name} is nearer to 0 than to the smallest number, ${written(format.smallest, 3)}.`;
  const error = Math.abs(value - asked);
  const [down, up] = gapsAround(format, code);
  if (2 * error === (asked > value ? up : down))
    return `${name} is exactly between two numbers. The even one is taken: its last bit is 0.`;
  const share = written((100 * error) / Math.abs(asked), 2);
  return `You asked for ${name}. The nearest number is off by ${written(error, 2)}, which is ${share} %.`;
}

function whatItIs(format, code) {
  const largest = written(format.largest, format.digits);
  return {
    zero: "With E = 0 there is no 1 in front, so 0 can be written.",
    subnormal: "A subnormal number: E = 0, so there is no 1 in front, and the power of 2 is that of E = 1.",
    normal: "",
    infinite: `All ones in the exponent, and M = 0: infinity. It comes after ${largest}.`,
    NaN: format.hasInfinity
      ? "All ones in the exponent, and M is not 0: NaN, “not a number”."
      : `All ones: NaN, “not a number”. This format has no infinity, and numbers up to ${largest} instead.`,
  }[format.kind(code)];
}
