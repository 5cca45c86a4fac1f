// A table of any length: only the rows that are in sight are in the page.

import { fill, h } from "./dom.js";

const ROW = 32;
const MORE = 12;

/// Columns: {key, title, value(row), cell(row), num}. `chosen` is a set of ids, or null where nothing can be chosen.
export class Table {
  constructor({ columns, chosen = null, choose = () => {}, sorted = () => {}, mark = () => null, label }) {
    Object.assign(this, { columns, chosen, choose, sorted, mark });
    this.rows = [];
    this.head = h("thead");
    this.body = h("tbody");
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      h("table", { "aria-label": label }, this.head, this.body));
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.active = -1;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  set(rows, sort) {
    this.rows = rows;
    this.sort = sort;
    this.element.querySelector("table").setAttribute("aria-rowcount", rows.length + 1);
    this.drawHead();
    this.drawn = null;
    this.draw();
  }

  drawHead() {
    const cell = (column) => {
      const on = this.sort && this.sort.replace(/^-/, "") === column.key;
      const down = on && this.sort.startsWith("-");
      return h("th", { class: column.num ? "num" : null, "aria-sort": on ? (down ? "descending" : "ascending") : null, scope: "col" },
        h("button", { type: "button", onclick: () => this.sorted(on && !down ? `-${column.key}` : column.key) },
          column.title + (on ? (down ? " \u2193" : " \u2191") : "")));
    };
    fill(this.head, h("tr", {}, this.chosen && h("th", {}, ""), this.columns.map(cell)));
  }

  /// Up and down go through the rows, Enter opens one, Space chooses it.
  key(event) {
    if (event.target !== this.element) return;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
    const row = this.rows[this.active];
    if (event.key in moves) {
      this.active = Math.max(0, Math.min(this.rows.length - 1, this.active + moves[event.key]));
      const [top, bottom] = [this.active * ROW, (this.active + 2) * ROW];
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      if (bottom > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = bottom - this.element.clientHeight;
    } else if (event.key === "Enter" && row) {
      this.body.querySelector("tr.active a")?.click();
    } else if (event.key === " " && row && this.chosen) {
      this.chosen.has(row.id) ? this.chosen.delete(row.id) : this.chosen.add(row.id);
      this.choose();
    } else {
      return;
    }
    event.preventDefault();
    this.drawn = null;
    this.draw();
  }

  draw() {
    const height = this.element.clientHeight || 600;
    const from = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MORE);
    const to = Math.min(this.rows.length, from + Math.ceil(height / ROW) + 2 * MORE);
    const key = `${from}-${to}`;
    if (this.drawn === key) return;
    this.drawn = key;
    const space = (rows) => rows > 0 && h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: this.columns.length + 1, style: { height: `${rows * ROW}px` } }));
    fill(this.body, space(from), this.rows.slice(from, to).map((row, at) => this.row(row, from + at)), space(this.rows.length - to));
  }

  row(row, at) {
    const cell = (column) => h("td", { class: column.num ? "num" : null, title: column.num ? null : text(column.value(row)) },
      column.cell ? column.cell(row) : text(column.value(row)));
    const pick = this.chosen && h("td", {}, h("input", {
      type: "checkbox", checked: this.chosen.has(row.id), "aria-label": `choose ${row.name ?? row.id}`,
      onchange: (event) => {
        event.target.checked ? this.chosen.add(row.id) : this.chosen.delete(row.id);
        this.choose();
      },
    }));
    const classes = [this.mark(row), at === this.active ? "active" : null].filter(Boolean).join(" ");
    return h("tr", { class: classes || null, "aria-selected": at === this.active ? "true" : null, "aria-rowindex": at + 2 }, pick, this.columns.map(cell));
  }
}

function text(value) {
  return value === null || value === undefined ? "" : String(value);
}

/// Runs after some of them have changed: `fresh` are those as they are now, and what is new comes first. What is said of
/// their experiments holds for all runs of these; `isShown` says which stay.
export function mergeRuns(rows, changed, fresh, isShown) {
  const [now, experiments] = [new Map(fresh.map((run) => [run.id, run])), new Map(fresh.map((run) => [run.experiment, run]))];
  const [gone, known] = [new Set(changed), new Set(rows.map((row) => row.id))];
  const kept = rows.filter((row) => now.has(row.id) || !gone.has(row.id)).map((row) => {
    const other = experiments.get(row.experiment);
    return now.get(row.id) ?? (other ? { ...row, labels: other.labels, archived: other.archived } : row);
  });
  return [...fresh.filter((run) => !known.has(run.id)), ...kept].filter(isShown);
}

/// So many metrics are asked for with every row; of more, those that a table needs.
const MANY = 40;

/// Of the metrics of all runs those that a table needs: that it shows, is sorted by, or looks for. `null`: all of them.
export function neededMetrics(names, { columns, sort, filter }) {
  if (names.length <= MANY) return null;
  const wanted = new Set([...columns, (sort ?? "").replace(/^-/, "")]);
  return names.filter((name) => wanted.has(name) || filter.includes(name));
}

/// Sorts by a column; what has no value comes last, whichever way it is sorted.
export function sortBy(rows, columns, sort) {
  const column = columns.find((one) => one.key === (sort ?? "").replace(/^-/, ""));
  if (!column) return rows;
  const down = sort.startsWith("-") ? -1 : 1;
  const absent = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);
  return rows.map((row) => [column.value(row), row]).sort(([a], [b]) => {
    if (absent(a) || absent(b)) return absent(a) - absent(b);
    if (typeof a === "number" && typeof b === "number") return down * (a - b);
    return down * String(a).localeCompare(String(b), "en", { numeric: true });
  }).map(([, row]) => row);
}
