// Logs of a run: followed while they are written, searched by words.

import { get, stream } from "./api.js";
import { check, fill, h } from "./dom.js";
import { number, plain } from "./format.js";

/// Lines that are kept in the page, and characters of a line.
const KEPT = 5000;
const LONGEST = 4000;

/// A line with the words that were looked for.
function marked(line, search) {
  const text = line.length > LONGEST ? `${line.slice(0, LONGEST)}\u2026 (${number(line.length)} characters)` : line;
  const words = (search ?? "").split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return text;
  return text.split(new RegExp(`(${words.join("|")})`, "i")).map((part, at) => (at % 2 ? h("mark", {}, part) : part));
}

export async function logs(area, view, own, path) {
  const lines = h("div");
  const box = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "log" }, lines);
  const count = h("span", { class: "soft" });
  let [last, ending, seen] = [null, null, 0];
  const show = (found) => {
    const follow = view.params.follow !== "0";
    lines.append(...found.map((line) => h("div", { class: line.level === "error" ? "error" : line.level === "warn" ? "warn" : null },
      h("span", { class: "process" }, `${line.process} `), marked(plain(line.text), view.params.search))));
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
    h("input", { type: "search", "aria-label": "search in logs", placeholder: "Search: words, the last one may be a beginning", value: view.params.search ?? "", oninput: changed("search") }),
    h("label", { class: "field" }, "process ", h("input", { size: "10", value: view.params.process ?? "", placeholder: "worker-0", list: "processes", oninput: changed("process") }), h("datalist", { id: "processes" }, ["master", "worker-0", "worker-1", "ps-0", "console"].map((one) => h("option", { value: one })))),
    h("label", { class: "field" }, "level ", h("select", { onchange: changed("level") }, levels.map((level) => h("option", { value: level, selected: (view.params.level ?? "") === level }, level || "all")))),
    check("follow", view.params.follow !== "0", (on) => {
      view.set({ follow: on ? null : "0" });
      if (on) box.scrollTop = box.scrollHeight;
    }), count), box);
  await load();
}
