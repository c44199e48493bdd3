// What the page says of itself: in the bar that stays in sight, which model all of it is about; above the parts, what
// went wrong; and which parts it leaves out, and why.

import { changed, fill, thousands, withCode } from "./elements.js";
import { leftOut, nameOfPart, runOf, stepOf } from "./store.js";

export function showStatus(view) {
  const { checkpoint, off, instead } = view.state;
  const parts = off.split(" ").filter(Boolean).map(nameOfPart);
  const name = view.runs.length > 1 ? `${runOf(checkpoint)}, ` : "";
  const without = parts.length ? `, ${instead ? "patched" : "without"} ${parts.join(", ")}` : "";
  const status = document.getElementById("status");
  status.textContent = checkpoint && `${name}step ${thousands(stepOf(checkpoint))}${without}`;
  status.classList.toggle("changed", parts.length > 0);
  document.getElementById("main").classList.toggle("waiting", !checkpoint);

  const training = view.runs.find(({ name }) => view.live[name]?.is_training);
  const live = document.getElementById("live");
  live.hidden = !training;
  if (!training) return;
  const end = training.steps ? ` of ${thousands(training.steps)}` : "";
  live.textContent = `training: step ${thousands(view.metrics[training.name]?.at(-1)?.step ?? 0)}${end}`;
}

export function fail({ message }) {
  const problem = document.getElementById("problem");
  const isSaid = !problem.hidden && problem.textContent === message.replaceAll("`", "");
  if (isSaid) return; // or a screen reader would say it every second
  fill(problem, withCode(message));
  problem.hidden = false;
}

// What an address asked for in vain is still said, until another checkpoint is chosen.
export function noProblem({ notFound }) {
  if (notFound) fail(new Error(notFound));
  else document.getElementById("problem").hidden = true;
}

const drawn = {};

// Hides the parts that this kind of model does not have. Until the trace of another run is there, nothing is drawn that
// the trace at hand does not have either.
export function leaveOut(view, sections) {
  const lacks = leftOut(view, view.state.checkpoint) ?? leftOut(view, view.trace?.checkpoint ?? "");
  if (!changed(drawn, lacks?.why)) return;
  document.body.classList.toggle("gaps", lacks?.fills_gaps ?? false);
  const links = document.getElementById("parts").children;
  Object.entries(sections).forEach(([name, section], i) => {
    section.hidden = links[i].hidden = lacks?.parts.includes(name) ?? false;
  });
  const hidden = Object.values(sections).filter((section) => section.hidden);
  const names = hidden.map((section) => section.querySelector("h2").textContent).join(", ");
  const line = document.getElementById("left-out");
  line.hidden = !lacks;
  line.textContent = lacks && `Left out: ${names}, because ${lacks.why}.`;
}
