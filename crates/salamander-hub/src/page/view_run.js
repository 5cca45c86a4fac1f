// One run: how it stands, its curves, what it was trained with, its checkpoints, logs, confusions, ledger, members, time.

import { act, get } from "./api.js";
import { experimentActions, register, runActions, showFiles } from "./actions.js";
import { ask, attempt, tell } from "./dialog.js";
import { button, fileName, fill, h, save } from "./dom.js";
import { bytes, duration, number, plain, time } from "./format.js";
import { confusion } from "./run_confusion.js";
import { logs } from "./run_logs.js";
import { members } from "./run_members.js";
import { profiler } from "./run_profiler.js";
import { curveCharts } from "./view_compare.js";
import { prepare, state } from "./view_runs.js";

const TABS = {
  overview: "Overview", curves: "Curves", config: "Configuration", checkpoints: "Checkpoints", logs: "Logs", confusion: "Confusion",
  members: "Members", profiler: "Profiler", ledger: "Ledger",
};
const PARTS = { overview, curves, config, checkpoints, logs, confusion, members, profiler, ledger };

export async function run(body, view) {
  const [id, wanted = "overview"] = view.parts;
  const tab = Object.hasOwn(TABS, wanted) ? wanted : "overview";
  const path = `runs/${encodeURIComponent(id)}`;
  let own = prepare(await get(path, {}, view.signal));
  const [head, doing, area] = [h("div"), h("div"), h("div", { class: `tab-${tab}` })];
  const drawHead = () => fill(head, h("h1", {}, own.name, " ", state(own)),
    h("p", { class: "soft" }, `run ${own.id} of experiment `, h("a", { href: view.link(["search", own.experiment]) }, own.experiment), ` in ${own.folder}`),
    own.reason && h("p", { class: ["failed", "killed"].includes(own.state) ? "error" : "soft" }, plain(own.reason)));
  const again = async () => {
    own = prepare({ ...await get(path, {}, view.signal) });
    drawHead();
    await drawActions();
  };
  let shown = "";
  const drawActions = async () => {
    const [experiment, status] = await Promise.all([
      get(`experiments/${own.experiment}`, {}, view.signal), own.state === "running" ? get(`${path}/members`, {}, view.signal) : null]);
    // Buttons stay where they are while nothing about them changes.
    const key = JSON.stringify([experiment.state, experiment.labels, experiment.archived, experiment.priority, own.state, status?.wanted, status?.wanted_servers]);
    if (key === shown) return;
    shown = key;
    const bar = experimentActions(experiment, again);
    bar.prepend(...runActions(own, experiment, status, again).filter(Boolean));
    fill(doing, bar);
  };
  drawHead();
  fill(body, head, doing, h("nav", { class: "tabs", "aria-label": "parts of this run" }, Object.entries(TABS).map(([key, title]) =>
    h("a", { href: view.link(key === "overview" ? ["run", id] : ["run", id, key]), "aria-current": key === tab ? "page" : null }, title))), area);
  body.querySelector(".tabs [aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  const [part] = await Promise.all([PARTS[tab](area, view, own, path), drawActions()]);
  view.onChange(async (change) => {
    const touched = (list) => !list || list.includes(own.id);
    if (!touched(change.runs) && !touched(change.logs) && !change.experiments?.includes(own.experiment)) return;
    await again();
    await part?.(own, change);
  }, 400);
}

function overview(area, view, first) {
  const [figures, facts, metrics, charts, hparams] = [h("div", { class: "figures" }), h("dl"), h("div"), h("div"), h("dl")];
  const draw = (own) => {
    const speed = own.duration && own.steps ? own.steps / (own.duration / 1000) : null;
    const left = own.total_steps && speed && !own.ended ? ((own.total_steps - own.steps) / speed) * 1000 : null;
    const one = (name, value) => value !== null && value !== undefined && value !== "" && h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));
    fill(figures, one(`best ${own.metric ?? ""}${own.best_steps ? `, at step ${number(own.best_steps)}` : ""}`, own.best === null ? null : number(own.best)),
      one("loss", own.metrics.loss === undefined ? null : number(own.metrics.loss)),
      one(own.total_steps ? `of ${number(own.total_steps)} steps` : "steps", number(own.steps)), one(own.epochs ? `of ${own.epochs} epochs` : "epoch", number(own.epoch + 1)),
      one("duration", duration(own.duration)), one("left, about", left === null ? null : duration(left)));
    const rows = [["model", own.model], ["parameters", own.parameters === null ? null : number(own.parameters)], ["workers", own.workers], ["started", time(own.started)], ["ended", own.ended ? time(own.ended) : null],
      ["steps a second", speed === null ? null : number(speed, 3)], ["labels", (own.labels ?? []).join(", ")], ["owner", own.owner]];
    fill(facts, rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
    fill(metrics, h("dl", {}, Object.entries(own.metrics).filter(([name]) => name !== "time").slice(0, 60).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value === null ? "no number" : number(value, 7))])));
  };
  draw(first);
  fill(hparams, Object.entries(first.flat).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
  fill(area, figures, charts, h("div", { class: "cards" }, h("section", { class: "card" }, h("h2", {}, "Run"), facts), h("section", { class: "card" }, h("h2", {}, "Hyperparameters"), hparams), h("section", { class: "card" }, h("h2", {}, "Last values"), metrics)));
  const watched = `validation/${first.metric ?? "loss"}`;
  const drawn = curveCharts(charts, view, [first], { height: 240, usual: (name) => name === "loss" || name === watched });
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
  const search = own.length !== null;
  const hparams = (title) => h("div", { class: "card" }, h("h2", {}, title), h("dl", {}, Object.entries(own.flat).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])));
  // Runs of MLflow's clients come from no file.
  if (found.config === null) {
    fill(area, h("p", { class: "soft" }, "This experiment has no file."), hparams("Hyperparameters"));
    return;
  }
  fill(area, h("div", { class: "bar" },
    button("Copy", () => attempt(() => navigator.clipboard.writeText(found.config), "Copied")),
    button("Download", () => save(fileName(own.name, ".yaml"), new Blob([found.config], { type: "text/yaml" })))),
  search && hparams("Hyperparameters of this trial"),
  h("pre", { tabindex: "0", "aria-label": "configuration" }, found.config));
}

