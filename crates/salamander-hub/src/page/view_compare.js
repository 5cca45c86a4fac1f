// Many runs side by side: their curves, and what they differ in.

import { get } from "./api.js";
import { button, check, fill, h, select } from "./dom.js";
import { Chart, chartSettings, color } from "./chart.js";
import { axisName, FIELDS, load, namesOf, noteOf, series } from "./curves.js";
import { diffLines, nearChanges } from "./diff.js";
import { number } from "./format.js";
import { metricNames, prepare } from "./view_runs.js";

/// Runs of one request.
const ASKED = 1000;
/// Runs that have a column each.
const SIDE_BY_SIDE = 50;
/// Milliseconds of a frame that charts may take; at least one is made or drawn.
const BUDGET = 10;
/// Runs that the legend names before it is asked for all.
const NAMED = 100;

/// Curves of these runs, one chart for each metric whose name fits; in `body`, as the address says. `known` are their
/// metrics where the runs do not say all of them.
export function curveCharts(body, view, runs, { height = 260, usual = null, fetched = () => {}, known = null } = {}) {
  const charts = new Map();
  const cards = h("div", { class: "cards" });
  const count = h("span", { class: "soft" });
  const colors = new Map(runs.map((run, at) => [run.id, color(at)]));
  const allNames = () => known ?? metricNames(runs);
  const names = () => {
    let test = (name) => !usual || usual(name);
    if (view.params.metrics) {
      try {
        const pattern = new RegExp(view.params.metrics, "i");
        test = (name) => pattern.test(name);
      } catch {
        test = (name) => name.includes(view.params.metrics);
      }
    }
    const every = allNames();
    const fitting = every.filter(test);
    // Whose metrics have other names than ours shows all of them, until some are asked for.
    return (fitting.length || view.params.metrics ? fitting : [...every]).sort((a, b) => (a === "loss" ? -1 : b === "loss" ? 1 : a < b ? -1 : 1));
  };
  /// What is to be drawn, the newest of each chart. A frame has no more of it than it has time for.
  const due = new Map();
  let drawing = false;
  const sight = new IntersectionObserver((entries) => {
    const fresh = [];
    for (const { target, isIntersecting } of entries) {
      const chart = charts.get(target.metric);
      if (chart?.element !== target) continue;
      target.inSight = isIntersecting;
      target.classList.toggle("away", !isIntersecting);
      if (!isIntersecting) {
        chart.rest();
        continue;
      }
      fresh.push(target.metric);
      // What it showed before, until the newest is there.
      if (chart.series.length && !due.has(target.metric)) due.set(target.metric, () => chart.draw());
    }
    if (!fresh.length) return;
    drawSoon();
    draw(fresh).catch(failed);
  }, { rootMargin: "200px" });
  view.signal.addEventListener("abort", () => {
    sight.disconnect();
    for (const chart of charts.values()) chart.close();
  });
  const drawSoon = () => {
    if (!drawing) drawDue();
  };
  const drawDue = () => {
    drawing = false;
    if (view.signal.aborted) return;
    const end = performance.now() + BUDGET;
    for (const [name, act] of due) {
      due.delete(name);
      act();
      if (performance.now() > end) break;
    }
    if (!due.size) return;
    drawing = true;
    requestAnimationFrame(drawDue);
  };
  let round = 0;
  const draw = async (some) => {
    const wanted = (some ?? [...charts.keys()]).filter((name) => charts.get(name)?.element.inSight);
    if (!wanted.length || !runs.length) return;
    const [mine, asked] = [(round += 1), rangeOf(view.params)];
    const pixels = Math.max(...wanted.map((name) => charts.get(name).width)) * Math.min(2, window.devicePixelRatio || 1);
    const found = await load(runs, wanted, { params: { ...view.params }, pixels, signal: view.signal });
    // Another part is shown by now, and was asked for.
    if (view.signal.aborted || asked !== rangeOf(view.params)) return;
    for (const name of wanted) {
      const chart = charts.get(name);
      if (!chart || chart.round > mine) continue;
      chart.round = mine;
      due.set(name, () => show(name, found[name]));
    }
    drawSoon();
    fetched(found);
  };
  const show = (name, curves) => {
    const { params } = view;
    const lines = series(runs, curves, {
      color: (run, at) => (params.group ? color(at) : colors.get(run.id)), group: params.group, pinned: params.pinned,
    });
    const timed = params.x === "relative" || params.x === "wall";
    const left = timed ? runs.filter((run) => name in (run.metrics ?? {}) && !curves[run.id]).length : 0;
    charts.get(name)?.set(lines, {
      xLabel: axisName(params.x), logX: params.logx === "1", logY: params.logy === "1", smooth: Number(params.smooth ?? 0),
      from: params.from === undefined ? undefined : Number(params.from), to: params.to === undefined ? undefined : Number(params.to),
      wall: params.x === "wall", note: noteOf(curves, params, left),
    });
  };
  const failed = (error) => {
    if (!view.signal.aborted) count.textContent = error.message;
  };
  const again = () => draw().catch(failed);
  const build = () => {
    const wanted = names();
    const all = allNames().length;
    count.textContent = wanted.length === all ? `${all} metrics` : `${wanted.length} of ${all} metrics`;
    const kept = new Set(wanted);
    for (const [name, chart] of charts) {
      if (kept.has(name)) continue;
      sight.unobserve(chart.element);
      chart.close();
      chart.element.remove();
      charts.delete(name);
    }
    const mine = (building += 1);
    const put = (from) => {
      const end = performance.now() + BUDGET;
      let place = from;
      while (place < wanted.length && (place === from || performance.now() < end)) {
        const name = wanted[place];
        if (!charts.has(name)) charts.set(name, newChart(name));
        const [here, { element }] = [cards.children[place], charts.get(name)];
        if (here !== element) cards.insertBefore(element, here ?? null);
        place += 1;
      }
      if (place < wanted.length) requestAnimationFrame(() => mine === building && !view.signal.aborted && put(place));
    };
    put(0);
    again();
  };
  let building = 0;
  const newChart = (name) => {
    const zoomed = (from, to) => {
      view.set({ from, to });
      again();
    };
    const chart = new Chart({ title: name, height, zoomed });
    chart.element.metric = name;
    chart.element.inSight = false;
    chart.element.classList.add("away");
    sight.observe(chart.element);
    return chart;
  };
  const search = h("input", {
    type: "search", "aria-label": "metrics by pattern", placeholder: "Metrics by pattern: validation/.*", value: view.params.metrics ?? "",
    oninput: (event) => {
      view.set({ metrics: event.target.value || null });
      build();
    },
  });
  fill(body, h("div", { class: "bar" }, search, count, chartSettings(view, again, allNames().sort().slice(0, 200))), cards);
  build();
  return { build, again, colors, update: (fresh) => {
    runs = fresh;
    for (const run of runs) if (!colors.has(run.id)) colors.set(run.id, color(colors.size));
    build();
  } };
}

