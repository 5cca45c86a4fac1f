// All runs: a flat table with a choice of columns, sorted by any, filtered by a small language.

import { all } from "./api.js";
import { button, fill, h } from "./dom.js";
import { parse } from "./filter.js";
import { duration, flat, number, time } from "./format.js";
import { sortBy, Table } from "./table.js";

const USUAL = ["name", "state", "model", "progress", "best", "loss", "started", "duration", "labels"];

export function state(row) {
  const known = /^[a-z_]+$/.test(row.state) ? row.state : "";
  return h("span", { class: `state ${known}`, title: row.reason ?? null }, row.state);
}

export function prepare(run) {
  run.flat = flat(run.hparams);
  run.duration = run.started ? (run.ended ?? Date.now()) - run.started : null;
  return run;
}

export function ownColumns(view) {
  return [
    { key: "name", title: "run", value: (row) => row.name, cell: (row) => h("a", { href: view.link(["run", row.id]) }, row.name) },
    { key: "id", title: "id", value: (row) => row.id },
    { key: "state", title: "state", value: (row) => row.state, cell: state },
    { key: "model", title: "model", value: (row) => row.model },
    { key: "experiment", title: "experiment", value: (row) => row.experiment, num: true,
      cell: (row) => h("a", { href: view.link(["search", row.experiment]) }, row.experiment) },
    { key: "progress", title: "steps", num: true, value: (row) => row.steps,
      cell: (row) => `${number(row.steps)}${row.total_steps ? ` / ${number(row.total_steps)}` : ""}` },
    { key: "epoch", title: "epoch", num: true, value: (row) => row.epoch + 1 },
    { key: "best", title: "best", num: true, value: (row) => row.best,
      cell: (row) => (row.best === null ? "" : h("span", { title: row.metric }, number(row.best))) },
    { key: "workers", title: "workers", num: true, value: (row) => row.workers },
    { key: "parameters", title: "parameters", num: true, value: (row) => row.parameters, cell: (row) => number(row.parameters) },
    { key: "started", title: "started", value: (row) => row.started, cell: (row) => time(row.started) },
    { key: "duration", title: "duration", num: true, value: (row) => row.duration, cell: (row) => duration(row.duration) },
    { key: "labels", title: "labels", value: (row) => (row.labels ?? []).join(" "),
      cell: (row) => (row.labels ?? []).map((label) => h("span", { class: "label" }, label)) },
    { key: "owner", title: "owner", value: (row) => row.owner },
  ];
}

export function metricColumns(rows) {
  const names = new Set();
  for (const row of rows) for (const name of Object.keys(row.metrics ?? {})) if (name !== "time") names.add(name);
  return [...names].sort().map((name) => ({
    key: name, title: name, num: true, value: (row) => row.metrics?.[name], cell: (row) => (row.metrics && name in row.metrics ? number(row.metrics[name]) : ""),
  }));
}

export function hparamColumns(rows) {
  const names = new Set();
  for (const row of rows) for (const name of Object.keys(row.flat)) names.add(name);
  return [...names].sort().map((name) => ({
    key: `hparam.${name}`, title: name, value: (row) => row.flat[name], num: rows.every((row) => typeof (row.flat[name] ?? 0) === "number"),
    cell: (row) => (typeof row.flat[name] === "number" ? number(row.flat[name]) : String(row.flat[name] ?? "")),
  }));
}

export async function runs(body, view) {
  let rows = [];
  let columns = ownColumns(view);
  const chosen = new Set((view.params.chosen ?? "").split(",").filter(Boolean));
  const wanted = () => (view.params.columns ? view.params.columns.split(",") : USUAL);
  const count = h("span", { class: "soft", role: "status" });
  const problem = h("span", { class: "error", role: "alert" });
  const compareLink = h("a", { href: "#/compare" }, "");
  const picker = h("div");
  const table = new Table({
    columns: [], chosen, label: "runs",
    choose: () => {
      view.set({ chosen: chosen.size ? [...chosen].join(",") : null });
      told();
    },
    sorted: (sort) => {
      view.set({ sort });
      draw();
    },
  });
  const input = h("input", {
    type: "search", value: view.params.filter ?? "", placeholder: "state = running and loss < 0.3 and hparam.lr > 0.01",
    "aria-label": "filter", oninput: (event) => {
      view.set({ filter: event.target.value || null });
      draw();
    },
  });
  const told = () => {
    compareLink.textContent = chosen.size ? `compare ${chosen.size}` : "";
    compareLink.href = view.link(["compare"], { runs: [...chosen].join(",") });
  };
  const draw = () => {
    let shown = rows;
    problem.textContent = "";
    try {
      shown = rows.filter(parse(view.params.filter ?? ""));
    } catch (error) {
      problem.textContent = error.message;
    }
    const names = wanted();
    table.columns = names.map((name) => columns.find((column) => column.key === name)).filter(Boolean);
    const sort = view.params.sort ?? "-started";
    table.set(sortBy(shown, columns, sort), sort);
    count.textContent = shown.length === rows.length ? `${rows.length} runs` : `${shown.length} of ${rows.length} runs`;
    shownRows = shown;
  };
  let shownRows = [];
  const drawPicker = () => {
    const on = new Set(wanted());
    fill(picker, columns.map((column) => h("label", {}, h("input", {
      type: "checkbox", checked: on.has(column.key), onchange: (event) => {
        event.target.checked ? on.add(column.key) : on.delete(column.key);
        view.set({ columns: [...on].join(",") });
        draw();
      },
    }), ` ${column.title}`)));
  };
  fill(body, h("h1", {}, "Runs"),
    h("div", { class: "bar" }, input, problem,
      h("details", { class: "columns" }, h("summary", {}, "columns"), picker),
      button("choose all shown", () => {
        for (const row of shownRows.slice(0, 500)) chosen.add(row.id);
        table.choose();
        draw();
      }),
      button("choose none", () => {
        chosen.clear();
        table.choose();
        draw();
      }), compareLink, count),
    table.element);
  const load = async () => {
    const archived = view.params.archived === "1" ? "true" : null;
    const take = (items) => {
      rows = items.map((run) => (run.flat ? run : prepare(run)));
      columns = [...ownColumns(view), ...metricColumns(rows.slice(0, 2000)), ...hparamColumns(rows.slice(0, 2000))];
      draw();
    };
    const items = await all("runs", { metrics: "*", archived, sort: "-started" }, (items) => items.length === 1000 && take([...items]), view.signal);
    take(items);
    drawPicker();
  };
  told();
  await load();
  view.onChange(load, 1000);
}
