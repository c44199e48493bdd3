// A drawing as wide as its place, so that its text is as large on a phone as on a laptop. It is drawn again when the
// window changes.

export function sized(drawing, height) {
  const width = Math.max(260, drawing.parentElement.clientWidth);
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("width", width);
  drawing.setAttribute("height", height);
  return width;
}
