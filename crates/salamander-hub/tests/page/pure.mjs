// The parts of the page that need no browser.

import assert from "node:assert/strict";
import { band, interpolate, isGap, logTicks, nearest, rankCorrelation, reduce, smooth, ticks } from "../../src/page/curve.js";
import { byMetric, decode, load, noteOf, series } from "../../src/page/curves.js";
import { diffLines, nearChanges } from "../../src/page/diff.js";
import { parse } from "../../src/page/filter.js";
import { csvCell, duration, flat, number, plain } from "../../src/page/format.js";
import { eventsOf, goodput, stretchesOf } from "../../src/page/run_events.js";
import { line, pixelOf } from "../../src/page/raster.js";
import { mergeRuns, neededMetrics, sortBy } from "../../src/page/table.js";
import { axisOf, bins, importance, rungsOf } from "../../src/page/trials.js";

// Every extreme of every pixel survives.
let seed = 7;
const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
for (let round = 0; round < 50; round += 1) {
  const count = 1 + Math.floor(random() * 5000);
  const xs = Array.from({ length: count }, (_, at) => at);
  const ys = xs.map(() => (random() < 0.02 ? null : random()));
  const columns = 1 + Math.floor(random() * 300);
  const place = (x) => (x / count) * columns;
  const kept = reduce(xs, ys, place, columns).filter((at) => at !== null);
  assert.deepEqual(kept, [...kept].sort((a, b) => a - b));
  const extremes = (list) => {
    const out = new Map();
    for (const at of list) {
      if (ys[at] === null) continue;
      const column = Math.floor(place(xs[at]));
      const [low, high] = out.get(column) ?? [Infinity, -Infinity];
      out.set(column, [Math.min(low, ys[at]), Math.max(high, ys[at])]);
    }
    return out;
  };
  assert.deepEqual(extremes(kept), extremes(xs));
  assert(kept.length <= columns * 4 + 2 + ys.filter((y) => y === null).length * 4);
}
// Outside of what is in sight only the neighbours are kept.
assert.deepEqual(reduce([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], (x) => (x - 4) * 100, 100).filter((at) => at !== null), [3, 4, 5, 6]);

// Pixels of many curves: every point has its own, a column is covered from its smallest to its largest, gaps stay empty.
for (let round = 0; round < 50; round += 1) {
  const [width, height] = [1 + Math.floor(random() * 200), 1 + Math.floor(random() * 100)];
  const xs = Float64Array.from({ length: 1 + Math.floor(random() * 1000) }, (_, at) => at);
  const ys = xs.map(() => (random() < 0.02 ? NaN : random()));
  const [x, y] = [(value) => ((value + 0.5) / xs.length) * width, (value) => value * height];
  const pixels = new Uint32Array(width * height);
  line({ pixels, width, height }, { xs, ys, color: 7, x, y });
  xs.forEach((step, at) => {
    if (!Number.isNaN(ys[at])) assert.equal(pixels[Math.floor(y(ys[at])) * width + Math.floor(x(step))], 7);
  });
  for (let column = 0; column < width; column += 1) {
    // Nothing is drawn outside of what the points that lead in and out reach.
    const near = [...xs].filter((step) => Math.abs(x(step) - column - 0.5) <= width / xs.length + 1.5 && !Number.isNaN(ys[step]));
    const [low, high] = [Math.min(...near.map((step) => ys[step])), Math.max(...near.map((step) => ys[step]))];
    for (let row = 0; row < height; row += 1) {
      if (pixels[row * width + column]) assert(row >= Math.floor(y(low)) && row <= Math.floor(y(high)), `${row} of ${low} to ${high}`);
    }
  }
}
assert.equal(pixelOf("#112233"), 0xff332211);

// Curves in bytes, as the hub sends them.
const head = new TextEncoder().encode(JSON.stringify([{ run: "1.1", curves: [{ metric: "loss", points: 2, reduced: false, count: 2 }] }]));
const sent = new ArrayBuffer(8 + Math.ceil(head.length / 8) * 8 + 32);
new DataView(sent).setUint32(0, head.length, true);
new Uint8Array(sent, 8).set(head);
new Float64Array(sent, sent.byteLength - 32).set([1, 2, 0.5, NaN]);
const [received] = decode(sent);
assert.deepEqual([received.run, [...received.curves[0].steps], [...received.curves[0].values]], ["1.1", [1, 2], [0.5, NaN]]);