/// What of a view's address says which points are asked for.
function rangeOf({ x, from, to, smooth }) {
  return JSON.stringify([x, from, to, smooth]);
}

export async function compare(body, view) {
  const ids = (view.params.runs ?? "").split(",").filter(Boolean);
  if (!ids.length) {
    fill(body, h("h1", {}, "Compare"), h("p", { class: "empty" }, "Choose runs in the ", h("a", { href: "#/runs" }, "table of runs"), " first."));
    return;
  }
  const fetchRuns = async () => {
    const found = new Map();
    for (let from = 0; from < ids.length; from += ASKED) {
      const page = await get("runs", { ids: ids.slice(from, from + ASKED).join(","), limit: ASKED, metrics: "*", archived: "true" }, view.signal);
      for (const run of page.items) found.set(run.id, prepare({ ...run }));
    }
    return ids.map((id) => found.get(id)).filter(Boolean);
  };
  let runs = await fetchRuns();
  const [legend, area, differences, files] = [h("div", { class: "legend" }), h("div"), h("div"), h("div")];
  const grouping = h("div", { class: "bar" });
  fill(body, h("h1", {}, `Compare ${runs.length} runs`), legend, grouping, area, h("h2", {}, "What they differ in"), differences,
    h("h2", {}, "Configurations"), files);
  const charts = curveCharts(area, view, runs, { height: 300 });
  const hparams = [...new Set(runs.flatMap((run) => Object.keys(run.flat)))].sort();
  const varied = hparams.filter((name) => new Set(runs.map((run) => String(run.flat[name]))).size > 1);
  fill(grouping, select("group by", [["", "nothing"], ...[...FIELDS, ...varied].map((name) => [name, name])], view.params.group ?? "", (value) => {
    view.set({ group: value || null });
    charts.again();
  }), h("span", { class: "soft" }, "a group is drawn as its mean, with a band from the smallest to the largest"));
  const draw = () => {
    drawLegend(legend, { view, runs, colors: charts.colors, pinned: () => {
      charts.again();
      draw();
      drawFiles(files, { view, runs });
    } });
    drawDifferences(differences, { view, runs, hparams, varied, redraw: draw });
  };
  draw();
  await drawFiles(files, { view, runs });
  view.onChange(async (change) => {
    if (change.runs && !change.runs.some((id) => ids.includes(id))) return;
    runs = await fetchRuns();
    charts.update(runs);
    draw();
  }, 700);
}

