// The page: a language, one or two models that learn it side by side, each in a worker of its own.

import { drawCurves, drawDocument, drawMap, drawSkills, textOf } from "./panels.js";
import { fill, fixed, h, thousands } from "./elements.js";
import { held, runArchive, workerAddress } from "./files.js";

const LAYERS = [1, 2, 3, 4];
const WIDTHS = [16, 32, 64, 128];
const HEADS = 4;
const NEAR = 0.02; // of the floor: as near as the page calls "there"
const PATIENCE = 90; // seconds of a whole training; a size that takes longer here is replaced by a smaller one
const SAVED = 0.6; // of the time is left at the next smaller size, about
const SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
];

const $ = (id) => document.getElementById(id);

let languages, address, language;
let usual; // the size of a model at first: {n_layers, d_model, batch_size}
let sides = [];
let seed = 0;
let isPredicted = false; // the floor is shown once the reader has had the chance to predict it

const failed = (why) => {
  $("trouble").textContent = why;
  $("trouble").hidden = !why;
};

async function start() {
  const canCompute = globalThis.WebAssembly?.validate(new Uint8Array(SIMD));
  if (!canCompute || typeof DecompressionStream !== "function")
    return failed("This browser is too old to train a model. Any browser of the last three years can.");
  failed("");
  const { languages: all, worker } = await held($("data"));
  [languages, address] = [all, workerAddress(worker)];
  fill(
    $("languages"),
    h("legend", "A language"),
    languages.map(({ config, title }, i) =>
      h(
        "label",
        h("input", {
          type: "radio",
          name: "language",
          value: config.name,
          checked: !i,
          onchange: () => choose(languages[i]),
        }),
        ` ${title}`,
      ),
    ),
  );
  fill($("predict"), predictForm());
  $("second").onclick = () => (sides.length > 1 ? keepOne() : addSide());
  choose(languages[0]);
}

function choose(chosen) {
  language = chosen;
  const { model, train } = language.config;
  usual = { n_layers: Math.min(LAYERS.at(-1), model.n_layers), d_model: model.d_model, batch_size: train.batch_size };
  fill($("says"), language.says);
  fill(
    $("examples"),
    [0, 1].map((i) => h("li", textOf(language, [...rowOf(i)]))),
  );
  $("guess").value = "";
  fill($("verdict"));
  isPredicted = false;
  for (const side of sides) side.end();
  sides = [];
  addSide();
}

function rowOf(document) {
  const { ids, lengths, length_of_row: n } = language.held_out;
  return ids.subarray(document * n + 1, document * n + lengths[document] - 1);
}

function predictForm() {
  return [
    h("label", { for: "guess" }, "Predict first: how low can the loss get, in nats per token? "),
    h("input", { id: "guess", type: "number", min: 0, max: 10, step: 0.05, inputmode: "decimal" }),
    h("span", { id: "verdict", role: "status" }),
  ];
}

function addSide() {
  sides.push(makeSide(sides.length));
  showSides();
}

function keepOne() {
  sides.pop().end();
  showSides();
}

function showSides() {
  fill(
    $("sides"),
    sides.map(({ element }) => element),
  );
  $("second").textContent = sides.length > 1 ? "Only one model" : "A second model beside it";
  redraw();
}

function redraw() {
  const { floor, by_frequency: byFrequency, config } = language;
  drawCurves($("curve"), sides, { floor, byFrequency, isPredicted, steps: config.train.steps });
}

// The next smaller size: half the texts of an update, then half the width. null: what is smaller learns too little.
function smaller({ n_layers, d_model, batch_size }) {
  if (batch_size > 8) return { n_layers, d_model, batch_size: batch_size / 2 };
  return d_model > 32 ? { n_layers, d_model: d_model / 2, batch_size } : null;
}

// The largest size whose training should take less than PATIENCE, as this one takes some seconds. It is measured again.
function fitting(size, seconds) {
  const next = seconds > PATIENCE ? smaller(size) : null;
  return next ? fitting(next, SAVED * seconds) : size;
}

// The language, for a model of this size.
function sized({ n_layers, d_model, batch_size }) {
  const { model, train } = language.config;
  const sizes = { model: { ...model, n_layers, d_model, n_heads: HEADS }, train: { ...train, batch_size } };
  return { ...language, config: { ...language.config, ...sizes } };
}

