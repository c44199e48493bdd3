// What a part of the page shows, as one SVG that stands alone: a rectangle for each element that is seen and a text for
// each line, where the browser has put them. So no other program needs a browser. What carries numbers has a <desc>.

import { svg } from "./elements.js";

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "text-anchor"];
LOOKS.push("font-family", "font-size", "font-weight", "font-style");
const NOT_IN_XML = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu; // such as half of a character
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

// `says` is for a reader who does not see it.
export function pictureOf(section, title, says) {
  const box = section.getBoundingClientRect();
  const { x, y, width, height } = box;
  const inside = [svg("title", title), svg("desc", says), drawn(section, box)];
  const picture = svg("svg", { viewBox: [x, y, width, height].join(" "), width, height }, inside);
  return new XMLSerializer().serializeToString(picture).replace(NOT_IN_XML, "\ufffd");
}

// What stands for an element and all that is in it, as far as `clip` lets it be seen.
function drawn(element, clip) {
  const [style, box] = [getComputedStyle(element), element.getBoundingClientRect()];
  const seen = element.checkVisibility({ visibilityProperty: true }) && common(box, clip);
  if (!seen) return null;
  if (element.localName === "svg") return shapes(element);
  if (element.localName === "canvas") return cells(element, box);
  const within = style.overflowX === "visible" ? clip : seen;
  const part = (each) => (each.nodeType === Node.TEXT_NODE ? lines(each, style, within) : drawn(each, within));
  const numbers = "value" in element.dataset && Object.entries(element.dataset).map((each) => each.join(" "));
  const [outline, ...below] = rectangles(style, box);
  const all = [numbers && svg("desc", numbers.join(", ")), below, [...element.childNodes].map(part), outline];
  return svg("g", { opacity: style.opacity < 1 && style.opacity }, all);
}

// Outline, background and borders.
function rectangles(style, { x, y, width, height }) {
  const rx = Math.min(parseFloat(style.borderTopLeftRadius), height / 2);
  const [t, r, b, l] = ["Top", "Right", "Bottom", "Left"].map((side) => parseFloat(style[`border${side}Width`]));
  const frame = (thick, colour, out) => {
    const rect = { x: x - out, y: y - out, width: width + 2 * out, height: height + 2 * out, rx, fill: "none" };
    return thick > 0 && rectangle({ ...rect, "stroke-width": thick }, colour, "stroke");
  };
  const outline = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
  const isFramed = t === r && t === b && t === l;
  return [
    frame(outline, style.outlineColor, parseFloat(style.outlineOffset) + outline / 2),
    rectangle({ x, y, width, height, rx }, style.backgroundColor),
    isFramed && frame(t, style.borderTopColor, -t / 2),
    !isFramed && rectangle({ x, y, width, height: t }, style.borderTopColor),
    !isFramed && rectangle({ x: x + width - r, y, width: r, height }, style.borderRightColor),
    !isFramed && rectangle({ x, y: y + height - b, width, height: b }, style.borderBottomColor),
    !isFramed && rectangle({ x, y, width: l, height }, style.borderLeftColor),
  ];
}

function rectangle(rect, colour, how = "fill") {
  const isSeen = rect.width > 0 && rect.height > 0 && !/^rgba\(.*, 0\)$/.test(colour);
  return isSeen && svg("rect", { ...rect, [how]: opaque(colour) });
}

// A colour as every program knows it: mixed with white by as much as it lets through.
function opaque(colour) {
  for (const each of ["white", colour]) {
    pen.fillStyle = each;
    pen.fillRect(0, 0, 1, 1);
  }
  return rgb(pen.getImageData(0, 0, 1, 1).data, 0);
}

const rgb = (data, i) => `rgb(${data.subarray(4 * i, 4 * i + 3).join()})`;
const looks = (style) => Object.fromEntries(LOOKS.map((name) => [name, style.getPropertyValue(name)]));

// A text for each line or, where it is turned, for each character. What has no room on the page has none here.
function lines(node, style, clip) {
  const [range, found] = [document.createRange(), []];
  let end = 0;
  for (const character of node.data) {
    range.setStart(node, end);
    range.setEnd(node, (end += character.length));
    const [box, line] = [range.getBoundingClientRect(), found.at(-1)];
    const isNext = line && Math.abs(line.box.y - box.y) < 2;
    const isSeen = common(box, clip)?.width > box.width / 2;
    if (isSeen && isNext) Object.assign(line, { text: line.text + character, right: box.right });
    else if (isSeen) found.push({ text: character, box, right: box.right, rest: "" });
    else if (isNext && box.width) line.rest = "…";
  }
  const size = parseFloat(style.fontSize) * (node.parentElement.currentCSSZoom ?? 1);
  const look = { ...looks(style), "font-size": size, fill: opaque(style.color), "xml:space": "preserve" };
  const angle = (parseFloat(style.rotate) || 0) + (style.writingMode === "vertical-rl" ? 90 : 0);
  return found.map(({ text, box, right, rest }) => {
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const place = angle
      ? { x, y: y + 0.3 * size, "text-anchor": "middle", transform: `rotate(${angle} ${x} ${y})` }
      : { x: box.x, y: box.y + 0.8 * box.height, textLength: right - box.x, lengthAdjust: "spacingAndGlyphs" };
    return text.trim() && svg("text", { ...look, ...place }, text + rest);
  });
}

// An SVG of the page, whose shapes have their looks from style.css.
function shapes(element) {
  const { a, d, e, f } = element.getScreenCTM();
  const copy = (each) => {
    const shape = each.cloneNode(true);
    shape.removeAttribute("class");
    Object.entries(looks(getComputedStyle(each))).forEach((look) => shape.setAttribute(...look));
    return shape;
  };
  return svg("g", { transform: `matrix(${a} 0 0 ${d} ${e} ${f})` }, [...element.children].map(copy));
}

// A matrix: a path for each of its colours.
function cells(canvas, { x, y, width, height }) {
  const [columns, rows, paths] = [canvas.width, canvas.height, {}];
  const { data } = canvas.getContext("2d").getImageData(0, 0, columns, rows);
  const numbers = Array.from(canvas.numbers ?? [], (number, i) => {
    (paths[rgb(data, i)] ??= []).push(`M${i % columns} ${Math.floor(i / columns)}h1v1h-1z`);
    return (i % columns ? " " : "\n") + Number(number.toPrecision(3));
  });
  const transform = `translate(${x} ${y}) scale(${width / columns} ${height / rows})`;
  const all = Object.entries(paths).map(([fill, d]) => svg("path", { fill, d: d.join("") }));
  return svg("g", { transform, "shape-rendering": "crispEdges" }, svg("desc", numbers.join("")), all);
}

// What two boxes have in common; null if that is nothing.
function common(a, b) {
  const [x, y] = [Math.max(a.x, b.x), Math.max(a.y, b.y)];
  const [right, bottom] = [Math.min(a.right, b.right), Math.min(a.bottom, b.bottom)];
  return right < x || bottom < y ? null : new DOMRect(x, y, right - x, bottom - y);
}