function drawLegend(legend, { view, runs, colors, pinned }) {
  const names = namesOf(runs);
  const shown = view.params.legend === "all" ? runs : runs.slice(0, NAMED);
  const rest = shown.length < runs.length && button(`${runs.length - shown.length} more`, () => {
    view.set({ legend: "all" });
    drawLegend(legend, { view, runs, colors, pinned });
  }, { class: "small" });
  fill(legend, shown.map((run) => h("span", {},
    h("i", { class: "swatch", style: { background: colors.get(run.id) } }), " ",
    h("a", { href: view.link(["run", run.id]) }, names.get(run.id)), " ",
    button(view.params.pinned === run.id ? "baseline" : "pin", () => {
      view.set({ pinned: view.params.pinned === run.id ? null : run.id });
      pinned();
    }, { class: "small", title: "Take this run as the baseline", "aria-pressed": view.params.pinned === run.id ? "true" : "false" }))), rest);
}

function drawDifferences(element, { view, runs: all, hparams, varied, redraw }) {
  const runs = [...all.filter((run) => run.id === view.params.pinned), ...all.filter((run) => run.id !== view.params.pinned)].slice(0, SIDE_BY_SIDE);
  const [base, names] = [runs.find((run) => run.id === view.params.pinned), namesOf(runs)];
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => name !== "time").sort();
  const cell = (run, name) => {
    const value = run.metrics[name];
    const change = base && base !== run && typeof value === "number" && typeof base.metrics[name] === "number" ? value - base.metrics[name] : null;
    return h("td", { class: "num" }, value === undefined ? "" : number(value), change === null ? "" : h("span", { class: "soft" }, ` (${change >= 0 ? "+" : ""}${number(change, 3)})`));
  };
  const only = view.params.all !== "1";
  const shown = only ? varied : hparams;
  fill(element, h("div", { class: "bar" }, check("only what differs", only, (on) => {
    view.set({ all: on ? null : "1" });
    redraw();
  }), all.length > runs.length && h("span", { class: "soft" }, `the first ${runs.length} of ${all.length} runs`)), h("div", { class: "scroll" }, h("table", { "aria-label": "differences" },
    h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map((run) => h("th", { scope: "col", class: "num" }, names.get(run.id), run === base && " (baseline)")))),
    h("tbody", {},
      shown.map((name) => h("tr", { class: varied.includes(name) && !only ? "differs" : null }, h("th", { scope: "row" }, name), runs.map((run) => h("td", { class: "num" }, String(run.flat[name] ?? "\u2013"))))),
      metrics.map((name) => h("tr", {}, h("th", { scope: "row" }, name), runs.map((run) => cell(run, name))))))));
}

/// The files of two runs, line by line: the baseline's and another one's.
async function drawFiles(element, { view, runs }) {
  const [base, names] = [runs.find((run) => run.id === view.params.pinned) ?? runs[0], namesOf(runs)];
  const others = runs.filter((run) => run.id !== base.id);
  if (!others.length) {
    fill(element, h("p", { class: "soft" }, "There is only one run."));
    return;
  }
  const other = others.find((run) => run.id === view.params.against) ?? others[0];
  const file = async (run) => (await get(`experiments/${run.experiment}/config`, {}, view.signal)).config;
  const choice = select(`${names.get(base.id)} beside`, others.map((run) => [run.id, names.get(run.id)]), other.id, (value) => {
    view.set({ against: value });
    drawFiles(element, { view, runs });
  });
  let [a, b] = [null, null];
  try {
    [a, b] = await Promise.all([file(base), file(other)]);
  } catch (error) {
    // All else of the view is there without them.
    if (!view.signal.aborted) fill(element, h("div", { class: "bar" }, choice, h("span", { class: "error", role: "alert" }, error.message)));
    return;
  }
  const without = [[base, a], [other, b]].filter(([, text]) => text === null).map(([run]) => names.get(run.id));
  if (without.length) {
    fill(element, h("div", { class: "bar" }, choice, h("span", { class: "soft" }, `${without.join(" and ")} ${without.length === 1 ? "has" : "have"} no file`)));
    return;
  }
  const lines = diffLines(a, b);
  const signs = { same: " ", gone: "\u2212", new: "+" };
  const changed = lines.filter(({ kind }) => kind !== "same").length;
  fill(element, h("div", { class: "bar" }, choice, h("span", { class: "soft" }, changed ? `${changed} lines differ` : "the files are the same; trials of a search differ in their hyperparameters only")),
  h("pre", { class: "diff", tabindex: "0", "aria-label": "difference of configurations" }, nearChanges(lines).map(({ kind, text, count }) => h("div", { class: kind === "left" ? "same" : kind }, kind === "left" ? `  \u22ef ${count} lines` : `${signs[kind]} ${text}`))));
}