// Over times each metric of a run of MLflow's clients stands at its own, as it may count other steps; those of a run of
// ours share theirs.
const stored = {
  1.1: { time: [[1, 2], [100, 110]], loss: [[1, 2], [0.5, 0.25]] },
  2.1: { "@time/loss": [[1, 2], [50, 60]], loss: [[1, 2], [3, 2]], "@time/accuracy": [[1], [60]], accuracy: [[1], [0.75]] },
};
const answer = (runs, metrics) => {
  const found = runs.map((run) => [run, metrics.filter((metric) => stored[run][metric]).map((metric) => [metric, ...stored[run][metric]])]);
  const told = found.map(([run, curves]) => ({ run, curves: curves.map(([metric, steps]) => ({ metric, points: steps.length, reduced: false, count: steps.length })) }));
  const text = new TextEncoder().encode(JSON.stringify(told));
  const numbers = found.flatMap(([, curves]) => curves.flatMap(([, steps, values]) => [...steps, ...values]));
  const at = 8 + Math.ceil(text.length / 8) * 8;
  const bytes = new ArrayBuffer(at + numbers.length * 8);
  new DataView(bytes).setUint32(0, text.length, true);
  new Uint8Array(bytes, 8).set(text);
  new Float64Array(bytes, at).set(numbers);
  return bytes;
};
globalThis.sessionStorage ??= { getItem: () => null };
globalThis.fetch = async (url) => {
  const asked = new URL(url, "http://hub").searchParams;
  const bytes = answer(asked.get("runs").split(","), asked.get("metrics").split(","));
  return { ok: true, status: 200, headers: new Headers(), arrayBuffer: async () => bytes };
};
const both = [{ id: "1.1", folder: "net-1", started: 99_000 }, { id: "2.1", folder: ".hub/mlflow/runs/ab", started: 45_000 }];
for (const [x, expected] of [["wall", [[100, 110], [50, 60], [60]]], ["relative", [[0, 10], [5, 15], [15]]]]) {
  const { loss, accuracy } = await load(both, ["loss", "accuracy"], { params: { x }, pixels: 100 });
  assert.deepEqual([loss["1.1"], loss["2.1"], accuracy["2.1"]].map(({ xs }) => [...xs]), expected);
  assert.equal(accuracy["1.1"], undefined);
}

// A name is no formula, a number is a number.
assert.deepEqual(["=1+1", "-x", "@a", "a", 'say "a", b', -1.5, null, ["a", "b"]].map(csvCell),
  ["'=1+1", "'-x", "'@a", "a", '"say ""a"", b"', "-1.5", "", "a b"]);

