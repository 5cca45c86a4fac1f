// One run: how it stands, its curves, what it was trained with, its checkpoints, logs, confusions and ledger.

import { get, stream } from "./api.js";
import { button, check, fill, h } from "./dom.js";
import { bytes, duration, number, plain, time } from "./format.js";
import { curveCharts } from "./view_compare.js";
import { prepare, state } from "./view_runs.js";

const TABS = {
  overview: "Overview", curves: "Curves", config: "Configuration", checkpoints: "Checkpoints", logs: "Logs", confusion: "Confusion", ledger: "Ledger", time: "Time",
};
const KEPT = 5000;

export async function run(body, view) {
  const [id, wanted = "overview"] = view.parts;
  const tab = Object.hasOwn(TABS, wanted) ? wanted : "overview";
  const path = `runs/${encodeURIComponent(id)}`;
  let own = prepare(await get(path, {}, view.signal));
  const [head, area] = [h("div"), h("div", { class: `tab-${tab}` })];
  const drawHead = () => fill(head, h("h1", {}, own.name, " ", state(own)),
    h("p", { class: "soft" }, `run ${own.id} of experiment `, h("a", { href: view.link(["search", own.experiment]) }, own.experiment), ` in ${own.folder}`),
    own.reason && h("p", { class: "error" }, plain(own.reason)));
  drawHead();
  fill(body, head, h("nav", { class: "tabs", "aria-label": "parts of this run" }, Object.entries(TABS).map(([key, title]) =>
    h("a", { href: view.link(key === "overview" ? ["run", id] : ["run", id, key]), "aria-current": key === tab ? "page" : null }, title))), area);
  const part = await PARTS[tab](area, view, own, path);
  view.onChange(async (change) => {
    const touched = (list) => !list || list.includes(own.id);
    if (!touched(change.runs) && !touched(change.logs)) return;
    own = prepare(await get(path, {}, view.signal));
    drawHead();
    await part?.(own, change);
  }, 400);
}

const PARTS = { overview, curves, config, checkpoints, logs, confusion, ledger, time: timings };

function overview(area, view, first) {
  const facts = h("dl");
  const [metrics, charts, hparams] = [h("div"), h("div"), h("dl")];
  const draw = (own) => {
    const speed = own.duration && own.steps ? own.steps / (own.duration / 1000) : null;
    const left = own.total_steps && speed && !own.ended ? ((own.total_steps - own.steps) / speed) * 1000 : null;
    const rows = [
      ["model", own.model], ["steps", `${number(own.steps)}${own.total_steps ? ` of ${number(own.total_steps)}` : ""}`],
      ["epoch", `${own.epoch + 1}${own.epochs ? ` of ${own.epochs}` : ""}`], [`best ${own.metric ?? ""}`, own.best === null ? null : `${number(own.best)} after ${number(own.best_steps)} steps`],
      ["started", time(own.started)], ["duration", duration(own.duration)], ["time left, about", left === null ? null : duration(left)],
      ["workers", own.workers], ["parameters", number(own.parameters)], ["labels", (own.labels ?? []).join(", ")], ["owner", own.owner],
    ];
    fill(facts, rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
    fill(metrics, h("table", { "aria-label": "last values" }, h("tbody", {}, Object.entries(own.metrics).filter(([name]) => name !== "time").map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, value === null ? "no number" : number(value, 7)))))));
  };
  draw(first);
  fill(hparams, Object.entries(first.flat).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
  fill(area, h("div", { class: "cards" }, h("section", {}, h("h2", {}, "Run"), facts), h("section", {}, h("h2", {}, "Hyperparameters"), hparams), h("section", {}, h("h2", {}, "Last values"), metrics)), charts);
  const watched = `validation/${first.metric ?? "loss"}`;
  const drawn = curveCharts(charts, view, [first], { height: 220, usual: (name) => name === "loss" || name === watched });
  return (own) => {
    draw(own);
    drawn.update([own]);
  };
}

function curves(area, view, own) {
  const drawn = curveCharts(area, view, [own]);
  return (fresh) => drawn.update([fresh]);
}

async function config(area, view, own) {
  const found = await get(`experiments/${own.experiment}/config`, {}, view.signal);
  fill(area, h("pre", { tabindex: "0", "aria-label": "configuration" }, found.config));
}

