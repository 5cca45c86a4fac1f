// Experiments: one file each, with one trial or a search.

import { all } from "./api.js";
import { button, check, fill, h } from "./dom.js";
import { parse } from "./filter.js";
import { duration, number, time } from "./format.js";
import { sortBy, Table } from "./table.js";
import { columnPicker, meter, saveTable, state } from "./view_runs.js";

/// Clients of MLflow know our experiments by their numbers and this one.
const OURS = 1_000_000_000_000;
const USUAL = ["id", "name", "state", "kind", "model", "trials", "best", "progress", "created", "labels"];

/// Where the addresses lead that clients of MLflow print: `#/experiments/1/runs/ID`, with the numbers that they know.
async function ofClients([number, part, id], signal) {
  // The ids of runs of ours hold the numbers of these.
  const ours = part === "runs" && /^5a1a([0-9a-f]{14})([0-9a-f]{14})$/.exec(id ?? "");
  if (ours) return ["run", ours.slice(1).map((digits) => parseInt(digits, 16)).join(".")];
  if (Number(number) > OURS) return ["search", String(Number(number) - OURS)];
  const archived = "true";
  const known = await all("experiments", { archived }, null, signal);
  const experiment = known.find(({ folder }) => folder === `.hub/mlflow/${number}`);
  if (!experiment) return null;
  const runs = part === "runs" ? await all("runs", { experiment: experiment.id, archived }, null, signal) : [];
  const run = runs.find(({ folder }) => folder === `.hub/mlflow/runs/${id}`);
  return run ? ["run", run.id] : ["search", String(experiment.id)];
}

export async function experiments(body, view) {
  if (view.parts.length) {
    const to = await ofClients(view.parts, view.signal);
    if (to) return location.replace(view.link(to));
  }
  let rows = [];
  const columns = [
    { key: "id", title: "id", num: true, value: (row) => row.id },
    { key: "name", title: "experiment", value: (row) => row.name, cell: (row) => h("a", { href: view.link(["search", row.id]) }, row.name) },
    { key: "state", title: "state", value: (row) => row.state, cell: state },
    { key: "kind", title: "kind", value: (row) => row.kind },
    { key: "model", title: "model", value: (row) => row.model },
    { key: "trials", title: "trials", num: true, value: (row) => row.trials },
    { key: "metric", title: "metric", value: (row) => row.metric },
    { key: "best", title: "best", num: true, value: (row) => row.best, cell: (row) => (row.best === null ? "" : h("span", { title: row.metric }, number(row.best))) },
    { key: "progress", title: "done", num: true, value: (row) => row.progress, cell: (row) => (row.progress === null ? "" : meter(row.progress, `${Math.round(row.progress * 100)} %`)) },
    { key: "priority", title: "priority", num: true, value: (row) => row.priority },
    { key: "slots", title: "slots", num: true, value: (row) => row.slots },
    { key: "created", title: "created", value: (row) => row.created, cell: (row) => time(row.created) },
    { key: "duration", title: "duration", num: true, value: (row) => (row.started ? (row.ended ?? Date.now()) - row.started : null), cell: (row) => duration(row.started ? (row.ended ?? Date.now()) - row.started : null) },
    { key: "owner", title: "owner", value: (row) => row.owner },
    { key: "description", title: "description", value: (row) => row.description },
    { key: "labels", title: "labels", value: (row) => row.labels.join(" "), cell: (row) => row.labels.map((label) => h("span", { class: "label" }, label)) },
  ];
  const problem = h("span", { class: "error", role: "alert" });
  const count = h("span", { class: "soft", role: "status" });
  const wanted = () => (view.params.columns ? view.params.columns.split(",") : USUAL);
  const table = new Table({ columns, label: "experiments", sorted: (sort) => {
    view.set({ sort });
    draw();
  } });
  const draw = () => {
    problem.textContent = "";
    let shown = rows;
    try {
      shown = rows.filter(parse(view.params.filter ?? ""));
    } catch (error) {
      problem.textContent = error.message;
    }
    const sort = view.params.sort ?? "-created";
    table.columns = columns.filter(({ key }) => wanted().includes(key));
    table.set(sortBy(shown, columns, sort), sort);
    count.textContent = shown.length === rows.length ? `${number(rows.length)} experiments` : `${number(shown.length)} of ${number(rows.length)} experiments`;
  };
  const load = async () => {
    rows = [...await all("experiments", { archived: view.params.archived === "1" ? "true" : null }, null, view.signal)];
    draw();
  };
  fill(body, h("h1", {}, "Experiments"), h("div", { class: "bar" }, h("input", {
    type: "search", class: "wide", "aria-label": "filter", value: view.params.filter ?? "", placeholder: "Filter: kind = search and best > 0.9",
    oninput: (event) => {
      view.set({ filter: event.target.value || null });
      draw();
    },
  }), check("archived", view.params.archived === "1", (on) => {
    view.set({ archived: on ? "1" : null });
    load();
  }), h("details", { class: "columns" }, h("summary", {}, "Columns"), h("div", {}, columnPicker(columns, new Set(wanted()), (names) => {
    view.set({ columns: names.join(",") });
    draw();
  }))), button("CSV", () => saveTable("experiments", table.columns, table.rows)), count, problem), table.element);
  await load();
  view.onChange(load, 1000);
}