async function checkpoints(area, view, first, path) {
  let own = first;
  const remove = async (one) => {
    if (await ask({ title: `Delete ${one.name}?`, text: "It cannot be brought back.", confirm: "Delete", danger: true })
      && await attempt(() => act("DELETE", `${path}/checkpoints/${encodeURIComponent(one.name)}`), "Deleted")) await draw();
  };
  const draw = async (fresh = own) => {
    own = fresh;
    const found = await get(`${path}/checkpoints`, {}, view.signal);
    const titles = ["checkpoint", "steps", "epoch", "validation", "size", "written", "state", "weights", ""];
    const row = (one) => h("tr", { class: one.steps === own.best_steps && one.state === "completed" ? "best" : null },
      h("td", {}, one.name), h("td", { class: "num" }, number(one.steps)), h("td", { class: "num" }, number(one.epoch + 1)),
      h("td", {}, Object.entries(one.validation ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ")),
      h("td", { class: "num" }, bytes(one.bytes)), h("td", {}, time(one.created)), h("td", {}, one.state + (one.recovery ? ", to recover from" : "")),
      h("td", { title: one.weights_hash }, h("code", {}, (one.weights_hash ?? "").slice(0, 12))),
      h("td", {}, one.state === "completed" && [button("Download", () => showFiles(own, one), { class: "small", "aria-label": `download ${one.name}` }), " ",
        button("Register", () => register(own, one, () => tell("It is among the models")), { class: "small", "aria-label": `register ${one.name}` }), " ",
        own.state !== "running" && button("Delete", () => remove(one), { class: "small", "aria-label": `delete ${one.name}` })]));
    fill(area, found.length === 0 ? h("p", { class: "empty" }, "There is none yet.") : h("div", { class: "scroll" }, h("table", { "aria-label": "checkpoints" },
      h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col", class: ["steps", "epoch", "size"].includes(title) ? "num" : null }, title)))), h("tbody", {}, found.map(row)))));
  };
  await draw();
  return draw;
}

async function ledger(area, view, own, path) {
  const draw = async () => {
    const summary = await get(`${path}/summary`, {}, view.signal);
    const lines = summary?.ledger ?? [];
    const titles = ["epoch", "records", "applied", "missing", "duplicated", "skipped", "overflowed"];
    const wrong = lines.filter((line) => !line.intact).length;
    fill(area, lines.length === 0 ? h("p", { class: "empty" }, "The ledger is here when the run has ended; ", h("code", {}, "salamander ledger"), " reads it from a checkpoint before.") : [
      h("p", {}, wrong ? h("b", { class: "error" }, `${wrong} epochs are wrong. `) : h("b", {}, "Every record was applied exactly once. "),
        h("span", { class: "soft" }, "So it is in every complete epoch where nothing is missing and nothing duplicated.")),
      h("div", { class: "scroll" }, h("table", { "aria-label": "ledger" },
        h("thead", {}, h("tr", {}, titles.map((title) => h("th", { class: "num", scope: "col" }, title)), h("th", {}, "ids"))),
        h("tbody", {}, lines.map((line) => h("tr", {}, titles.map((title) => h("td", { class: "num" }, number(title === "epoch" ? line.epoch + 1 : line[title]))),
          h("td", { class: line.intact ? null : "error" }, line.intact ? "intact" : "WRONG"))))))]);
  };
  await draw();
  return draw;
}
