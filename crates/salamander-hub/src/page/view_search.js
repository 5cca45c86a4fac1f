// An experiment and its trials: learning curves, parallel coordinates, scatter, how hyperparameters and metric go
// together, a time line, a table.

import { act, all, get } from "./api.js";
import { button, fill, h, select } from "./dom.js";
import { color } from "./chart.js";
import { rankCorrelation, ticks } from "./curve.js";
import { duration, number, time } from "./format.js";
import { sortBy, Table } from "./table.js";
import { curveCharts } from "./view_compare.js";
import { hparamColumns, metricColumns, ownColumns, prepare, state } from "./view_runs.js";

const TOP = 10;

export async function search(body, view) {
  const id = view.parts[0];
  let experiment = await get(`experiments/${encodeURIComponent(id)}`, {}, view.signal);
  let trials = [];
  const [head, curves, parallel, scatter, importance, gantt] = Array.from({ length: 6 }, () => h("div"));
  const table = new Table({ columns: [], label: "trials", mark: (row) => (row.id === experiment.best_run ? "best" : null), sorted: (sort) => {
    view.set({ sort });
    drawTable();
  } });
  const value = (trial) => trial.best ?? trial.metrics[`validation/${experiment.metric}`] ?? null;
  const better = (a, b) => (experiment.smaller_is_better ? value(a) - value(b) : value(b) - value(a));
  const brushed = () => {
    const brushes = JSON.parse(view.params.brush ?? "{}");
    return trials.filter((trial) => Object.entries(brushes).every(([name, [from, to]]) => {
      const at = name === "metric" ? value(trial) : axisValue(trial.flat[name], trials.map((one) => one.flat[name]));
      return at !== null && at >= from && at <= to;
    }));
  };
  const drawTable = () => {
    const columns = [...ownColumns(view).filter(({ key }) => ["name", "state", "progress", "best", "duration"].includes(key)),
      { key: "length", title: "length", num: true, value: (row) => row.length }, ...hparamColumns(trials),
      ...metricColumns(trials).filter(({ key }) => key.startsWith("validation/")), { key: "reason", title: "why", value: (row) => row.reason }];
    table.columns = columns;
    const sort = view.params.sort ?? (experiment.smaller_is_better ? "best" : "-best");
    table.set(sortBy(brushed(), columns, sort), sort);
  };
  const drawHead = () => fill(head, h("h1", {}, experiment.name, " ", state(experiment)),
    experiment.description && h("p", {}, experiment.description),
    h("p", { class: "soft" }, `${experiment.kind} of ${experiment.trials} trials in ${experiment.folder}`,
      experiment.best === null ? "" : `; best ${experiment.metric} ${number(experiment.best)} by run `,
      experiment.best_run && h("a", { href: view.link(["run", experiment.best_run]) }, experiment.best_run)),
    experiment.reason && h("p", { class: "error" }, experiment.reason),
    actions(experiment, async () => {
      await load();
      drawRest();
    }));
  const load = async () => {
    experiment = await get(`experiments/${encodeURIComponent(id)}`, {}, view.signal);
    trials = (await all("runs", { experiment: id, metrics: "*", archived: "true", sort: "trial" }, null, view.signal)).map((run) => prepare({ ...run }));
  };
  await load();
  fill(body, head, h("h2", {}, `Learning curves of the best ${TOP}`), curves, h("h2", {}, "Parallel coordinates"), parallel,
    h("h2", {}, "Scatter"), scatter, h("h2", {}, "Hyperparameters and the metric"), importance, h("h2", {}, "Time line"), gantt, h("h2", {}, "Trials"), table.element);
  const top = () => brushed().filter((trial) => value(trial) !== null).sort(better).slice(0, TOP);
  const usual = (name) => name === "loss" || name === `validation/${experiment.metric}`;
  const charts = curveCharts(curves, view, top().length ? top() : trials.slice(0, TOP), { usual });
  const drawRest = () => {
    drawHead();
    drawParallel(parallel, { view, trials, value, name: experiment.metric ?? "metric", brushed, changed: () => {
      drawTable();
      charts.update(top());
      drawScatter(scatter, { view, trials: brushed(), value, name: experiment.metric ?? "metric", redraw: drawRest });
    } });
    drawScatter(scatter, { view, trials: brushed(), value, name: experiment.metric ?? "metric", redraw: drawRest });
    drawImportance(importance, trials, value);
    drawGantt(gantt, trials, view);
    drawTable();
  };
  drawRest();
  view.onChange(async () => {
    await load();
    drawRest();
    charts.update(top().length ? top() : trials.slice(0, TOP));
  }, 1000);
}

