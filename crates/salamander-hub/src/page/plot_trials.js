// When trials ran and how far they were let go, and which hyperparameters mattered.

import { canvasOf, placeOf, tipLine, widthOf } from "./canvas.js";
import { rankCorrelation } from "./curve.js";
import { fill, h } from "./dom.js";
import { duration, number, time } from "./format.js";
import { axisOf, importance, rungsOf, varied } from "./trials.js";

/// Which hyperparameters matter: what each explains alone, and which way it goes.
export function drawImportance(element, trials, value) {
  const known = trials.filter((trial) => value(trial) !== null && Number.isFinite(value(trial)));
  const rows = varied(known).map((name) => {
    const have = known.filter((trial) => trial.flat[name] !== undefined);
    const list = have.map((trial) => trial.flat[name]);
    const values = list.map(axisOf(list));
    return { name, share: importance(values, have.map(value)), rank: rankCorrelation(values, have.map(value)) };
  }).sort((a, b) => b.share - a.share || Math.abs(b.rank) - Math.abs(a.rank));
  if (known.length < 4 || !rows.length) {
    fill(element, h("p", { class: "soft" }, "At least four measured trials that differ are needed."));
    return;
  }
  const bar = (share) => h("div", { class: "stack", style: { width: "min(260px, 34vw)" }, "aria-hidden": "true" }, h("div", { style: { width: `${share * 100}%`, background: "var(--accent)" } }));
  const way = (rank) => (Math.abs(rank) < 0.2 ? "" : rank > 0 ? "\u2197 rises with it" : "\u2198 falls with it");
  fill(element, h("div", { class: "scroll" }, h("table", { "aria-label": "importance" },
    h("thead", {}, h("tr", {}, ["hyperparameter", "importance", "", "rank correlation", "the metric"].map((title) => h("th", { scope: "col", class: ["importance", "rank correlation"].includes(title) ? "num" : null }, title)))),
    h("tbody", {}, rows.map(({ name, share, rank }) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, share.toFixed(2)), h("td", {}, bar(share)), h("td", { class: "num" }, rank.toFixed(2)), h("td", {}, way(rank))))))),
  h("p", { class: "note" }, `Importance: the share of the order of ${known.length} trials that a hyperparameter explains alone (analysis of variance over bins of its values, less what chance gives).`));
}

/// A row for each trial, from its start to its end, with a tick for each validation; marks where rungs end.
export function drawGantt(element, { trials, marks, view, best }) {
  const known = trials.filter((trial) => trial.started);
  if (!known.length) {
    fill(element, h("p", { class: "soft" }, "No trial has started."));
    return;
  }
  // What a trial measured has its time, also where its folder was touched later.
  const spans = known.map((trial) => {
    const own = marks.get(trial.id) ?? [];
    const from = Math.min(trial.started, ...own.map(({ at }) => at));
    return { trial, own, from, to: Math.max(from, trial.ended ?? Date.now()) };
  });
  const [from, to] = [Math.min(...spans.map((span) => span.from)), Math.max(...spans.map((span) => span.to))];
  const row = known.length > 60 ? 6 : 16;
  const [width, left] = [widthOf(element), known.length > 60 ? 8 : 70];
  const height = known.length * row + 26;
  const { canvas, pen, soft, text, good, bad, busy, panel, accent } = canvasOf(width, height, `time line of ${known.length} trials`);
  const x = (at) => left + ((at - from) / Math.max(1, to - from)) * (width - left - 10);
  const paint = { completed: good, failed: bad, running: busy };
  const rungs = rungsOf(trials);
  pen.textBaseline = "middle";
  spans.forEach(({ trial, own, ...span }, at) => {
    const y = at * row;
    if (row > 10) {
      pen.fillStyle = trial.id === best ? accent : soft;
      pen.textAlign = "right";
      pen.fillText(`trial ${trial.trial}`, left - 8, y + row / 2, left - 8);
    }
    pen.fillStyle = paint[trial.state] ?? soft;
    pen.globalAlpha = 0.85;
    pen.fillRect(x(span.from), y + 2, Math.max(3, x(span.to) - x(span.from)), row - 4);
    pen.globalAlpha = 1;
    pen.fillStyle = panel;
    for (const mark of own.slice(-200)) pen.fillRect(x(mark.at) - 0.75, y + 2, 1.5, row - 4);
    if (row > 10 && rungs.length > 1 && rungs.length <= 12 && trial.length > 0) {
      pen.fillStyle = text;
      pen.textAlign = "left";
      pen.fillText(`rung ${rungs.indexOf(trial.length)}`, Math.min(x(span.to) + 5, width - 46), y + row / 2, 44);
    }
  });
  canvas.dataset.trials = String(known.length);
  canvas.dataset.marks = String(spans.reduce((sum, { own }) => sum + own.length, 0));
  pen.fillStyle = soft;
  pen.textAlign = "left";
  pen.fillText(time(from), left, height - 9);
  pen.textAlign = "right";
  pen.fillText(duration(to - from), width - 10, height - 9);
  const tip = tipLine("A bar is a trial, ticks in it are its validations; a click opens it.");
  const at = (event) => spans[Math.floor(placeOf(canvas, event)[1] / row)];
  canvas.addEventListener("pointermove", (event) => {
    const span = at(event);
    if (!span) return;
    const [px] = placeOf(canvas, event);
    const near = span.own.reduce((found, mark) => (Math.abs(x(mark.at) - px) < 6 ? mark : found), null);
    const { trial } = span;
    tip.textContent = near ? `${trial.name}: ${number(near.value)} at step ${number(near.step)}`
      : `${trial.name}: ${trial.state}, ${duration(span.to - span.from)}, length ${number(trial.length)}${trial.reason ? `, ${trial.reason}` : ""}`;
  });
  canvas.addEventListener("click", (event) => {
    const span = at(event);
    if (span) location.hash = view.link(["run", span.trial.id]);
  });
  fill(element, h("div", { class: "drawn gantt" }, canvas), tip);
}

/// How many trials came how far, and the best of them.
export function drawRungs(element, { trials, value, better, view }) {
  const rungs = rungsOf(trials);
  if (rungs.length < 2) {
    fill(element);
    return;
  }
  const most = trials.length;
  const row = (length, at) => {
    const reached = trials.filter((trial) => (trial.length ?? -1) >= length);
    const stopped = trials.filter((trial) => trial.length === length);
    const best = stopped.filter((trial) => value(trial) !== null).sort(better)[0];
    return h("tr", {}, h("th", { scope: "row" }, `rung ${at}`), h("td", { class: "num" }, number(length)), h("td", { class: "num" }, number(reached.length)),
      h("td", {}, h("div", { class: "stack", style: { width: "min(220px, 30vw)" }, "aria-hidden": "true" }, h("div", { style: { width: `${(reached.length / most) * 100}%`, background: "var(--busy)" } }))),
      h("td", { class: "num" }, number(stopped.length)), h("td", {}, best ? h("a", { href: view.link(["run", best.id]) }, `${number(value(best))} by trial ${best.trial}`) : ""));
  };
  fill(element, h("h3", {}, "Rungs"), h("div", { class: "scroll" }, h("table", { "aria-label": "rungs" },
    h("thead", {}, h("tr", {}, ["rung", "length", "trials that came so far", "", "ended here", "best that ended here"].map((title, at) => h("th", { scope: "col", class: [1, 2, 4].includes(at) ? "num" : null }, title)))),
    h("tbody", {}, rungs.slice(0, 40).map(row)))));
}
