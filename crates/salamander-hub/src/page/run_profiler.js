// Where the time of each process goes, and what it takes of its machine.

import { get } from "./api.js";
import { canvasOf, placeOf, tipLine, widthOf } from "./canvas.js";
import { Chart, color } from "./chart.js";
import { fill, h, select } from "./dom.js";
import { bytes, duration, number } from "./format.js";

export const KINDS = [["compute", "#3d7bd9"], ["exchange", "#e0792b"], ["data", "#2f9e63"], ["test", "#8a63c9"], ["save", "#c9a227"]];
const NAMES = { test: "validation" };
const HEIGHT = 54;

/// Sums of the columns of a process.
function totals({ columns }) {
  const sum = (name) => (columns[name] ?? []).reduce((all, value) => all + (value ?? 0), 0);
  const most = (name) => (columns[name] ?? []).reduce((all, value) => Math.max(all, value ?? 0), 0);
  const out = { seconds: sum("seconds"), cpu: sum("cpu"), memory: most("memory"), steps: most("steps"), received: sum("received"), sent: sum("sent") };
  for (const [kind] of KINDS) out[kind] = sum(kind);
  return out;
}

export async function profiler(area, view, own, path) {
  const [head, strips, charts] = [h("div"), h("div"), h("div", { class: "cards" })];
  const drawn = new Map();
  view.signal.addEventListener("abort", () => drawn.forEach((chart) => chart.close()));
  const draw = async () => {
    const [{ processes }, summary] = await Promise.all([get(`${path}/profile`, {}, view.signal), get(`${path}/summary`, {}, view.signal)]);
    const known = processes.filter(({ columns }) => columns.time?.length);
    if (!known.length) {
      fill(area, ofSummary(summary));
      return;
    }
    if (!area.contains(head)) fill(area, h("div", { class: "bar" }, select("x axis", [["time", "time"], ["steps", "step"]], view.params.by ?? "time", (by) => {
      view.set({ by: by === "time" ? null : by });
      draw();
    })), h("div", { class: "legend" }, KINDS.map(([name, paint]) => h("span", {}, h("i", { class: "swatch", style: { background: paint } }), ` ${NAMES[name] ?? name}`)),
    h("span", { class: "soft" }, "the rest is waiting, or work that is not counted")), strips, h("h2", {}, "What processes take"), charts, h("h2", {}, "In all"), head);
    drawStrips(strips, view, known);
    drawCharts(charts, drawn, view, known);
    drawTotals(head, known);
  };
  await draw();
  return draw;
}

/// A strip for each process that trains: of each pixel the share of each kind of work.
function drawStrips(element, view, processes) {
  const by = view.params.by === "steps" ? "steps" : "time";
  const working = processes.filter((one) => KINDS.some(([kind]) => (one.columns[kind] ?? []).some((value) => value > 0)));
  const [from, to] = [Math.min(...working.map((one) => one.columns[by][0] - (by === "time" ? one.columns.seconds[0] : 0))), Math.max(...working.map((one) => one.columns[by].at(-1)))];
  if (!working.length || !(to > from)) {
    fill(element, h("p", { class: "soft" }, "Nothing has been trained yet."));
    return;
  }
  fill(element, h("h2", {}, "Where the time goes, of each rank"), working.map((process) => strip(element, process, { by, from, to })));
}

function strip(element, { process, columns }, { by, from, to }) {
  const [width, left] = [widthOf(element), 82];
  const { canvas, pen, text, soft, raised } = canvasOf(width, HEIGHT, `${process}: ${KINDS.map(([kind]) => `${NAMES[kind] ?? kind} ${number(totals({ columns })[kind], 3)} s`).join(", ")}`);
  const plot = width - left - 12;
  const sums = Array.from({ length: Math.ceil(plot) }, () => new Float64Array(KINDS.length + 1));
  const at = (value) => ((value - from) / (to - from)) * plot;
  for (let line = 0; line < columns.time.length; line += 1) {
    const seconds = columns.seconds[line] || 1e-9;
    const begin = by === "time" ? columns.time[line] - seconds : line ? columns.steps[line - 1] : 0;
    const [first, last] = [Math.max(0, Math.floor(at(begin))), Math.min(sums.length - 1, Math.max(Math.floor(at(begin)), Math.ceil(at(columns[by][line])) - 1))];
    for (let pixel = first; pixel <= last; pixel += 1) {
      KINDS.forEach(([kind], index) => (sums[pixel][index] += columns[kind]?.[line] ?? 0));
      sums[pixel][KINDS.length] += seconds;
    }
  }
  pen.fillStyle = raised;
  pen.fillRect(left, 4, plot, HEIGHT - 10);
  sums.forEach((sum, pixel) => {
    if (!sum[KINDS.length]) return;
    let y = HEIGHT - 6;
    KINDS.forEach(([, paint], index) => {
      const height = Math.min(1, sum[index] / sum[KINDS.length]) * (HEIGHT - 10);
      pen.fillStyle = paint;
      pen.fillRect(left + pixel, Math.max(4, y - height), 1, Math.min(height, y - 4));
      y -= height;
    });
  });
  pen.fillStyle = text;
  pen.textBaseline = "middle";
  pen.fillText(process, 4, HEIGHT / 2 - 4, left - 10);
  canvas.dataset.process = process;
  const tip = h("span", { class: "soft" });
  const all = totals({ columns });
  const spent = KINDS.reduce((sum, [kind]) => sum + all[kind], 0) || 1;
  const usual = KINDS.filter(([kind]) => all[kind] > 0).map(([kind]) => `${NAMES[kind] ?? kind} ${((all[kind] / spent) * 100).toFixed(0)} %`).join(", ");
  tip.textContent = usual;
  canvas.addEventListener("pointermove", (event) => {
    const sum = sums[Math.floor(placeOf(canvas, event)[0] - left)];
    if (!sum?.[KINDS.length]) return;
    tip.textContent = KINDS.map(([kind], index) => `${NAMES[kind] ?? kind} ${((sum[index] / sum[KINDS.length]) * 100).toFixed(0)} %`).join(", ");
  });
  canvas.addEventListener("pointerleave", () => (tip.textContent = usual));
  pen.fillStyle = soft;
  return h("div", { class: "drawn strip" }, canvas, tip);
}

