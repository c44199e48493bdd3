// A walk through a graph: up with the values, back down with the cotangents, and what is known after so many steps.

export class Walk {
  // at: how many steps have been taken. inputs: {name: number}.
  constructor(expression, inputs, at) {
    Object.assign(this, { expression, at, nodes: expression.nodes, steps: stepsOf(expression) });
    Object.assign(this, differentiated(expression, inputs));
    this.taken = this.steps.slice(0, at + 1);
    this.here = this.steps[at];
    this.next = this.steps[at + 1];
  }

  node(name) {
    return this.nodes.find((node) => node.name === name);
  }

  has(kind, name, from) {
    return this.taken.some((step) => isStep(step, kind, name, from));
  }

  isHere(kind, name, from) {
    return isStep(this.here, kind, name, from);
  }

  hasValue({ name, of }) {
    return of.length === 0 || this.has("value", name);
  }

  // The shares that have arrived at a node, in their order; at the result it is the 1 that the walk back begins with.
  arrived(name) {
    if (name === "f") return this.has("first", "f") ? [1] : [];
    const shares = this.taken.filter((step) => step.kind === "share" && step.name === name);
    return shares.map(({ from }) => this.shares[wayOf(from, name)]);
  }

  nMissing(name) {
    return usersOf(this.expression, name).length - this.arrived(name).length;
  }

  // Whether a node has all of its cotangent, and may pass it on.
  hasCotangent(name) {
    if (name === "f") return this.has("first", "f");
    return usersOf(this.expression, name).length > 1 ? this.has("total", name) : this.nMissing(name) === 0;
  }
}

// The name of what a node hands to one of its inputs.
export const wayOf = (name, input) => `${name} ${input}`;

const isStep = (step, kind, name, from) =>
  step.kind === kind && step.name === name && (from === undefined || step.from === from);

const usersOf = ({ nodes }, name) => nodes.filter(({ of }) => of.includes(name));

// The order in which things happen: values of the nodes, up; then the 1 of the result, and every share, down. A node
// that is used twice adds its shares when all have arrived, and only then passes on.
function stepsOf(expression) {
  const { nodes } = expression;
  const steps = [{ kind: "start" }];
  for (const { name, of } of nodes) if (of.length) steps.push({ kind: "value", name });
  steps.push({ kind: "first", name: "f" });
  for (const { name, of } of nodes.toReversed()) {
    for (const input of of) {
      steps.push({ kind: "share", name: input, from: name });
      const users = usersOf(expression, input);
      // The nodes are walked from the end, so the first of the users is the last to pass.
      if (users.length > 1 && users[0].name === name) steps.push({ kind: "total", name: input });
    }
  }
  return steps;
}

// The values of all nodes, and on the way back: slopes, shares (both by the way they go) and cotangents.
function differentiated({ nodes }, inputs) {
  const [values, slopes, shares] = [{}, {}, {}];
  for (const { name, of, value, slopes: slopesAt } of nodes) {
    const given = of.map((input) => values[input]);
    values[name] = of.length ? value(...given) : inputs[name];
    of.forEach((input, i) => (slopes[wayOf(name, input)] = slopesAt(...given)[i]));
  }
  const cotangents = Object.fromEntries(nodes.map(({ name }) => [name, name === "f" ? 1 : 0]));
  for (const { name, of } of nodes.toReversed()) {
    for (const input of of) {
      const way = wayOf(name, input);
      shares[way] = slopes[way] * cotangents[name];
      cotangents[input] += shares[way]; // used twice: both count
    }
  }
  return { values, slopes, shares, cotangents };
}