/// What can be done with an experiment; whoever clicks is asked first.
function actions(experiment, changed) {
  const path = `experiments/${experiment.id}`;
  const problem = h("span", { class: "error", role: "alert" });
  const doing = async (call) => {
    problem.textContent = "";
    try {
      await call();
      await changed();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const over = ["completed", "canceled", "failed"].includes(experiment.state);
  // The hub ends and pauses what it has started, and nothing else.
  const wanted = experiment.origin === "hub" && !over ? [experiment.state === "paused" ? "activate" : "pause", "cancel", "kill"] : [];
  const asked = [...wanted, experiment.archived ? "unarchive" : "archive"];
  const label = h("input", { "aria-label": "new label", placeholder: "label", size: "12" });
  return h("div", { class: "bar" },
    asked.map((name) => button(name, () => {
      if (window.confirm(`${name} experiment ${experiment.id}, ${experiment.name}?`)) doing(() => act("POST", `${path}/${name}`));
    })),
    experiment.labels.map((name) => h("span", { class: "label" }, name, " ",
      button("\u00d7", () => doing(() => act("PATCH", path, { remove_labels: [name] })), { "aria-label": `remove label ${name}` }))),
    h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        if (label.value.trim()) doing(() => act("PATCH", path, { add_labels: [label.value.trim()] }));
      },
    }, label, " ", h("button", {}, "add label")), problem);
}

function varied(trials) {
  const names = new Set(trials.flatMap((trial) => Object.keys(trial.flat)));
  return [...names].sort().filter((name) => new Set(trials.map((trial) => String(trial.flat[name]))).size > 1);
}

/// Words have the places of their sorted list.
function axisValue(one, list) {
  if (one === undefined || one === null) return null;
  if (list.every((value) => typeof value === "number" || value === undefined)) return one;
  return [...new Set(list.map(String))].sort().indexOf(String(one));
}

function canvasOf(element, width, height, label) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": label });
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  const style = getComputedStyle(document.body);
  return { canvas, pen, soft: style.getPropertyValue("--soft"), line: style.getPropertyValue("--line") };
}

/// Spread over decades: shown as logarithms.
function isWide(values) {
  const numbers = values.filter((value) => typeof value === "number");
  return numbers.length > 2 && numbers.every((value) => value > 0) && Math.max(...numbers) / Math.min(...numbers) > 50;
}

