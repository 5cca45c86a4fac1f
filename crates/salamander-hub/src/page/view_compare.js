// Many runs side by side: their curves, and what they differ in.

import { get } from "./api.js";
import { button, fill, h, select } from "./dom.js";
import { Chart, chartSettings, color } from "./chart.js";
import { AXES, load, noteOf, series } from "./curves.js";
import { number } from "./format.js";
import { prepare } from "./view_runs.js";

/// Curves of these runs, one chart for each metric whose name fits; in `body`, as the address says.
export function curveCharts(body, view, runs, { height = 260, usual = null, fetched = () => {} } = {}) {
  const charts = new Map();
  const cards = h("div", { class: "cards" });
  const count = h("span", { class: "soft" });
  const colors = new Map(runs.map((run, at) => [run.id, color(at)]));
  const names = () => {
    const known = new Set();
    for (const run of runs) for (const name of Object.keys(run.metrics ?? {})) if (name !== "time") known.add(name);
    let test = (name) => !usual || usual(name);
    if (view.params.metrics) {
      try {
        const pattern = new RegExp(view.params.metrics, "i");
        test = (name) => pattern.test(name);
      } catch {
        test = (name) => name.includes(view.params.metrics);
      }
    }
    return [...known].filter(test).sort((a, b) => (a === "loss" ? -1 : b === "loss" ? 1 : a < b ? -1 : 1));
  };
  const sight = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      entry.target.inSight = entry.isIntersecting;
      if (entry.isIntersecting) draw([...charts].filter(([, chart]) => chart.element === entry.target).map(([name]) => name));
    }
  }, { rootMargin: "200px" });
  view.signal.addEventListener("abort", () => {
    sight.disconnect();
    for (const chart of charts.values()) chart.close();
  });
  let round = 0;
  const draw = async (some) => {
    const mine = (round += 1);
    const wanted = (some ?? [...charts.keys()]).filter((name) => charts.get(name)?.element.inSight);
    if (!wanted.length || !runs.length) return;
    const pixels = Math.max(...wanted.map((name) => charts.get(name).width)) * Math.min(2, window.devicePixelRatio || 1);
    const { params } = view;
    const found = await load(runs, wanted, { params, pixels, signal: view.signal });
    if (mine < round && !some) return;
    for (const name of wanted) {
      const lines = series(runs, found[name], {
        color: (run, at) => (params.group ? color(at) : colors.get(run.id)), group: params.group, pinned: params.pinned,
      });
      charts.get(name)?.set(lines, {
        xLabel: AXES[params.x ?? "step"], logX: params.logx === "1", logY: params.logy === "1", smooth: Number(params.smooth ?? 0),
        from: params.from === undefined ? undefined : Number(params.from), to: params.to === undefined ? undefined : Number(params.to),
        wall: params.x === "wall", note: noteOf(found[name], params),
      });
    }
    fetched(found);
  };
  const failed = (error) => {
    if (!view.signal.aborted) count.textContent = error.message;
  };
  const again = () => draw().catch(failed);
  const build = () => {
    const wanted = names();
    count.textContent = `${wanted.length} metrics`;
    for (const [name, chart] of charts) {
      if (wanted.includes(name)) continue;
      sight.unobserve(chart.element);
      chart.close();
      chart.element.remove();
      charts.delete(name);
    }
    for (const name of wanted) {
      if (!charts.has(name)) {
        const zoomed = (from, to) => {
          view.set({ from, to });
          again();
        };
        charts.set(name, new Chart({ title: name, height, zoomed }));
        sight.observe(charts.get(name).element);
      }
      cards.append(charts.get(name).element);
    }
    again();
  };
  const search = h("input", {
    type: "search", "aria-label": "metrics by pattern", placeholder: "metrics: validation/.*", value: view.params.metrics ?? "",
    oninput: (event) => {
      view.set({ metrics: event.target.value || null });
      build();
    },
  });
  fill(body, h("div", { class: "bar" }, search, count), chartSettings(view, again), cards);
  build();
  return { build, again, colors, update: (fresh) => {
    runs = fresh;
    for (const run of runs) if (!colors.has(run.id)) colors.set(run.id, color(colors.size));
    build();
  } };
}

export async function compare(body, view) {
  const ids = (view.params.runs ?? "").split(",").filter(Boolean);
  if (!ids.length) {
    fill(body, h("h1", {}, "Compare"), h("p", {}, "Choose runs in the ", h("a", { href: "#/runs" }, "table of runs"), " first."));
    return;
  }
  const fetchRuns = () => Promise.all(ids.map((id) => get(`runs/${encodeURIComponent(id)}`, {}, view.signal).then(prepare)));
  let runs = await fetchRuns();
  const [legend, area, differences, grouping] = [h("div", { class: "legend" }), h("div"), h("div"), h("div", { class: "bar" })];
  fill(body, h("h1", {}, `Compare ${runs.length} runs`), legend, grouping, area, h("h2", {}, "What they differ in"), differences);
  const charts = curveCharts(area, view, runs, { height: 300 });
  const hparams = [...new Set(runs.flatMap((run) => Object.keys(run.flat)))].sort();
  const varied = hparams.filter((name) => new Set(runs.map((run) => String(run.flat[name]))).size > 1);
  fill(grouping, select("group by", [["", "nothing"], ...varied.map((name) => [name, name])], view.params.group ?? "", (value) => {
    view.set({ group: value || null });
    charts.again();
  }), h("span", { class: "soft" }, "a group is drawn as its mean, with a band from the smallest to the largest"));
  const draw = () => {
    fill(legend, runs.map((run) => h("span", {},
      h("i", { class: "swatch", style: { background: charts.colors.get(run.id) } }), " ",
      h("a", { href: view.link(["run", run.id]) }, run.name), " ",
      button(view.params.pinned === run.id ? "baseline" : "pin", () => {
        view.set({ pinned: view.params.pinned === run.id ? null : run.id });
        charts.again();
        draw();
      }, { title: "Take this run as the baseline", "aria-pressed": view.params.pinned === run.id ? "true" : "false" }))));
    const base = runs.find((run) => run.id === view.params.pinned);
    const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => name !== "time").sort();
    const cell = (run, name) => {
      const value = run.metrics[name];
      const change = base && base !== run && typeof value === "number" && typeof base.metrics[name] === "number" ? value - base.metrics[name] : null;
      return h("td", { class: "num" }, value === undefined ? "" : number(value), change === null ? "" : h("span", { class: "soft" }, ` (${change >= 0 ? "+" : ""}${number(change, 3)})`));
    };
    fill(differences, h("div", { class: "scroll" }, h("table", { "aria-label": "differences" },
      h("thead", {}, h("tr", {}, h("th", {}, ""), runs.map((run) => h("th", { scope: "col" }, run.name)))),
      h("tbody", {},
        hparams.map((name) => h("tr", { class: varied.includes(name) ? "differs" : null }, h("th", { scope: "row" }, name), runs.map((run) => h("td", {}, String(run.flat[name] ?? "\u2013"))))),
        metrics.map((name) => h("tr", {}, h("th", { scope: "row" }, name), runs.map((run) => cell(run, name))))))));
  };
  draw();
  view.onChange(async (change) => {
    if (change.runs && !change.runs.some((id) => ids.includes(id))) return;
    runs = await fetchRuns();
    charts.update(runs);
    draw();
  }, 700);
}
