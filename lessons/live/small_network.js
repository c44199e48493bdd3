// Lesson 10's network: five tanh neurons with 15 parameters, and how far they are from sin(2x), plus a penalty on large
// parameters (small_error in exercises/lesson_10.py); its gradient, and its Hessian times a vector.

const N = 5;
const POINTS = Array.from({ length: 20 }, (_, i) => -2 + (4 * i) / 19);
const PENALTY = 0.01;
const ROUNDS = 60; // of power iteration; the second eigenvalue is at most about 0.8 of the first

// A minimum (near_minimum in exercises/lesson_10.py), and the start beside it that the page has.
const BOTTOM = [
  -1.7667001049440254, -0.3113055897165112, 0.730577504871194, 0.31130558971654454, 0.7305775048714376, 0, 0,
  1.003838134475212, 0, -1.0038381344759106, -1.8974702484073531, 0.6175099401383253, -1.150987448475958,
  -0.6175099401383219, -1.1509874484758678,
];
const START = [
  0.1257302210933933, -0.1321048632913019, 0.6404226504432821, 0.10490011715303971, -0.535669373161111,
  0.36159505490948474, 1.3040000451301372, 0.9470809631292422, -0.7037352358069926, -1.2654214710460525,
  -0.6232744625373522, 0.0413259793472436, -2.3250307746388343, -0.21879166393254573, -1.2459109472530652,
];

export function nearMinimum() {
  return { bottom: BOTTOM, beside: BOTTOM.map((each, i) => each + 0.002 * START[i]) };
}

export class Network {
  constructor(theta) {
    this.theta = theta;
    [this.slopes, this.shifts, this.heights] = parts(theta);
    this.hidden = POINTS.map((x) => this.slopes.map((slope, j) => Math.tanh(slope * x + this.shifts[j])));
    this.off = POINTS.map((x, i) => sum(this.hidden[i].map((t, j) => t * this.heights[j])) - Math.sin(2 * x));
  }

  error() {
    return sum(this.off.map((e) => e * e)) / POINTS.length + PENALTY * sum(this.theta.map((each) => each * each));
  }

  gradient() {
    const result = this.theta.map((each) => 2 * PENALTY * each);
    POINTS.forEach((x, i) => {
      for (let j = 0; j < N; j++) {
        const t = this.hidden[i][j];
        const e = (2 / POINTS.length) * this.off[i];
        const back = e * this.heights[j] * (1 - t * t);
        result[j] += back * x;
        result[N + j] += back;
        result[2 * N + j] += e * t;
      }
    });
    return result;
  }

  // How the gradient changes along v: each of its numbers, with a tangent.
  hessianTimes(v) {
    const [ofSlopes, ofShifts, ofHeights] = parts(v);
    const result = v.map((each) => 2 * PENALTY * each);
    POINTS.forEach((x, i) => {
      const t = this.hidden[i];
      const dt = t.map((each, j) => (1 - each * each) * (ofSlopes[j] * x + ofShifts[j]));
      const e = (2 / POINTS.length) * this.off[i];
      const de = (2 / POINTS.length) * sum(t.map((each, j) => ofHeights[j] * each + this.heights[j] * dt[j]));
      for (let j = 0; j < N; j++) {
        const slope = 1 - t[j] * t[j];
        const ofHeight = de * this.heights[j] + e * ofHeights[j];
        const dBack = ofHeight * slope - e * this.heights[j] * 2 * t[j] * dt[j];
        result[j] += dBack * x;
        result[N + j] += dBack;
        result[2 * N + j] += de * t[j] + e * dt[j];
      }
    });
    return result;
  }

  // The largest eigenvalue of the Hessian and its direction, by power iteration from a vector.
  sharpest(start) {
    let direction = start;
    for (let n = 0; n < ROUNDS; n++) {
      const v = this.hessianTimes(direction);
      const length = Math.sqrt(sum(v.map((each) => each * each)));
      direction = v.map((each) => each / length);
    }
    const v = this.hessianTimes(direction);
    return { direction, sharpness: sum(v.map((each, i) => each * direction[i])) };
  }
}

const parts = (theta) => [theta.slice(0, N), theta.slice(N, 2 * N), theta.slice(2 * N)];
const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