function drawParallel(element, { view, trials, value, name, brushed, changed }) {
  const axes = [...varied(trials).map((hparam) => {
    const list = trials.map((trial) => trial.flat[hparam]);
    const words = list.every((one) => typeof one === "number" || one === undefined) ? null : [...new Set(list.map(String))].sort();
    return { key: hparam, title: hparam, words, of: (trial) => axisValue(trial.flat[hparam], list) };
  }), { key: "metric", title: name, words: null, of: value }];
  for (const axis of axes) {
    const numbers = trials.map(axis.of).filter((one) => one !== null && Number.isFinite(one));
    axis.log = !axis.words && isWide(numbers);
    const f = axis.log ? Math.log10 : (one) => one;
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    axis.share = (one) => (high === low ? 0.5 : (f(one) - f(low)) / (f(high) - f(low)));
    axis.back = (share) => (axis.log ? 10 ** (f(low) + share * (f(high) - f(low))) : low + share * (high - low));
    Object.assign(axis, { low, high });
  }
  if (trials.length < 2 || axes.length < 2) {
    fill(element, h("p", { class: "soft" }, "There is nothing to compare: trials differ in no hyperparameter yet."));
    return;
  }
  const width = Math.max(element.clientWidth - 20 || 700, axes.length * 90);
  const height = 280;
  const { canvas, pen, soft } = canvasOf(element, width, height, `parallel coordinates of ${trials.length} trials`);
  const x = (at) => 50 + (at * (width - 100)) / (axes.length - 1);
  const y = (share) => height - 24 - share * (height - 60);
  canvas.dataset.axes = JSON.stringify(axes.map((axis, at) => ({ key: axis.key, x: x(at), top: y(1), bottom: y(0) })));
  const brushes = () => JSON.parse(view.params.brush ?? "{}");
  const draw = (dragged) => {
    pen.clearRect(0, 0, width, height);
    const kept = new Set(brushed().map((trial) => trial.id));
    canvas.dataset.kept = String(kept.size);
    const ordered = [...trials].sort((a, b) => kept.has(a.id) - kept.has(b.id));
    for (const trial of ordered) {
      const share = value(trial) === null ? null : axes[axes.length - 1].share(value(trial));
      pen.globalAlpha = kept.has(trial.id) ? 0.8 : 0.08;
      pen.strokeStyle = share === null ? soft : `hsl(${220 - 200 * share} 70% 50%)`;
      pen.lineWidth = 1.3;
      pen.beginPath();
      let move = true;
      axes.forEach((axis, at) => {
        const one = axis.of(trial);
        if (one === null || !Number.isFinite(one)) {
          move = true;
          return;
        }
        move ? pen.moveTo(x(at), y(axis.share(one))) : pen.lineTo(x(at), y(axis.share(one)));
        move = false;
      });
      pen.stroke();
    }
    pen.globalAlpha = 1;
    axes.forEach((axis, at) => {
      pen.strokeStyle = pen.fillStyle = soft;
      pen.beginPath();
      pen.moveTo(x(at), y(0));
      pen.lineTo(x(at), y(1));
      pen.stroke();
      pen.textAlign = "center";
      pen.fillText(axis.title, x(at), 14, 110);
      pen.fillText(axis.words ? axis.words.at(-1) ?? "" : number(axis.high, 3), x(at), y(1) - 5, 90);
      pen.fillText(axis.words ? axis.words[0] : number(axis.low, 3), x(at), height - 8, 90);
      const brush = dragged?.at === at ? dragged.range : brushes()[axis.key];
      if (!brush) return;
      pen.globalAlpha = 0.3;
      pen.fillStyle = "#e0792b";
      const [low, high] = brush.map((one) => y(Math.max(0, Math.min(1, axis.share(one)))));
      pen.fillRect(x(at) - 7, high, 14, low - high);
      pen.globalAlpha = 1;
    });
  };
  let drag = null;
  const place = (event) => {
    const rect = canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  };
  const shareAt = (pixel) => Math.max(0, Math.min(1, (height - 24 - pixel) / (height - 60)));
  canvas.addEventListener("pointerdown", (event) => {
    const [px, py] = place(event);
    const at = axes.findIndex((_, index) => Math.abs(x(index) - px) < 20);
    if (at >= 0) drag = { at, from: py };
    canvas.setPointerCapture(event.pointerId);
  });
  const range = (py) => [Math.max(drag.from, py), Math.min(drag.from, py)].map((pixel) => axes[drag.at].back(shareAt(pixel)));
  canvas.addEventListener("pointermove", (event) => {
    if (drag) draw({ at: drag.at, range: range(place(event)[1]) });
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const py = place(event)[1];
    const all = brushes();
    if (Math.abs(py - drag.from) < 4) delete all[axes[drag.at].key];
    else all[axes[drag.at].key] = range(py);
    drag = null;
    view.set({ brush: Object.keys(all).length ? JSON.stringify(all) : null });
    draw();
    changed();
  });
  draw();
  fill(element, h("div", { class: "parallel" }, canvas), h("p", { class: "note" }, "Drag along an axis to choose trials; a click on it gives all back."));
}

function drawScatter(element, { view, trials, value, name, redraw }) {
  const hparams = varied(trials);
  if (!hparams.length) {
    fill(element, h("p", { class: "soft" }, "Trials differ in no hyperparameter."));
    return;
  }
  const by = hparams.includes(view.params.scatter) ? view.params.scatter : hparams[0];
  const list = trials.map((trial) => trial.flat[by]);
  const points = trials.map((trial) => ({ trial, x: axisValue(trial.flat[by], list), y: value(trial) })).filter(({ x, y }) => x !== null && y !== null && Number.isFinite(y));
  const [width, height] = [Math.min(640, Math.max(280, element.clientWidth - 20 || 600)), 260];
  const { canvas, pen, soft, line } = canvasOf(element, width, height, `${name} by ${by}`);
  const f = isWide(points.map(({ x }) => x)) ? Math.log10 : (one) => one;
  const ends = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? [low - 0.5, high + 0.5] : [low - (high - low) * 0.04, high + (high - low) * 0.04];
  };
  const [[x0, x1], [y0, y1]] = [ends(points.map(({ x }) => f(x))), ends(points.map(({ y }) => y))];
  const px = (one) => 60 + ((f(one) - x0) / (x1 - x0)) * (width - 80);
  const py = (one) => height - 30 - ((one - y0) / (y1 - y0)) * (height - 50);
  pen.strokeStyle = line;
  pen.fillStyle = soft;
  pen.textAlign = "right";
  for (const tick of ticks(y0, y1, 5)) {
    pen.beginPath();
    pen.moveTo(60, py(tick));
    pen.lineTo(width - 20, py(tick));
    pen.stroke();
    pen.fillText(number(tick, 4), 54, py(tick) + 4);
  }
  pen.textAlign = "center";
  for (const tick of ticks(x0, x1, 5)) pen.fillText(number(f === Math.log10 ? 10 ** tick : tick, 3), 60 + ((tick - x0) / (x1 - x0)) * (width - 80), height - 12);
  points.forEach(({ trial, x, y }) => {
    pen.fillStyle = color(trial.trial % 10);
    pen.beginPath();
    pen.arc(px(x), py(y), 4, 0, 7);
    pen.fill();
  });
  const tip = h("p", { class: "note", role: "status" }, `${name} (up) by ${by}`);
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect();
    const far = ({ x, y }) => Math.hypot(px(x) - event.clientX + rect.left, py(y) - event.clientY + rect.top);
    const near = points.reduce((best, one) => (best === null || far(one) < far(best) ? one : best), null);
    if (near) tip.textContent = `${near.trial.name}: ${by} ${near.trial.flat[by]}, ${name} ${number(near.y)}`;
  });
  fill(element, select("by", hparams.map((one) => [one, one]), by, (chosen) => {
    view.set({ scatter: chosen });
    redraw();
  }), h("div", { class: "scatter" }, canvas), tip);
}