assert.deepEqual(smooth([1, 1, null, 1], 0.9).map((y) => (y === null ? y : Number(y.toFixed(9)))), [1, 1, null, 1]);
assert.deepEqual(ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
assert.deepEqual(logTicks(0.001, 1000, 10), [0.001, 0.01, 0.1, 1, 10, 100, 1000].map((v) => Number(v)));
assert.equal(interpolate([0, 10], [0, 100], 2.5), 25);
assert.equal(interpolate([0, 10], [0, 100], 99), 100);
assert.equal(nearest([0, 10, 20], 14), 1);
assert.equal(nearest([], 1), -1);
assert.equal(rankCorrelation([1, 2, 3, 4], [10, 20, 30, 40]), 1);
assert.equal(rankCorrelation([1, 2, 3, 4], [4, 3, 2, 1]), -1);
assert.equal(rankCorrelation([1, 1, 1], [1, 2, 3]), 0);
const joined = band([{ xs: [0, 10], ys: [0, 10] }, { xs: [0, 10], ys: [2, 12] }], 10);
assert.deepEqual([joined.ys[5], joined.low[5], joined.high[5]], [6, 5, 7]);
// A spike between the places at which the mean is taken is in the band, and nowhere else.
const flat10000 = Array.from({ length: 10_001 }, (_, step) => step);
const spiked = band([{ xs: flat10000, ys: flat10000.map(() => 1) }, { xs: flat10000, ys: flat10000.map((step) => (step === 6543 ? 9 : step === 1234 ? -9 : 1)) }], 300);
assert.deepEqual([spiked.high.indexOf(9), spiked.high.filter((y) => y !== 1)], [Math.round(6543 / (10_000 / 300)), [9]]);
assert.deepEqual([spiked.low.indexOf(-9), spiked.low.filter((y) => y !== 1)], [Math.round(1234 / (10_000 / 300)), [-9]]);
// Groups whose lines go back and forth keep them, in the group's colour.
const grouped = ["a", "a", "b"].map((width, at) => ({ id: `1.${at + 1}`, name: `run ${at + 1}`, flat: { width } }));
const backAndForth = Object.fromEntries(grouped.map(({ id }) => [id, byMetric({ steps: [1, 2, 3], values: [10, 20, 30] }, { steps: [1, 2, 3], values: [4, 1, 3] })]));
const lines = series(grouped, backAndForth, { color: (run, at) => `colour ${at}`, group: "width" });
assert.deepEqual(lines.map(({ name, color, xs }) => [name, color, xs]), [["width = a: run 1", "colour 0", [4, 1, 3]], ["width = a: run 2", "colour 0", [4, 1, 3]], ["width = b: run 3", "colour 1", [4, 1, 3]]]);
assert.equal(noteOf({}, { x: "wall" }, 2), "2 runs tell no time of steps, and are left out");

const row = { name: "digits", state: "running", model: "net", labels: ["first", "<b>"], steps: 10, metrics: { "validation/loss": 0.25, loss: null }, flat: { lr: 0.1, "a.b": "sgd" } };
const yes = ["", "digits", "state = running", "validation/loss < 0.3", "hparam.lr >= 0.1 and a.b = sgd", "not name ~ xyz", "label = first", "label = \"<b>\"",
  "(state = failed or state = running) steps > 9", "name !~ zzz", "state != failed", "a.b ~ SG"];
const no = ["xyz", "state = failed", "validation/loss > 0.3", "loss < 1", "hparam.none = 1", "not digits", "label = second", "state = running and steps > 10"];
for (const text of yes) assert.equal(parse(text)(row), true, text);
for (const text of no) assert.equal(parse(text)(row), false, text);
for (const text of ["(", "state =", "= 3", "a = (", "(a))", "\"open"]) assert.throws(() => parse(text), Error, text);

assert.deepEqual(flat({ a: { b: 1 }, c: [1, 2] }), { "a.b": 1, c: "[1,2]" });
assert.equal(plain("\u001b[31mred\u001b[0m\u0007"), "red\u00b7");
assert.equal(number(0.00001234), "1.234e-5");
assert.equal(duration(61_000), "1 min 1 s");
const columns = [{ key: "a", value: (one) => one.a }];
assert.deepEqual(sortBy([{ a: 2 }, { a: null }, { a: 10 }], columns, "-a").map((one) => one.a), [10, 2, null]);

// Runs that have changed take the places of what they were, new ones come first, and what is said of an experiment is
// said of all its runs.
const before = [{ id: "1.1", experiment: 1, steps: 1, labels: [] }, { id: "1.2", experiment: 1, steps: 1, labels: [] }, { id: "2.1", experiment: 2, steps: 9, labels: ["b"] }, { id: "3.1", experiment: 3, steps: 4, labels: [] }];
const changedRuns = [{ id: "4.1", experiment: 4, steps: 0, labels: [] }, { id: "1.2", experiment: 1, steps: 2, labels: ["a"], archived: false }];
assert.deepEqual(mergeRuns(before, ["4.1", "1.2", "3.1"], changedRuns, () => true).map(({ id, steps, labels }) => [id, steps, labels.join()]),
  [["4.1", 0, ""], ["1.1", 1, "a"], ["1.2", 2, "a"], ["2.1", 9, "b"]]);
assert.deepEqual(mergeRuns(before, ["1.1"], [{ ...before[0], archived: true }], (run) => !run.archived).map(({ id }) => id), ["2.1", "3.1"]);
assert.deepEqual(mergeRuns(before, [], [], () => true), before);

// Files line by line: what is left of both makes both again.
for (const [a, b] of [["a\nb\nc", "a\nx\nc"], ["", "a"], ["a\nb", "a\nb"], ["a\nb\nc\nd", "b\nd\ne"], ["x", "y"]]) {
  const lines = diffLines(a, b);
  assert.equal(lines.filter(({ kind }) => kind !== "new").map(({ text }) => text).join("\n"), a);
  assert.equal(lines.filter(({ kind }) => kind !== "gone").map(({ text }) => text).join("\n"), b);
}
assert.deepEqual(diffLines("a\nb\nc", "a\nx\nc").map(({ kind }) => kind), ["same", "gone", "new", "same"]);

// What a master's log tells.
const at = (second, text) => ({ time: second * 1000, text: `2026-11-18T06:57:0${second}Z  INFO ${text}` });
const told = eventsOf([at(1, "worker 0a joined: slot 0, process 7"), at(2, "worker 0b joined: slot 1, process 8"), at(3, "worker 0b: slot 1, process 8 was killed: signal 9"),
  at(3, "worker 0b dropped: its process was killed"), at(4, "generation 1.2 began: 1 member, from version 3 of worker 0a, after 12 ms"), at(5, "worker 0c joined: slot 1, process 9"), { text: "no time" }]);
assert.deepEqual(told.map(({ kind }) => kind), ["join", "join", "kill", "drop", "generation", "join"]);
assert.deepEqual(stretchesOf(told), [{ lane: "worker-0", from: 1000, to: null, lost: false }, { lane: "worker-1", from: 2000, to: 3000, lost: true }, { lane: "worker-1", from: 5000, to: null, lost: false }]);
assert.equal(told[4].members, 1);
const steady = Array.from({ length: 101 }, (_, step) => step / 10);
assert.equal(goodput(steady).share, 1);
assert.equal(Number(goodput([...steady, 20]).share.toFixed(3)), Number((1 - 9.9 / 20).toFixed(3)));
assert.equal(goodput([1, 2]), null);

// What is infinite, also as MLflow's clients send it, does not make the rest of a curve a line.
assert.deepEqual([null, undefined, NaN, Infinity, -Infinity, 1.7976931348623157e308, 1e300, 0, -5].map(isGap), [true, true, true, true, true, true, false, false, false]);
assert.deepEqual(band([{ xs: [0, 1, 2], ys: [1, 1.7976931348623157e308, 3] }], 2).ys, [1, 3]);

// Importance: all of it, none of it, and what is not monotone.
const many = Array.from({ length: 200 }, (_, trial) => trial / 200);
assert(importance(many, many) > 0.9);
assert(importance(many, many.map((x) => Math.abs(x - 0.5))) > 0.7, "a valley is seen");
assert(importance(many, many.map(() => random())) < 0.15);
assert.equal(importance([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]), 0);
assert.deepEqual(bins([1, 1, 1, 2], 3), [0, 0, 0, 1]);
// Numbers stand where they are, words in the order of their list.
assert.deepEqual([3, undefined, 1].map(axisOf([3, undefined, 1])), [3, null, 1]);
assert.deepEqual(["sgd", "adam", undefined, 1].map(axisOf(["sgd", "adam", 1])), [2, 1, null, 0]);
assert.deepEqual(rungsOf([{ length: 9 }, { length: 3 }, { length: null }, { length: 0 }, { length: 3 }]), [3, 9]);

// One metric by another.
assert.deepEqual(byMetric({ steps: [1, 2, 3], values: [10, 20, null] }, { steps: [1, 3], values: [5, 7] }), { xs: [5], ys: [10], unsorted: true });
assert.deepEqual(byMetric({ steps: [1, 2, 3], values: [10, 20, 30] }, { steps: [1, 2, 3], values: [3, 2, 1] }), { xs: [3, 2, 1], ys: [10, 20, 30], unsorted: true });
assert.deepEqual(nearChanges([..."abcdefgh"].map((text, place) => ({ kind: place === 7 ? "new" : "same", text })), 1), [{ kind: "left", count: 6 }, { kind: "same", text: "g" }, { kind: "new", text: "h" }]);
// A table of runs with very many metrics asks for those that it shows, is sorted by, or looks for.
const few = { columns: ["name", "loss"], sort: "-m3", filter: "m41 < 2 and state = running" };
assert.equal(neededMetrics(["loss", "m1"], few), null);
assert.deepEqual(neededMetrics(["loss", ...Array.from({ length: 60 }, (_, at) => `m${at}`)], few), ["loss", "m3", "m4", "m41"]);