const timeOf = (seconds) => (seconds < 100 ? `${Math.ceil(seconds)} seconds` : `${Math.ceil(seconds / 60)} minutes`);

// A model with its own worker and panels.
function makeSide(index) {
  const side = { held: [], end: () => worker?.terminate() };
  let worker = null;
  let size = usual;
  let isChosen = index > 0; // the size: by the reader, or as fast enough
  const now = { document: 0, place: 5, head: 0, isTraining: false, step: 0, looked: null, life: 0 };
  const steps = language.config.train.steps;

  const name = index ? "rival" : "model";
  const says = h("p.status", { role: "status" });
  const wrote = h("p.wrote");
  const text = h("div.document");
  const canvas = h("canvas", {
    role: "img",
    "aria-label": "Where the chosen head looks: a row for each token, a column for each that it looks back at",
  });
  const heads = h("select", { "aria-label": "head", onchange: () => ((now.head = Number(heads.value)), draw()) });
  const skills = h("table.skills");
  const ask = (type, more = {}) => worker?.postMessage({ type, life: now.life, ...more });

  const slider = (label, values, key) => {
    const [input, shown] = [h("input", { type: "range", min: 0, max: values.length - 1, step: 1 }), h("output")];
    const show = () => ([input.value, shown.textContent] = [values.indexOf(size[key]), String(size[key])]);
    input.oninput = () => {
      size = { ...size, [key]: values[input.value] };
      isChosen = true;
      begin();
    };
    return { show, element: h("label.slider", label, input, shown) };
  };
  const sliders = [slider("Layers", LAYERS, "n_layers"), slider("Width", WIDTHS, "d_model")];
  const go = h("button.primary", { onclick: () => (now.isTraining ? ask("pause") : train()) }, "Train");
  const one = h("button", { onclick: step }, "One update");
  const again = h("button", { onclick: () => ((seed += 1), begin(), train()) }, "Again with another seed");
  const download = h("button", { onclick: () => ask("weights") }, "Download the model");

  side.element = h(
    `section.side.${name}`,
    h("h2", index ? "The second model" : "The model"),
    sliders.map(({ element }) => element),
    h("p.buttons", go, one, again, download),
    says,
    h("h3", "What it writes"),
    wrote,
    h("h3", "What it expects next, beside the truth"),
    h(
      "p.buttons",
      "Text ",
      language.truth.map((_, i) => h("button", { onclick: () => look(i) }, String(i + 1))),
    ),
    text,
    h("h3", "Where a head looks ", heads),
    canvas,
    skills,
  );

  function begin() {
    side.held = [];
    Object.assign(now, { step: 0, looked: null, isTraining: false, seconds: 0, life: now.life + 1 });
    go.textContent = "Train";
    says.textContent = "Making ready ...";
    one.disabled = false;
    for (const { show } of sliders) show();
    fill(
      heads,
      Array.from({ length: size.n_layers * HEADS }, (_, i) =>
        h("option", { value: i }, `${Math.floor(i / HEADS) + 1}.${(i % HEADS) + 1}`),
      ),
    );
    now.head = Math.min(now.head, size.n_layers * HEADS - 1);
    heads.value = now.head;
    failed("");
    ask("pause");
    try {
      worker ??= hired();
      ask("begin", { language: forWorker(sized(size)), seed: seed + 100 * index });
      ask("look", { document: now.document });
    } catch (error) {
      giveUp(error.message);
    }
    draw();
    redraw();
  }

  function hired() {
    const worker = new Worker(address);
    worker.onmessage = ({ data }) => data.life === now.life && answers[data.type](data);
    worker.onerror = ({ message }) => giveUp(message);
    return worker;
  }

  // Whatever goes wrong in a worker, another one begins anew.
  function giveUp(why) {
    worker?.terminate();
    worker = null;
    [now.isTraining, go.textContent] = [false, "Train"];
    failed(`The model could not be trained: ${why}.`);
  }

  function step() {
    if (!worker) begin();
    isChosen = true; // another size would begin anew
    judge();
    ask("step");
  }

  function train() {
    worker || begin();
    judge();
    now.isTraining = true;
    go.textContent = "Pause";
    ask("train");
  }

  function look(document) {
    [now.document, now.place] = [document, 0];
    ask("look", { document });
  }

  function draw() {
    const { document, place, head, looked } = now;
    const fits = looked?.document === document ? looked : null;
    const choosePlace = (t) => ((now.place = t), draw());
    drawDocument(text, language, { document, p: fits?.p, place, choose: choosePlace });
    if (fits)
      drawMap(canvas, language, {
        ...fits,
        document,
        head: Math.min(head, fits.attention.length * fits.heads - 1),
        place,
      });
  }

  function report() {
    const [, loss] = side.held.at(-1) ?? [0, null];
    if (loss === null) return;
    const excess = (loss - language.floor) / language.floor;
    const left = now.step > 1 ? (now.seconds / (now.step - 1)) * (steps - now.step) : null;
    one.disabled = now.step >= steps;
    const parts = [
      `update ${now.step} of ${steps}`,
      `loss ${fixed(loss, 3)}${excess < 1 ? `, ${fixed(100 * excess, 1)} % above the floor` : ""}`,
    ];
    if (now.step >= steps)
      parts.push(excess < NEAR ? "no model can do much better" : "a larger model, or more updates, might come nearer");
    else if (left !== null) parts.push(`${timeOf(left)} to go`);
    says.textContent = `${parts.join("; ")}.`;
    Object.assign(says.dataset, { step: now.step, loss, excess });
  }

  const answers = {
    begun: ({ parameters }) => {
      now.parameters = `${thousands(parameters)} parameters, none of them trained`;
      says.textContent = `${now.parameters}. Measuring how fast this computer is ...`;
    },
    measured: ({ seconds }) => {
      const [next, { isTraining }] = [fitting(size, seconds), now];
      if (!isChosen && next !== size) {
        usual = size = next;
        begin();
        if (isTraining) train();
        return;
      }
      isChosen = true;
      if (now.step) return;
      const { model, train: recipe } = language.config;
      const less = (what, here, there) => here < there && `${what} ${here} instead of ${there}`;
      const saved = [
        less("texts in an update:", size.batch_size, recipe.batch_size),
        size === usual && less("width:", size.d_model, model.d_model),
      ].filter(Boolean);
      const toSave = saved.length ? ` To save time, ${saved.join("; ")}.` : "";
      says.textContent = `${now.parameters}. On this computer ${steps} updates take about ${timeOf(seconds)}.${toSave}`;
    },
    updated: ({ step, seconds }) => (Object.assign(now, { step, seconds }), report()),
    evaluated: ({ step, loss, bySkill }) => {
      side.held.push([step, loss]);
      drawSkills(skills, language, bySkill);
      redraw();
      if (step) report();
      ask("look", { document: now.document });
    },
    wrote: ({ ids }) => {
      const text = textOf(language, ids) || "(nothing)";
      fill(wrote, text, text.includes("�") && h("small", " (�: a token that no text has)"));
    },
    looked: (looked) => ((now.looked = looked), draw()),
    stopped: () => {
      now.isTraining = false;
      go.textContent = now.step >= steps ? "Trained" : now.step ? "Go on" : "Train";
      report();
    },
    failed: ({ why }) => giveUp(why),
    weights: async ({ weights, step, tokens }) => {
      const [at, loss] = side.held.at(-1);
      const trained = { step, tokens, seconds: now.seconds, loss: at === step ? loss : null };
      save(await runArchive(sized(size), weights, trained));
    },
  };
  begin();
  return side;
}

// What the reader predicted, once training shows the floor.
function judge() {
  isPredicted = true;
  redraw();
  const guess = $("guess").valueAsNumber;
  const truth = `The floor is ${fixed(language.floor, 3)}`;
  fill(
    $("verdict"),
    Number.isNaN(guess)
      ? `${truth}.`
      : `${truth}: you were ${fixed(Math.abs(guess - language.floor), 2)} ${guess > language.floor ? "above" : "below"} it.`,
  );
}

function save(archive) {
  const link = h("a", { href: URL.createObjectURL(archive), download: `${language.config.name}.tar` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a browser may begin to read it later
}

const forWorker = ({ config, vocab_size, end_of_text, skills, train, held_out }) => ({
  config,
  vocab_size,
  end_of_text,
  skills,
  train,
  held_out,
});

start().catch((error) => failed(String(error.message ?? error)));
