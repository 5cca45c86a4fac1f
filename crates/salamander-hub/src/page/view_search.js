// An experiment and its trials: learning curves, parallel coordinates, scatter, heat map, importance of
// hyperparameters, a time line with rungs, a table.

import { all, get } from "./api.js";
import { experimentActions } from "./actions.js";
import { button, fill, h, select } from "./dom.js";
import { number } from "./format.js";
import { drawParallel } from "./plot_parallel.js";
import { drawHeat, drawScatter } from "./plot_scatter.js";
import { drawGantt, drawImportance, drawRungs } from "./plot_trials.js";
import { sortBy, Table } from "./table.js";
import { axisOf } from "./trials.js";
import { curveCharts } from "./view_compare.js";
import { hparamColumns, meter, metricColumns, metricNames, ownColumns, prepare, saveTable, state } from "./view_runs.js";

const TOP = 10;
/// Trials whose validations are marked on the time line.
const MARKED = 200;

export async function search(body, view) {
  const id = view.parts[0];
  const path = `experiments/${encodeURIComponent(id)}`;
  let experiment = await get(path, {}, view.signal);
  let [trials, marks, shownActions] = [[], new Map(), ""];
  const [head, doing, curves, parallel, scatter, heat, importance, gantt, rungs] = Array.from({ length: 9 }, () => h("div"));
  const table = new Table({ columns: [], label: "trials", mark: (row) => (row.id === experiment.best_run ? "best" : null), sorted: (sort) => {
    view.set({ sort });
    drawTable();
  } });
  const value = (trial) => trial.best ?? trial.metrics[`validation/${experiment.metric}`] ?? null;
  const better = (a, b) => (experiment.smaller_is_better ? value(a) - value(b) : value(b) - value(a));
  const brushed = () => {
    const brushes = Object.entries(JSON.parse(view.params.brush ?? "{}")).map(([name, [from, to]]) => {
      const place = name === "metric" ? null : axisOf(trials.map((one) => one.flat[name]));
      return { from, to, of: (trial) => (place ? place(trial.flat[name]) : value(trial)) };
    });
    return trials.filter((trial) => brushes.every(({ from, to, of }) => of(trial) !== null && of(trial) >= from && of(trial) <= to));
  };
  const drawTable = () => {
    const columns = [...ownColumns(view).filter(({ key }) => ["name", "state", "progress", "best", "duration"].includes(key)),
      { key: "length", title: "length", num: true, value: (row) => row.length }, ...hparamColumns(trials),
      ...metricColumns(metricNames(trials)).filter(({ key }) => key.startsWith("validation/")), { key: "reason", title: "why", value: (row) => row.reason }];
    table.columns = columns;
    const sort = view.params.sort ?? (experiment.smaller_is_better ? "best" : "-best");
    table.set(sortBy(brushed(), columns, sort), sort);
  };
  const load = async () => {
    experiment = await get(path, {}, view.signal);
    trials = (await all("runs", { experiment: id, metrics: "*", archived: "true", sort: "trial" }, null, view.signal)).map((run) => prepare({ ...run }));
    marks = await marksOf(trials.slice(0, MARKED), experiment.metric, view.signal);
  };
  const drawHead = () => {
    fill(head, h("h1", {}, experiment.name, " ", state(experiment)), experiment.description && h("p", {}, experiment.description),
      h("p", { class: "soft" }, `${whatItIs(experiment)} in ${experiment.folder}`,
        experiment.best === null ? "" : `; best ${experiment.metric} ${number(experiment.best)} by run `,
        experiment.best_run && h("a", { href: view.link(["run", experiment.best_run]) }, experiment.best_run),
        experiment.progress !== null && experiment.progress < 1 && [" ", meter(experiment.progress, ` ${Math.round(experiment.progress * 100)} %`)]),
      experiment.reason && h("p", { class: experiment.state === "failed" ? "error" : "soft" }, experiment.reason));
    const key = JSON.stringify([experiment.state, experiment.labels, experiment.archived, experiment.priority]);
    if (key === shownActions) return;
    shownActions = key;
    fill(doing, experimentActions(experiment, async () => {
      await load();
      drawRest();
    }));
  };
  await load();
  const topCount = () => Math.max(1, Math.min(100, Number(view.params.top ?? TOP)));
  const top = () => {
    const measured = brushed().filter((trial) => value(trial) !== null).sort(better).slice(0, topCount());
    return measured.length ? measured : trials.slice(0, topCount());
  };
  const compareAll = h("a", { class: "button" }, "Compare all");
  const section = (title, ...content) => h("section", {}, h("h2", {}, title), content);
  const topChoice = select("best", ["5", "10", "20", "50"].map((one) => [one, one]), String(topCount()), (chosen) => {
    view.set({ top: chosen === String(TOP) ? null : chosen });
    charts.update(top());
  });
  // What compares trials; the second one may come while the page is open.
  const comparing = [section("Parallel coordinates", parallel), h("div", { class: "two" }, section("Scatter", scatter), section("Heat map", heat)),
    section("Importance of hyperparameters", importance)];
  fill(body, head, doing, section("Learning curves", h("div", { class: "bar" }, topChoice), curves), comparing, section("Time line", gantt, rungs),
    section("Trials", h("div", { class: "bar" }, button("CSV", () => saveTable(experiment.name, table.columns, table.rows)),
      compareAll), table.element));
  const usual = (name) => name === "loss" || name === `validation/${experiment.metric}`;
  const charts = curveCharts(curves, view, top(), { usual });
  const name = experiment.metric ?? "metric";
  const drawPoints = () => {
    const smaller = experiment.smaller_is_better;
    drawScatter(scatter, { view, trials: brushed(), value, name, redraw: drawPoints });
    drawHeat(heat, { view, trials: brushed(), value, name, smaller, redraw: drawPoints });
  };
  const drawRest = () => {
    drawHead();
    const many = trials.length > 1;
    for (const part of [topChoice, ...comparing]) part.hidden = !many;
    compareAll.href = view.link(["compare"], { runs: trials.slice(0, 50).map((trial) => trial.id).join(",") });
    if (many) {
      drawParallel(parallel, { view, trials, value, name, brushed, smaller: experiment.smaller_is_better, changed: () => {
        drawTable();
        charts.update(top());
        drawPoints();
      } });
      drawPoints();
      drawImportance(importance, trials, value);
      drawRungs(rungs, { trials, value, better, view });
    }
    drawGantt(gantt, { trials, marks, view, best: experiment.best_run });
    drawTable();
  };
  drawRest();
  view.onChange(async (change) => {
    const own = (list) => !list || list.some((one) => String(one).split(".")[0] === String(id));
    if (!own(change.runs) && !own(change.experiments)) return;
    await load();
    // A drag along an axis is not taken away from under the pointer.
    if (!body.querySelector("canvas:active")) drawRest();
    charts.update(top());
  }, 1000);
}

function whatItIs({ kind, trials }) {
  if (kind === "search") return `search of ${trials} trials`;
  return kind === "mlflow" ? `${trials === 1 ? "1 run" : `${trials} runs`} of clients of MLflow` : "one run";
}

/// When each trial was validated, and what came of it.
async function marksOf(trials, metric, signal) {
  const marks = new Map();
  if (!trials.length || !metric) return marks;
  const runs = trials.map((trial) => trial.id).join(",");
  const found = await get("curves", { runs, metrics: `validation/${metric},time`, points: 1000 }, signal);
  for (const { run, curves } of found) {
    const [measured, times] = [curves.find((curve) => curve.metric !== "time"), curves.find((curve) => curve.metric === "time")];
    if (!measured || !times) continue;
    const at = new Map(times.steps.map((step, place) => [step, times.values[place]]));
    const own = measured.steps.map((step, place) => ({ step, value: measured.values[place], at: (at.get(step) ?? NaN) * 1000 }));
    marks.set(run, own.filter((mark) => Number.isFinite(mark.at)));
  }
  return marks;
}
