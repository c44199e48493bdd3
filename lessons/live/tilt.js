// Lesson 14: the reference, tilted by e^{r/β}. The price slider moves the best policy, answer by answer.

import { figure, fill, fixed, h, setFigure, svg } from "pellucid/elements.js";
import { sized } from "./chart.js";
import { short, written } from "./numbers.js";

const VERBS = { sings: 0.5, sleeps: 0.3, sing: 0.2 };
const ENDS = { ".": 0.7, "again .": 0.3 };
const PRICES = [10, 1, 0.25, 0.05];
const [LOW, HIGH] = [-1.5, 1]; // of the slider: logarithms of the price

// owls: how often the reference tells of an owl. judged: what a judge gives instead of the true reward.
const CASES = [
  { title: "about owl ?", right: "owl", owls: 0.25 },
  { title: "about fox ?", right: "fox", owls: 0.4 },
  { title: "a judge that errs", right: "owl", owls: 0.25, judged: { "fox sing again .": 1.25 } },
].map((each) => ({ ...each, answers: answersTo(each) }));

export function tilt(place) {
  const state = { asked: CASES[0], beta: 1 };
  const choices = CASES.map((asked) => h("button", { onclick: () => set({ asked }) }, asked.title));
  const about = h("p.about");
  const range = h("input", {
    type: "range",
    min: LOW,
    max: HIGH,
    step: 0.01,
    "data-input": "price",
    oninput: () => set({ beta: 10 ** range.value }),
  });
  const shown = h("output");
  const prices = PRICES.map((beta) => h("button", { onclick: () => set({ beta }) }, short(beta)));
  const table = h("table.answers");
  const [reward, cost, best] = ["reward", "KL", "value"].map((name) => figure(name, 0));
  const price = h("span");
  const said = h("p.said", { role: "status" });
  const chart = svg("svg.frontier", { role: "img" });
  fill(
    place,
    h("p.title", "Tilt the reference"),
    h("div.choices", { role: "group", "aria-label": "The question" }, choices),
    about,
    h("div.sliders", h("label", h("span", "price β"), range, shown)),
    h("div.buttons", { role: "group", "aria-label": "A price" }, h("span", "β ="), prices),
    table,
    h("p.sum", "mean reward − β · KL = ", reward, " − ", price, " · ", cost, " = ", best, " = β ln Z"),
    said,
    h("div.chart", chart),
    h("p.about", "Each price is a point of the curve. The dashed tangent has the slope β, and begins at the value."),
  );
  addEventListener("resize", () => drawFrontier(chart, state));
  set({});

  function set(changes) {
    Object.assign(state, changes);
    const { asked, beta } = state;
    const policy = bestPolicy(asked.answers, beta);
    choices.forEach((each, i) => each.setAttribute("aria-pressed", CASES[i] === asked));
    prices.forEach((each, i) => each.setAttribute("aria-pressed", PRICES[i] === beta));
    range.value = Math.log10(beta);
    shown.textContent = written(beta, 2);
    range.setAttribute("aria-valuetext", `β = ${written(beta, 2)}`);
    about.textContent = aboutCase(asked);
    drawTable(table, asked, policy);
    setFigure(reward, policy.reward, fixed(policy.reward, 3));
    setFigure(cost, policy.kl, fixed(policy.kl, 3));
    setFigure(best, policy.value, fixed(policy.value, 3));
    price.textContent = written(beta, 2);
    fill(said, sentence(asked, policy));
    drawFrontier(chart, state);
  }
}

// All twelve answers: their probability under the reference, what they are worth, and what the judge says they are.
function answersTo({ right, owls, judged = {} }) {
  const answers = [];
  for (const [hero, p] of [
    ["fox", 1 - owls],
    ["owl", owls],
  ]) {
    for (const [verb, ofVerb] of Object.entries(VERBS)) {
      for (const [end, ofEnd] of Object.entries(ENDS)) {
        const name = `${hero} ${verb} ${end}`;
        const truth = 0.5 * (hero === right) + 0.5 * (verb !== "sing");
        answers.push({ name, hero, p: p * ofVerb * ofEnd, truth, reward: judged[name] ?? truth });
      }
    }
  }
  return answers;
}

// The best policy at a price: its probabilities in the order of the answers, and what it reaches.
function bestPolicy(answers, beta) {
  const raised = answers.map(({ p, reward }) => p * Math.exp(reward / beta));
  const Z = sum(raised);
  const best = raised.map((each) => each / Z);
  const mean = (of) => sum(answers.map((answer, i) => best[i] * of(answer)));
  const reward = mean((answer) => answer.reward);
  const kl = sum(answers.map(({ p }, i) => best[i] * (best[i] > 0 ? Math.log(best[i] / p) : 0)));
  return { beta, best, Z, reward, kl, value: beta * Math.log(Z), truth: mean((answer) => answer.truth), mean };
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);

function aboutCase({ right, owls, judged }) {
  const right100 = 100 * (right === "owl" ? owls : 1 - owls);
  if (judged)
    return "Asked about the owl again. But the judge is wrong about one answer: it praises “fox sing again .”, which is worth nothing.";
  return `Asked about the ${right}, the reference tells of it in ${fixed(right100, 0)} cases of 100. Lower the price, and watch the bars.`;
}