async function checkpoints(area, view, own, path) {
  const draw = async () => {
    const found = await get(`${path}/checkpoints`, {}, view.signal);
    const best = own.best_steps;
    fill(area, found.length === 0 && h("p", { class: "soft" }, "There is none yet."), h("div", { class: "scroll" }, h("table", { "aria-label": "checkpoints" },
      h("thead", {}, h("tr", {}, ["checkpoint", "steps", "epoch", "validation", "size", "written", "state", "weights"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, found.map((one) => h("tr", { class: one.steps === best && one.state === "completed" ? "best" : null },
        h("td", {}, one.name), h("td", { class: "num" }, number(one.steps)), h("td", { class: "num" }, String(one.epoch)),
        h("td", {}, Object.entries(one.validation ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ")),
        h("td", { class: "num" }, bytes(one.bytes)), h("td", {}, time(one.created)), h("td", {}, one.state + (one.recovery ? ", to recover from" : "")),
        h("td", { title: one.weights_hash }, (one.weights_hash ?? "").slice(0, 12))))))));
  };
  await draw();
  return draw;
}

async function logs(area, view, own, path) {
  const lines = h("div");
  const box = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "log" }, lines);
  const count = h("span", { class: "soft" });
  let [last, ending, seen] = [null, null, 0];
  const show = (found) => {
    const follow = view.params.follow !== "0";
    lines.append(...found.map((line) => h("div", { class: line.level === "error" ? "error" : line.level === "warn" ? "warn" : null },
      h("span", { class: "process" }, `${line.process} `), plain(line.text))));
    while (lines.childElementCount > KEPT) lines.firstChild.remove();
    seen += found.length;
    count.textContent = `${number(seen)} lines`;
    if (follow) box.scrollTop = box.scrollHeight;
  };
  const query = () => ({ search: view.params.search, process: view.params.process, level: view.params.level });
  const load = async () => {
    ending?.abort();
    ending = new AbortController();
    view.signal.addEventListener("abort", () => ending.abort());
    const signal = ending.signal;
    seen = 0;
    const page = await get(`${path}/logs`, { ...query(), tail: "true", limit: 1000 }, signal);
    lines.replaceChildren();
    show(page.lines);
    last = page.after;
    const params = new URLSearchParams(Object.entries({ ...query(), after: last }).filter(([, value]) => value));
    stream(`${path}/logs/follow?${params}`, signal, (type, found) => show(found)).catch(() => {});
  };
  let due = null;
  const changed = (name) => (event) => {
    view.set({ [name]: event.target.value || null });
    clearTimeout(due);
    due = setTimeout(() => load().catch((error) => !view.signal.aborted && (count.textContent = error.message)), 250);
  };
  const levels = ["", "error", "warn", "info", "debug"];
  fill(area, h("div", { class: "bar" },
    h("input", { type: "search", "aria-label": "search in logs", placeholder: "words", value: view.params.search ?? "", oninput: changed("search") }),
    h("label", { class: "field" }, "process ", h("input", { size: "10", value: view.params.process ?? "", placeholder: "worker-0", oninput: changed("process") })),
    h("label", { class: "field" }, "level ", h("select", { onchange: changed("level") }, levels.map((level) => h("option", { value: level, selected: (view.params.level ?? "") === level }, level || "all")))),
    check("follow", view.params.follow !== "0", (on) => {
      view.set({ follow: on ? null : "0" });
      if (on) box.scrollTop = box.scrollHeight;
    }), count), box);
  await load();
}

async function confusion(area, view, own, path) {
  const draw = async () => {
    const report = await get(`${path}/report`, {}, view.signal);
    if (!report?.rows) {
      fill(area, h("p", { class: "soft" }, "A classifier has a report when its run has ended."));
      return;
    }
    const rows = [...report.rows, report.macro_avg, report.weighted_avg].filter(Boolean);
    fill(area, h("p", {}, `accuracy ${number(report.accuracy)}`), report.confusion && matrix(report.confusion),
      h("div", { class: "scroll" }, h("table", { "aria-label": "by class" },
        h("thead", {}, h("tr", {}, ["class", "precision", "recall", "F1", "records"].map((title, at) => h("th", { scope: "col", class: at ? "num" : null }, title)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), [row.precision, row.recall, row.f1, row.support].map((value) => h("td", { class: "num" }, number(value)))))))));
  };
  await draw();
  return draw;
}

/// Which classes are taken for which: rows are the truth.
function matrix({ names, counts }) {
  const cell = Math.max(6, Math.min(44, Math.floor(620 / names.length)));
  const margin = 90;
  const side = margin + cell * names.length;
  const canvas = h("canvas", { role: "img", "aria-label": `confusion matrix of ${names.length} classes; the table below has the figures`, "data-cell": cell, "data-margin": margin });
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [side * ratio, side * ratio];
  canvas.style.width = canvas.style.height = `${side}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const soft = getComputedStyle(document.body).getPropertyValue("--soft");
  counts.forEach((row, truth) => {
    const total = row.reduce((sum, count) => sum + count, 0) || 1;
    row.forEach((count, predicted) => {
      const share = count / total;
      const [x, y] = [margin + predicted * cell, margin + truth * cell];
      pen.fillStyle = `rgb(${239 - 231 * share} ${244 - 180 * share} ${250 - 121 * share})`;
      pen.fillRect(x, y, cell - 1, cell - 1);
      if (cell < 24) return;
      pen.fillStyle = share > 0.5 ? "#fff" : "#222";
      pen.textAlign = "center";
      pen.fillText(String(count), x + cell / 2, y + cell / 2, cell - 4);
    });
  });
  pen.fillStyle = soft;
  if (cell >= 12) {
    names.forEach((name, at) => {
      pen.textAlign = "right";
      pen.fillText(name, margin - 6, margin + (at + 0.5) * cell, margin - 10);
      pen.save();
      pen.translate(margin + (at + 0.5) * cell, margin - 6);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0, margin - 10);
      pen.restore();
    });
  }
  const tip = h("p", { class: "note", role: "status" }, "rows: the truth; columns: what was predicted");
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect();
    const [predicted, truth] = [event.clientX - rect.left, event.clientY - rect.top].map((at) => Math.floor((at - margin) / cell));
    const count = counts[truth]?.[predicted];
    if (count !== undefined) tip.textContent = `${names[truth]} taken for ${names[predicted]}: ${number(count)} times`;
  });
  return h("div", { class: "heat" }, canvas, tip);
}

async function ledger(area, view, own, path) {
  const draw = async () => {
    const summary = await get(`${path}/summary`, {}, view.signal);
    const lines = summary?.ledger ?? [];
    const titles = ["epoch", "records", "applied", "missing", "duplicated", "skipped", "overflowed"];
    fill(area, h("p", {}, "Each record was applied exactly once in every complete epoch where nothing is missing and nothing duplicated."),
      lines.length === 0 && h("p", { class: "soft" }, "The ledger is here when the run has ended; `salamander ledger` reads it from a checkpoint before."),
      h("div", { class: "scroll" }, h("table", { "aria-label": "ledger" },
        h("thead", {}, h("tr", {}, titles.map((title) => h("th", { class: "num", scope: "col" }, title)), h("th", {}, "ids"))),
        h("tbody", {}, lines.map((line) => h("tr", {}, titles.map((title) => h("td", { class: "num" }, number(title === "epoch" ? line.epoch + 1 : line[title]))),
          h("td", { class: line.intact ? null : "error" }, line.intact ? "intact" : "WRONG")))))));
  };
  await draw();
  return draw;
}

const KINDS = [["compute_s", "compute", "#3d7bd9"], ["exchange_s", "exchange", "#e0792b"], ["data_s", "data", "#2f9e63"], ["test_s", "validation", "#8a63c9"]];

async function timings(area, view, own, path) {
  const draw = async () => {
    const summary = await get(`${path}/summary`, {}, view.signal);
    if (!summary?.timings) {
      fill(area, h("p", { class: "soft" }, "Where the time went is known when the run has ended."));
      return;
    }
    const ranks = summary.ranks?.length ? summary.ranks : [summary.timings];
    const longest = Math.max(...ranks.map((rank) => KINDS.reduce((sum, [key]) => sum + (rank[key] ?? 0), 0)), 1e-9);
    const restarts = summary.restarts ?? {};
    fill(area, h("dl", {}, h("dt", {}, "wall time"), h("dd", {}, duration(summary.timings.wall_s * 1000)), h("dt", {}, "workers"), h("dd", {}, String(summary.workers)),
      h("dt", {}, "generations"), h("dd", {}, String(summary.generations)), h("dt", {}, "started again"), h("dd", {}, `${restarts.worker ?? 0} workers, ${restarts.ps ?? 0} parameter servers, ${restarts.master ?? 0} masters`)),
      h("h2", {}, "Where each rank's time went"),
      h("div", { class: "legend" }, KINDS.map(([, name, paint]) => h("span", {}, h("i", { class: "swatch", style: { background: paint } }), ` ${name}`))),
      h("div", { class: "bars" }, ranks.map((rank, at) => h("div", {}, h("div", { class: "soft" }, `rank ${at}: `, KINDS.map(([key, name]) => `${name} ${number(rank[key], 3)} s`).join(", ")),
        h("div", { class: "stack", "aria-hidden": "true" }, KINDS.map(([key, , paint]) => h("div", { style: { width: `${((rank[key] ?? 0) / longest) * 100}%`, background: paint } })))))));
  };
  await draw();
  return draw;
}
