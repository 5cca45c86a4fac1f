// All runs: a flat table with a choice of columns, sorted by any, filtered by a small language, grouped if wanted.

import { act, all, get } from "./api.js";
import { groupOf, FIELDS } from "./curves.js";
import { ask, attempt } from "./dialog.js";
import { button, check, fileName, fill, h, save, select } from "./dom.js";
import { parse } from "./filter.js";
import { csvCell, duration, flat, number, time } from "./format.js";
import { mergeRuns, neededMetrics, sortBy, Table } from "./table.js";
import { curveCharts } from "./view_compare.js";

const USUAL = ["name", "state", "model", "progress", "best", "loss", "started", "duration", "labels"];
/// Curves of groups are those of so many runs at most.
const GROUPED = 300;
/// Runs that are asked for one by one when they have changed; of more the whole list is.
const FEW = 200;

export function state(row) {
  const known = /^[a-z_]+$/.test(row.state) ? row.state.split("_")[0] : "";
  return h("span", { class: `state ${known}`, title: row.reason ?? null }, row.state);
}

export function prepare(run) {
  run.flat = flat(run.hparams);
  run.duration = run.started ? (run.ended ?? Date.now()) - run.started : null;
  return run;
}

/// A bar with how much is done.
export function meter(share, text) {
  return h("span", { class: "meter" }, text, h("span", { "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(0, Math.min(1, share)) * 100}%` } })));
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
      cell: (row) => (row.total_steps && row.state === "running" ? meter(row.steps / row.total_steps, number(row.steps)) : number(row.steps)) },
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

/// The metrics that rows have.
export function metricNames(rows) {
  const names = new Set();
  for (const row of rows) for (const name of Object.keys(row.metrics ?? {})) if (name !== "time") names.add(name);
  return [...names].sort();
}

export function metricColumns(names) {
  return names.map((name) => ({
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

/// Columns that can be shown, with a box each and a search over them.
export function columnPicker(columns, on, changed) {
  const list = h("div");
  const draw = (part) => fill(list, columns.filter(({ title }) => title.toLowerCase().includes(part)).slice(0, 300).map((column) => h("label", {}, h("input", {
    type: "checkbox", checked: on.has(column.key), onchange: (event) => {
      event.target.checked ? on.add(column.key) : on.delete(column.key);
      changed([...on]);
    },
  }), ` ${column.title}`)));
  draw("");
  return [h("input", { type: "search", placeholder: "find a column", "aria-label": "find a column", oninput: (event) => draw(event.target.value.toLowerCase()) }), list];
}

/// The table as a file for other programs.
export function saveTable(name, columns, rows) {
  const lines = [columns.map(({ title }) => csvCell(title)), ...rows.map((row) => columns.map((column) => csvCell(column.value(row))))];
  save(fileName(name, ".csv"), new Blob([lines.map((line) => line.join(",")).join("\n") + "\n"], { type: "text/csv" }));
}

/// Groups as rows: how many runs, and mean, smallest and largest of what they measured.
export function groupRows(rows, group) {
  const groups = new Map();
  for (const row of rows) {
    const key = groupOf(row, group);
    const members = groups.get(key);
    if (members) members.push(row);
    else groups.set(key, [row]);
  }
  return [...groups].map(([name, members]) => ({ id: name, name, members, count: members.length }));
}

function groupColumns(view, group, columns) {
  const measured = (values) => {
    const numbers = values.filter((value) => typeof value === "number" && Number.isFinite(value));
    if (!numbers.length) return null;
    const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
    return { mean, low: Math.min(...numbers), high: Math.max(...numbers) };
  };
  const wanted = columns.filter(({ num, key }) => num && !["experiment", "epoch"].includes(key));
  return [
    { key: "name", title: group, value: (row) => row.name,
      cell: (row) => h("a", { href: view.link(["compare"], { runs: row.members.slice(0, GROUPED).map(({ id }) => id).join(",") }) }, row.name) },
    { key: "count", title: "runs", num: true, value: (row) => row.count },
    ...wanted.map((column) => {
      const of = (row) => measured(row.members.map(column.value));
      const shown = (value) => (column.key === "duration" ? duration(value) : number(value, 4));
      return { key: column.key, title: `${column.title}: mean`, num: true, value: (row) => of(row)?.mean, cell: (row) => {
        const found = of(row);
        return found === null ? "" : h("span", { title: "mean, and smallest to largest" }, shown(found.mean),
          found.low < found.high && h("span", { class: "soft" }, ` (${shown(found.low)} \u2013 ${shown(found.high)})`));
      } };
    }),
  ];
}

export async function runs(body, view) {
  let [rows, shownRows, columns] = [[], [], ownColumns(view)];
  const chosen = new Set((view.params.chosen ?? "").split(",").filter(Boolean));
  const wanted = () => (view.params.columns ? view.params.columns.split(",") : USUAL);
  const count = h("span", { class: "soft", role: "status" });
  const problem = h("span", { class: "error", role: "alert" });
  const [picker, doing, grouping, below] = [h("div"), h("div", { class: "bar" }), h("span"), h("div")];
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
    type: "search", class: "wide", value: view.params.filter ?? "", placeholder: "Filter: state = running and loss < 0.3 and hparam.lr > 0.01",
    "aria-label": "filter", oninput: (event) => {
      view.set({ filter: event.target.value || null });
      draw();
      drawGroups();
    },
  });
  // Runs may have thousands of metrics: those that the table has nothing to do with are not asked for.
  let [names, loaded, due] = [[], null, null];
  const needed = () => neededMetrics(names, { columns: wanted(), sort: view.params.sort, filter: view.params.filter ?? "" });
  const metrics = () => (loaded ? loaded.join(",") : "*");
  const loadMissing = () => {
    if (!loaded || needed()?.every((name) => loaded.includes(name))) return;
    clearTimeout(due);
    due = setTimeout(() => load().catch((error) => !view.signal.aborted && (problem.textContent = error.message)), 250);
  };
  const told = () => fill(doing, chosenBar(view, { chosen, rows, clear: () => {
    chosen.clear();
    table.choose();
    draw();
  }, changed: () => load() }));
  const shownColumns = () => wanted().map((name) => columns.find((column) => column.key === name)).filter(Boolean);
  const draw = () => {
    let shown = rows;
    problem.textContent = "";
    try {
      shown = rows.filter(parse(view.params.filter ?? ""));
    } catch (error) {
      problem.textContent = error.message;
    }
    const { group } = view.params;
    const sort = view.params.sort ?? (group ? "-count" : "-started");
    shownRows = shown;
    table.chosen = group ? null : chosen;
    table.columns = group ? groupColumns(view, group, shownColumns()) : shownColumns();
    table.set(group ? sortBy(groupRows(shown, group), table.columns, sort) : sortBy(shown, columns, sort), sort);
    const all = shown.length === rows.length ? `${number(rows.length)} runs` : `${number(shown.length)} of ${number(rows.length)} runs`;
    count.textContent = group ? `${table.rows.length} groups, ${all}` : all;
    loadMissing();
  };
  let charts = null;
  const drawGroups = () => {
    if (!view.params.group) {
      charts = null;
      fill(below);
      return;
    }
    const some = shownRows.slice(0, GROUPED);
    if (charts) return charts.update(some);
    const area = h("div");
    fill(below, h("h2", {}, "Curves of the groups: mean, and a band from the smallest to the largest"), area);
    const watched = new Set(some.map((run) => `validation/${run.metric}`));
    charts = curveCharts(area, view, some, { usual: (name) => name === "loss" || watched.has(name), known: loaded && names });
  };
  const drawGrouping = () => {
    const names = [...new Set(rows.slice(0, 2000).flatMap((row) => Object.keys(row.flat)))].sort();
    const varied = names.filter((name) => new Set(rows.slice(0, 2000).map((row) => String(row.flat[name]))).size > 1);
    const known = view.params.group && ![...FIELDS, ...varied].includes(view.params.group) ? [view.params.group] : [];
    fill(grouping, select("group by", [["", "nothing"], ...[...FIELDS, ...varied, ...known].map((name) => [name, name])], view.params.group ?? "", (value) => {
      view.set({ group: value || null, sort: null });
      draw();
      drawGroups();
    }));
  };
  fill(body, h("h1", {}, "Runs"),
    h("div", { class: "bar" }, input, grouping,
      check("archived", view.params.archived === "1", (on) => {
        view.set({ archived: on ? "1" : null });
        load();
      }),
      h("details", { class: "columns" }, h("summary", {}, "Columns"), picker),
      button("CSV", () => saveTable("runs", table.columns, table.rows), { title: "Save the table as it is shown" }),
      button("Choose all shown", () => {
        for (const row of shownRows.slice(0, 500)) chosen.add(row.id);
        table.choose();
        draw();
      }), count, problem),
    doing, table.element, below);
  const load = async () => {
    const archived = view.params.archived === "1" ? "true" : null;
    names = (await get("metric-names", {}, view.signal)).filter((name) => name !== "time");
    loaded = needed();
    const items = await all("runs", { metrics: metrics(), archived, sort: "-started" }, (items) => items.length === 1000 && take([...items]), view.signal);
    take(items);
    drawRest();
  };
  const take = (items) => {
    rows = items.map((run) => (run.flat ? run : prepare(run)));
    const some = rows.slice(0, 2000);
    columns = [...ownColumns(view), ...metricColumns(loaded ? names : metricNames(some)), ...hparamColumns(some)];
    draw();
  };
  const drawRest = () => {
    if (!picker.contains(document.activeElement)) {
      fill(picker, columnPicker(columns, new Set(wanted()), (names) => {
        view.set({ columns: names.join(",") });
        draw();
      }));
    }
    if (!grouping.contains(document.activeElement)) drawGrouping();
    drawGroups();
    told();
  };
  await load();
  if (!rows.length) fill(below, h("p", { class: "empty" }, "There are no runs here yet. ", h("code", {}, "salamander train experiment.yaml"), " makes one."));
  // A list of thousands is not fetched again for the few that are being trained.
  view.onChange(async (change) => {
    const [changed, touched] = [change?.runs, new Set(change?.runs?.map((id) => Number(id.split(".")[0])))];
    if (!changed || changed.length > FEW || !change.experiments?.every((id) => touched.has(id))) return load();
    if (!changed.length) return;
    const page = await get("runs", { ids: changed.join(","), limit: FEW, metrics: metrics(), archived: "true" }, view.signal);
    const isShown = (run) => view.params.archived === "1" || !run.archived;
    take(mergeRuns(rows, changed, page.items.map((run) => ({ ...run })), isShown));
    drawRest();
  }, 1000);
}

/// What can be done with the runs that are chosen.
function chosenBar(view, { chosen, rows, clear, changed }) {
  if (!chosen.size) return null;
  const some = rows.filter((row) => chosen.has(row.id));
  const experiments = [...new Set(some.map((row) => row.experiment))];
  const each = async (call, done) => {
    if (await attempt(async () => {
      for (const id of experiments) await call(id);
    }, done)) await changed();
  };
  const what = experiments.length === 1 ? `experiment ${experiments[0]}` : `${experiments.length} experiments`;
  const archived = some.some((row) => row.archived);
  return [h("a", { class: "button", href: view.link(["compare"], { runs: [...chosen].join(",") }) }, `Compare ${chosen.size}`),
    button("Label\u2026", async () => {
      const answer = await ask({ title: "Add a label", text: `Labels are those of experiments: ${what}.`, confirm: "Add label", fields: [{ name: "label", label: "Label", required: true }] });
      if (answer?.label.trim()) each((id) => act("PATCH", `experiments/${id}`, { add_labels: [answer.label.trim()] }), "Labelled");
    }),
    button(archived ? "Unarchive\u2026" : "Archive\u2026", async () => {
      const verb = archived ? "unarchive" : "archive";
      if (await ask({ title: `${archived ? "Unarchive" : "Archive"} ${what}?`, text: archived ? "Lists show it again." : "Lists leave it out; nothing is deleted.", confirm: archived ? "Unarchive" : "Archive" })) each((id) => act("POST", `experiments/${id}/${verb}`), "Done");
    }), button("Choose none", clear)];
}