function sentence(asked, policy) {
  const { beta, reward, truth, mean } = policy;
  if (asked.judged) {
    const before = sum(asked.answers.map(({ p, truth }) => p * truth));
    const change = truth > before ? "better" : "worse";
    return [
      `The judge says ${fixed(reward, 3)}. The truth is `,
      figure("truth", truth, fixed(truth, 3)),
      `: ${change} than the reference, ${fixed(before, 3)}.`,
    ];
  }
  const obeys = mean(({ hero }) => (hero === asked.right ? 1 : 0));
  const told = [
    `It tells of the ${asked.right} in `,
    figure("obeys", 100 * obeys, fixed(100 * obeys, 1)),
    " of 100 cases.",
  ];
  if (beta >= 5) return [...told, " At this price it hardly leaves the reference."];
  if (beta <= 0.1)
    return [...told, " Only the best answers are left, and their proportions are still those of the reference."];
  return [...told, " Answers of equal reward have one factor, so they keep their proportions."];
}

// The answers by their rewards, best first; all of one reward are multiplied by one factor.
function drawTable(table, { answers }, { beta, best, Z }) {
  const rewards = [...new Set(answers.map(({ reward }) => reward))].sort((a, b) => b - a);
  const most = widest(answers, rewards[0]);
  const place = (p) => `${(100 * p) / most}%`;
  const row = ({ name, p }, i) =>
    h(
      "tr",
      h("th", { scope: "row" }, name),
      h("td", fixed(p, 4)),
      h(
        "td.bars",
        h("div", h("span.best", { style: { width: place(best[i]) } }), h("span.before", { style: { left: place(p) } })),
      ),
      h("td", figure(name, best[i], fixed(best[i], 4))),
    );
  const group = (reward) => {
    const factor = Math.exp(reward / beta);
    return h(
      `tbody.reward${Math.min(2, Math.round(2 * reward))}`,
      h(
        "tr",
        h(
          "th.group",
          { scope: "rowgroup", colspan: 4 },
          h("b", `reward ${short(reward)}`),
          ` · each × ${written(factor, 3)}/${written(Z, 3)} = `,
          figure(`factor ${reward}`, factor / Z, written(factor / Z, 3)),
        ),
      ),
      answers.map((answer, i) => (answer.reward === reward ? row(answer, i) : null)),
    );
  };
  const head = ["answer", "reference", "bar: best policy, line: reference", "best policy"];
  fill(
    table,
    h(
      "thead",
      h(
        "tr",
        head.map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    rewards.map(group),
  );
}

// The longest bar that a price can make: that of the best answers, when they are all that is left.
function widest(answers, most) {
  const top = answers.filter(({ reward }) => reward === most).map(({ p }) => p);
  return Math.max(...answers.map(({ p }) => p), Math.max(...top) / sum(top));
}

// Every price is a point: what it costs in nats, and what it brings. The tangent's slope is the price.
function drawFrontier(chart, { asked, beta }) {
  const height = 220;
  const width = sized(chart, height);
  const frame = { x1: 36, x2: width - 12, y1: 26, y2: height - 36 };
  const policies = Array.from({ length: 121 }, (_, i) => bestPolicy(asked.answers, 10 ** (2 - (i * (2 - LOW)) / 120)));
  const here = bestPolicy(asked.answers, beta);
  const end = policies.at(-1);
  const mostKl = 1.08 * end.kl;
  const [low, high] = [asked.judged ? 0 : 0.4, 1.1 * end.reward];
  const x = (kl) => frame.x1 + (kl / mostKl) * (frame.x2 - frame.x1);
  const y = (reward) => frame.y2 - ((reward - low) / (high - low)) * (frame.y2 - frame.y1);
  const path = (of) => `M${policies.map((each) => [x(each.kl), y(of(each))]).join("L")}`;
  const point = (name, reward) =>
    svg(`circle.${name}`, { cx: x(here.kl), cy: y(reward), r: 5, "data-kl": here.kl, "data-value": reward });
  const level = (reward) => [
    svg("line.grid", { ...frame, y1: y(reward), y2: y(reward) }),
    svg("text", { x: frame.x1 - 6, y: y(reward) + 4, "text-anchor": "end" }, short(reward)),
  ];
  const mark = (kl) => svg("text", { x: x(kl), y: frame.y2 + 16, "text-anchor": "middle" }, short(kl));
  const reach = Math.min(mostKl, here.kl + 0.35 * mostKl, (high - here.value) / beta);
  chart.setAttribute(
    "aria-label",
    `Mean reward against KL for all prices. Here it is ${fixed(here.reward, 3)} at ${fixed(here.kl, 3)} nats.`,
  );
  fill(
    chart,
    (asked.judged ? [0, 0.5, 1] : [0.5, 0.75, 1]).map(level),
    [0, 0.5, 1, 1.5, 2, 2.5, 3].filter((kl) => kl < mostKl).map(mark),
    svg("text", { x: 2, y: 12 }, "mean reward"),
    svg("text", { x: frame.x2, y: height - 4, "text-anchor": "end" }, "KL from the reference, in nats"),
    svg("line.tangent", { x1: x(0), y1: y(here.value), x2: x(reach), y2: y(here.value + beta * reach) }),
    svg("path.line", { d: path(({ reward }) => reward) }),
    asked.judged && svg("path.line.truth", { d: path(({ truth }) => truth) }),
    asked.judged && point("truth", here.truth),
    asked.judged && svg("text.one", { x: frame.x2, y: y(end.reward) - 8, "text-anchor": "end" }, "what the judge says"),
    asked.judged && svg("text.good", { x: frame.x2, y: y(0.25), "text-anchor": "end" }, "what is true"),
    point("now", here.reward),
    svg("circle.value", { cx: x(0), cy: y(here.value), r: 4 }),
  );
}
