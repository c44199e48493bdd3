// A tour: stops that tell what to look at, and ask before they show. The source gives each stop with the state of the
// page before its question and after it, and with its figures measured (web/stops.py). One may wander off, and come back.

import { changed, fill, h } from "./elements.js";
import { waitedFor } from "./newest.js";
import { remember, remembered } from "./session.js";
import { fail, noProblem } from "./status.js";

const KEY = "pellucid-tours";
const MOMENT = 4000; // milliseconds

export function tourGuide(root, view) {
  const { source, store } = view;
  const memory = {};
  const answers = remembered(KEY) ?? {}; // by tour and stop
  const choice = h("select", { id: "tour-choice", "aria-label": "Tour", hidden: true, onchange: begin });
  document.getElementById("settings").prepend(choice);
  const isFresh = store.get().text === null; // the address names no view in which one left the tour
  let tour = null; // as the source gives it
  let followed = null; // the part to keep in sight
  let letGo = 0;
  new ResizeObserver(() => followed?.scrollIntoView()).observe(document.getElementById("main"));
  for (const touch of ["wheel", "pointerdown", "keydown"]) addEventListener(touch, () => (followed = null));
  const here = () => Math.max(1, Math.min(view.state.stop, tour.stops.length));
  const keyOf = (stop) => `${tour.name} ${stop}`;
  return { open, draw };

  // What can be played; and the tour that the address names, at the stop where it is.
  async function open() {
    const { tours } = await source.tours();
    const option = ({ name, title, minutes }) => h("option", { value: name }, `${title} (${minutes} min)`);
    fill(choice, h("option", { value: "" }, "Tours …"), tours.map(option));
    choice.hidden = !tours.length;
    const { tour: name, stop } = store.get();
    if (!name || tour) return;
    try {
      await load(name);
    } catch ({ message }) {
      view.notFound = message;
      noProblem(view);
      return store.set({ tour: "", stop: 1 });
    }
    if (isFresh) go(stop, "set");
  }

  async function load(name) {
    tour = null;
    tour = await waitedFor(source.tour({ name }));
    view.draw();
  }

  async function begin() {
    if (!choice.value) return end();
    await load(choice.value).then(() => go(1), fail);
  }

  function end() {
    store.goTo({ tour: "", stop: 1 });
  }

  // A stop that has been answered is shown as it was left.
  function go(wanted, how = "goTo") {
    const number = Math.min(wanted, tour.stops.length); // a link may name any
    const stop = tour.stops[number - 1];
    show(number, answers[keyOf(number)] === undefined ? stop : { show: stop.then, part: stop.then_part }, how);
    view.draw();
    root.scrollTop = 0;
    root.querySelector("h2").focus({ preventScroll: true });
  }

  function show(number, { show: state, part }, how) {
    store[how]({ ...state, tour: tour.name, stop: number });
    if (part) lookAt(document.getElementById(`part-${part}`));
  }

  // Without gliding, and again whenever the page grows within a moment: parts above grow as their numbers arrive.
  function lookAt(section) {
    followed = section;
    clearTimeout(letGo);
    letGo = setTimeout(() => (followed = null), MOMENT);
    section.scrollIntoView();
  }

  function answer(number, given) {
    const { then, then_part } = tour.stops[number - 1];
    answers[keyOf(number)] = given;
    remember(KEY, answers);
    show(number, { show: then, part: then_part }, "set");
    view.draw();
    root.querySelector(".because").scrollIntoView({ block: "nearest" });
  }

  function draw() {
    const { state } = view;
    const isPlayed = tour?.name === state.tour; // or the browser went back to where it was not
    choice.value = isPlayed ? tour.name : "";
    const stop = isPlayed && tour.stops[here() - 1];
    const given = stop && answers[keyOf(here())];
    const isAstray = stop && !isShown(given === undefined ? stop.show : stop.then, state);
    if (!changed(memory, stop, given, isAstray)) return;
    root.hidden = !stop;
    document.body.classList.toggle("touring", Boolean(stop));
    if (stop)
      fill(root, heading(stop), marked(stop.say), asked(stop, given), isAstray && wayBack(), buttons(stop, given));
  }

  function heading(stop) {
    const place = h("p.muted.small", `${tour.title} · ${here()} of ${tour.stops.length}`);
    const close = h("button.close", { id: "tour-end", "aria-label": "End the tour", onclick: end }, "×");
    return h("header", place, close, h("h2", { tabindex: -1 }, stop.title));
  }

  function asked(stop, given) {
    if (!stop.question) return null;
    const number = here();
    const isOpen = given === undefined || !isGraded(stop);
    const mark = (each) => (isOpen ? "" : each === stop.answer ? ".right" : each === given ? ".wrong" : "");
    const button = (each) => {
      const attributes = { "data-choice": each, disabled: given !== undefined, onclick: () => answer(number, each) };
      return h(`button.chip${mark(each)}`, attributes, each);
    };
    return [
      h("p.question", ...inline(stop.question)),
      h("div.chips", { role: "group", "aria-label": "Choices" }, stop.choices.map(button)),
      h("div.because", { "aria-live": "polite" }, given !== undefined && reason(stop, given)),
    ];
  }

  function reason(stop, given) {
    if (!isGraded(stop)) return h("p", h("b", "Not graded. "), `In your run, ${stop.misses.join("; ")}.`);
    return [
      h("p", h("b", given === stop.answer ? "Right. " : `Not this time: ${stop.answer}. `)),
      stop.because && marked(stop.because),
    ];
  }

  function wayBack() {
    const button = h("button.chip", { id: "tour-back", onclick: () => go(here()) }, "Back to this stop");
    return h("p.row.small", h("span.muted", "You have changed the page."), button);
  }

  function buttons(stop, given) {
    const [number, last] = [here(), tour.stops.length];
    const isOpen = stop.question && given === undefined;
    const right = tour.stops.filter((each, i) => isGraded(each) && answers[keyOf(i + 1)] === each.answer).length;
    const all = tour.stops.filter(isGraded).length;
    const back = { id: "tour-previous", disabled: number === 1, onclick: () => go(number - 1) };
    const on = { id: "tour-next", onclick: () => go(number + 1) };
    const ways = [
      number < last && h(isOpen ? "button" : "button.main", on, isOpen ? "Skip" : "Next"),
      number === last && h("button.main", { id: "tour-done", onclick: end }, "End"),
      number === last && h("button", { id: "tour-again", onclick: again }, "Once more"),
    ];
    const said = number === last && !isOpen && all > 0 && h("p.score", `You predicted ${right} of ${all}.`);
    return [said, h("div.buttons", h("button", back, "Back"), ways)];
  }

  function again() {
    tour.stops.forEach((_, i) => delete answers[keyOf(i + 1)]);
    remember(KEY, answers);
    go(1);
  }
}

// Whether the run has shown what the question needs.
const isGraded = ({ question, misses }) => question && !misses.length;

// Whether the page shows what a stop wants it to.
function isShown(wanted, state) {
  return Object.entries(wanted).every(([key, value]) => state[key] === value);
}

// Paragraphs with **bold** and `code`.
function marked(text) {
  return text.split(/\n+/).map((paragraph) => h("p", ...inline(paragraph)));
}

function inline(text) {
  const kinds = { "*": (part) => h("b", part.slice(2, -2)), "`": (part) => h("code", part.slice(1, -1)) };
  return text.split(/(\*\*.+?\*\*|`.+?`)/).map((part, i) => (i % 2 ? kinds[part[0]](part) : part));
}
