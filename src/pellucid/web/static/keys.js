// Keys that work everywhere but where one types, or where a control uses them itself.

import { moveHead, moveCheckpoint, moveToken } from "./moves.js";

export function keys(view) {
  const pressed = {
    ArrowLeft: () => moveToken(view, -1),
    ArrowRight: () => moveToken(view, 1),
    "[": () => moveCheckpoint(view, -1),
    "]": () => moveCheckpoint(view, 1),
    ",": () => moveHead(view, -1),
    ".": () => moveHead(view, 1),
    s: () => document.getElementById("sample").click(),
    r: () => document.getElementById("rewind").click(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, dialog, [role=grid], [role=listbox]")) return;
    if (!(event.key in pressed)) return;
    event.preventDefault();
    pressed[event.key]();
  });
}
