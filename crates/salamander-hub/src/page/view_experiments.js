// Experiments: one file each, with one trial or a search.

import { all } from "./api.js";
import { fill, h } from "./dom.js";
import { parse } from "./filter.js";
import { number, time } from "./format.js";
import { sortBy, Table } from "./table.js";
import { state } from "./view_runs.js";

export async function experiments(body, view) {
  let rows = [];
  const columns = [
    { key: "id", title: "id", num: true, value: (row) => row.id },
    { key: "name", title: "experiment", value: (row) => row.name, cell: (row) => h("a", { href: view.link(["search", row.id]) }, row.name) },
    { key: "state", title: "state", value: (row) => row.state, cell: state },
    { key: "kind", title: "kind", value: (row) => row.kind },
    { key: "trials", title: "trials", num: true, value: (row) => row.trials },
    { key: "best", title: "best", num: true, value: (row) => row.best, cell: (row) => (row.best === null ? "" : h("span", { title: row.metric }, number(row.best))) },
    { key: "progress", title: "done", num: true, value: (row) => row.progress, cell: (row) => (row.progress === null ? "" : `${Math.round(row.progress * 100)} %`) },
    { key: "created", title: "created", value: (row) => row.created, cell: (row) => time(row.created) },
    { key: "labels", title: "labels", value: (row) => row.labels.join(" "), cell: (row) => row.labels.map((label) => h("span", { class: "label" }, label)) },
  ];
  const problem = h("span", { class: "error", role: "alert" });
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
    table.set(sortBy(shown, columns, sort), sort);
  };
  fill(body, h("h1", {}, "Experiments"), h("div", { class: "bar" }, h("input", {
    type: "search", "aria-label": "filter", value: view.params.filter ?? "", placeholder: "kind = search and best > 0.9",
    oninput: (event) => {
      view.set({ filter: event.target.value || null });
      draw();
    },
  }), problem), table.element);
  const load = async () => {
    rows = [...await all("experiments", {}, null, view.signal)];
    draw();
  };
  await load();
  view.onChange(load, 1000);
}