function drawCharts(element, drawn, view, processes) {
  const begin = Math.min(...processes.map((one) => one.columns.time[0]));
  const by = view.params.by === "steps" ? "steps" : "time";
  const rate = (name) => (columns) => columns[name].map((value, at) => (value ?? 0) / (columns.seconds[at] || 1));
  const wanted = [["CPU, processors in use", rate("cpu")], ["Memory, MB", (columns) => columns.memory.map((value) => (value ?? 0) / 1e6)],
    ["Network received, MB/s (of its host or pod)", (columns) => rate("received")(columns).map((value) => value / 1e6)],
    ["Network sent, MB/s (of its host or pod)", (columns) => rate("sent")(columns).map((value) => value / 1e6)],
    ["Seconds of a step", (columns) => columns.seconds.map((seconds, at) => (at && columns.steps[at] > columns.steps[at - 1] ? seconds / (columns.steps[at] - columns.steps[at - 1]) : null))]];
  for (const [title, of] of wanted) {
    if (!drawn.has(title)) {
      const chart = new Chart({ title, height: 200, zoomed: (from, to) => {
        drawn.zoom = from === null ? undefined : { from, to };
        drawCharts(element, drawn, view, drawn.last);
      } });
      drawn.set(title, chart);
      element.append(chart.element);
    }
    const lines = processes.map(({ process, columns }, at) => ({ name: process, color: color(at), xs: by === "steps" ? columns.steps : columns.time.map((value) => value - begin), ys: of(columns), unsorted: by === "steps" }));
    drawn.get(title).set(lines.filter(({ ys }) => ys.some((y) => y)), { xLabel: by === "steps" ? "step" : "seconds since the start", ...drawn.zoom });
  }
  drawn.last = processes;
}

function drawTotals(element, processes) {
  const titles = ["process", ...KINDS.map(([kind]) => NAMES[kind] ?? kind), "processor", "memory at most", "steps"];
  fill(element, h("div", { class: "scroll" }, h("table", { "aria-label": "in all" }, h("thead", {}, h("tr", {}, titles.map((title, at) => h("th", { scope: "col", class: at ? "num" : null }, title)))),
    h("tbody", {}, processes.map((process) => {
      const all = totals(process);
      return h("tr", {}, h("th", { scope: "row" }, process.process), KINDS.map(([kind]) => h("td", { class: "num" }, `${number(all[kind], 4)} s`)),
        h("td", { class: "num" }, `${number(all.cpu, 4)} s`), h("td", { class: "num" }, bytes(all.memory)), h("td", { class: "num" }, number(all.steps)));
    })))));
}

/// Runs of before this was kept have their sums at the end.
function ofSummary(summary) {
  if (!summary?.timings) return h("p", { class: "empty" }, "Nothing is known of where the time went.");
  const kinds = [["compute_s", "compute"], ["exchange_s", "exchange"], ["data_s", "data"], ["test_s", "validation"]];
  const ranks = summary.ranks?.length ? summary.ranks : [summary.timings];
  const longest = Math.max(...ranks.map((rank) => kinds.reduce((sum, [key]) => sum + (rank[key] ?? 0), 0)), 1e-9);
  return [h("p", {}, `wall time ${duration(summary.timings.wall_s * 1000)}`), h("div", { class: "bars" }, ranks.map((rank, at) => h("div", {},
    h("div", { class: "soft" }, `rank ${at}: `, kinds.map(([key, name]) => `${name} ${number(rank[key], 3)} s`).join(", ")),
    h("div", { class: "stack", "aria-hidden": "true" }, kinds.map(([key], index) => h("div", { style: { width: `${((rank[key] ?? 0) / longest) * 100}%`, background: KINDS[index][1] } })))))), tipLine("Sums of the whole run.")];
}