function drawImportance(element, trials, value) {
  const known = trials.filter((trial) => value(trial) !== null && Number.isFinite(value(trial)));
  const rows = varied(known).map((name) => {
    const list = known.map((trial) => trial.flat[name]);
    const have = known.filter((trial) => trial.flat[name] !== undefined);
    const rank = rankCorrelation(have.map((trial) => axisValue(trial.flat[name], list)), have.map(value));
    return { name, rank };
  }).sort((a, b) => Math.abs(b.rank) - Math.abs(a.rank));
  if (known.length < 3 || !rows.length) {
    fill(element, h("p", { class: "soft" }, "At least three measured trials are needed."));
    return;
  }
  fill(element, h("table", { "aria-label": "rank correlation" }, h("tbody", {}, rows.map(({ name, rank }) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, rank.toFixed(3)),
    h("td", {}, h("div", { class: "stack", style: { width: "240px" }, "aria-hidden": "true" }, h("div", { style: { width: `${Math.abs(rank) * 100}%`, background: rank < 0 ? "#3d7bd9" : "#e0792b" } }))))))),
  h("p", { class: "note" }, `Rank correlation with the metric over ${known.length} trials: 1 or -1 where one only rises or falls with the other, 0 where they have nothing to do with each other.`));
}

function drawGantt(element, trials, view) {
  const known = trials.filter((trial) => trial.started);
  if (!known.length) {
    fill(element, h("p", { class: "soft" }, "No trial has started."));
    return;
  }
  const end = (trial) => trial.ended ?? Date.now();
  const [from, to] = [Math.min(...known.map((trial) => trial.started)), Math.max(...known.map(end))];
  const row = known.length > 60 ? 5 : 14;
  const [width, height] = [Math.max(280, element.clientWidth - 20 || 600), known.length * row + 24];
  const { canvas, pen, soft } = canvasOf(element, width, height, `time line of ${known.length} trials`);
  const x = (at) => 4 + ((at - from) / Math.max(1, to - from)) * (width - 8);
  const style = getComputedStyle(document.body);
  const paint = { completed: "--good", failed: "--bad", running: "--busy" };
  known.forEach((trial, at) => {
    pen.fillStyle = style.getPropertyValue(paint[trial.state] ?? "--soft");
    pen.fillRect(x(trial.started), at * row + 1, Math.max(2, x(end(trial)) - x(trial.started)), row - 2);
  });
  pen.fillStyle = soft;
  pen.fillText(time(from), 4, height - 6);
  pen.textAlign = "right";
  pen.fillText(duration(to - from), width - 4, height - 6);
  const tip = h("p", { class: "note", role: "status" }, "A bar is the last stretch of a trial: from its start or resumption to its end.");
  canvas.addEventListener("pointermove", (event) => {
    const trial = known[Math.floor((event.clientY - canvas.getBoundingClientRect().top) / row)];
    if (trial) tip.textContent = `${trial.name}: ${trial.state}, ${duration(end(trial) - trial.started)}${trial.reason ? `, ${trial.reason}` : ""}`;
  });
  canvas.addEventListener("click", (event) => {
    const trial = known[Math.floor((event.clientY - canvas.getBoundingClientRect().top) / row)];
    if (trial) location.hash = view.link(["run", trial.id]);
  });
  fill(element, h("div", { class: "gantt" }, canvas), tip);
}
