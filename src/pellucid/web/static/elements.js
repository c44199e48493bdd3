// Building the page: h("p.muted.small", { id: "note" }, "Some ", h("b", "text")) is an element with two classes, an
// attribute and children. Attributes may be left out. A button submits nothing unless its type says so.

export function h(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (tag === "button") element.type = "button";
  return filled(element, classes, rest);
}

export function svg(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, rest);
}

function filled(element, classes, [first, ...others]) {
  const hasAttributes = first?.constructor === Object;
  if (classes.length) element.classList.add(...classes);
  for (const [name, value] of Object.entries(hasAttributes ? first : {})) {
    if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : value);
  }
  fill(element, hasAttributes ? others : [first, ...others]);
  return element;
}

// Gives an element other children. Those that are null, undefined or false are left out; lists are opened.
export function fill(element, ...children) {
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.replaceChildren(...shown);
}

// Scrolls to a section. If the parts above it grow meanwhile, it scrolls on, unless the reader has moved.
export function goTo(section) {
  const onWay = new AbortController();
  const { signal } = onWay;
  const top = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
  const go = () => {
    const isThere = Math.abs(section.getBoundingClientRect().top - top) < 2;
    if (isThere) onWay.abort();
    else section.scrollIntoView({ behavior: "smooth" });
  };
  for (const move of ["wheel", "touchstart", "pointerdown", "keydown"])
    addEventListener(move, () => onWay.abort(), { signal });
  addEventListener("scrollend", go, { signal });
  go();
}

// A sentence in which `commands` stand between backticks.
export function withCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", part) : part));
}

// A number that a test can compare: shown short, whole in `data-value`.
export function figure(name, value, shown = exact(value)) {
  return h("span.figure", { "data-name": name, "data-value": plain(value) }, shown);
}

export function setFigure(element, value, shown = exact(value)) {
  element.dataset.value = plain(value);
  element.textContent = shown;
}

function plain(value) {
  return value === null || value === undefined ? "" : Number.isFinite(value) ? Number(value.toPrecision(7)) : value;
}

export function fixed(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  return value
    .toFixed(digits)
    .replace(/^-(0\.?0*)$/, "$1")
    .replace("-", "−");
}

const ROUNDING = 1e-9; // a sum of shares may miss 1 by as much

// With a third digit where two would show 0.00; only 0 is shown as 0.
export function exact(value) {
  const size = Math.abs(value ?? 0);
  if (size >= 0.005 || !size) return fixed(value);
  return size < 0.0005 ? "<0.001" : fixed(value, 3);
}

// Only 0 is shown as 0%, and only 1 as 100%.
export function percent(p) {
  if (p === null || p === undefined) return "–";
  if (p > 0 && p < 0.0005) return "<0.1%";
  if (p >= 0.9995 && p < 1 - ROUNDING) return ">99.9%";
  return `${(100 * p).toFixed(1)}%`;
}

const grouped = new Intl.NumberFormat("en"); // one for all: to make it takes longer than to use it

export function thousands(n) {
  return grouped.format(n);
}

// A bar as long as a share.
export function bar(name, share) {
  return h(`span.bar.${name}`, { style: { width: `${100 * share}%` } });
}

export function barAndShare(name, share) {
  return [h("span.track", bar(name, share)), h("span.number", percent(share))];
}

// A row of a list of facts: what it is, and its figure.
export function fact(name, ...value) {
  return h("div", h("dt", name), h("dd", value));
}

export function tableHead(...names) {
  const cells = names.map((name) => h("th", { scope: "col" }, name));
  return h("thead", h("tr", cells));
}

// Whether any of these differs from those of the last call with the same memory: then a panel must draw again.
export function changed(memory, ...values) {
  const isSame =
    memory.values?.length === values.length && values.every((value, i) => Object.is(value, memory.values[i]));
  memory.values = values;
  return !isSame;
}
