// The page: which view the address names, and the stream of changes that all views listen to.

import { ApiError, hasToken, setToken, stream } from "./api.js";
import { redrawAll } from "./chart.js";
import { showBox } from "./dialog.js";
import { fill, h } from "./dom.js";
import { cluster } from "./view_cluster.js";
import { compare } from "./view_compare.js";
import { experiments } from "./view_experiments.js";
import { models } from "./view_models.js";
import { pipelines } from "./view_pipelines.js";
import { run } from "./view_run.js";
import { runs } from "./view_runs.js";
import { search } from "./view_search.js";

const VIEWS = { runs, run, compare, experiments, search, cluster, models, pipelines };
const main = document.getElementById("main");
let current = null;
const listeners = new Set();

/// `#/run/3.1/curves?x=epoch` is the view `run` with two parts and its parameters.
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  return { name: parts[0] || "runs", parts: parts.slice(1), params: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/// A part of an address; one that was not encoded is as it stands.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(parts, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
  return `#/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

/// Two changes as one; without a list, anything may have changed.
function merged(a, b) {
  if (!a) return b;
  const both = (name) => (a[name] && b[name] ? [...new Set([...a[name], ...b[name]])] : undefined);
  return { experiments: both("experiments"), runs: both("runs"), logs: both("logs"), models: a.models || b.models || !a.runs || !b.runs };
}

async function show() {
  current?.end.abort();
  const { name, parts, params } = address();
  const end = new AbortController();
  const view = {
    parts, params, link, end, signal: end.signal, name,
    /// Changes the address without leaving the view.
    set(changes) {
      for (const [key, value] of Object.entries(changes)) {
        if (value === null || value === undefined) delete params[key];
        else params[key] = String(value);
      }
      history.replaceState(null, "", link([name, ...parts], params));
    },
    /// Calls `act` with what has changed, at most so often; what changes meanwhile is in the next call.
    onChange(act, every = 500) {
      let [due, busy, waiting] = [null, false, null];
      const soon = () => {
        due ??= setTimeout(async () => {
          due = null;
          if (busy) return soon();
          const change = waiting;
          [busy, waiting] = [true, null];
          try {
            await act(change);
          } catch (error) {
            if (!end.signal.aborted) console.warn(String(error));
          }
          busy = false;
        }, every);
      };
      const heard = (change) => {
        waiting = merged(waiting, change);
        soon();
      };
      listeners.add(heard);
      end.signal.addEventListener("abort", () => {
        listeners.delete(heard);
        clearTimeout(due);
      });
    },
  };
  current = view;
  for (const anchor of document.querySelectorAll("header nav a")) {
    const on = anchor.getAttribute("href") === `#/${{ run: "runs", search: "experiments" }[name] ?? name}`;
    on ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  }
  document.getElementById("logout").hidden = !hasToken();
  const body = h("div", { class: `view ${Object.hasOwn(VIEWS, name) ? name : ""}` });
  fill(main, body);
  if (!Object.hasOwn(VIEWS, name)) {
    fill(body, h("h1", {}, "There is no such view"), h("p", {}, h("a", { href: "#/runs" }, "All runs")));
    body.dataset.ready = "1";
    return;
  }
  try {
    await VIEWS[name](body, view);
    body.dataset.ready = "1";
  } catch (error) {
    if (end.signal.aborted) return;
    failed(body, error);
  }
}

function failed(body, error) {
  if (error instanceof ApiError && (error.status === 401 || error.status === 429)) {
    const input = h("input", { type: "password", autocomplete: "current-password", "aria-label": "token" });
    const wrong = hasToken() && h("p", { class: "error", role: "alert" }, error.message);
    fill(body, h("section", { class: "card login" }, h("h1", {}, "Log in"),
      h("p", { class: "soft" }, "This hub asks for a token; ", h("code", {}, "salamander hub token NAME"), " makes one. It is kept until this tab is closed."),
      h("form", {
        onsubmit: (event) => {
          event.preventDefault();
          setToken(input.value.trim());
          show();
          follow();
        },
      }, input, h("button", { class: "main" }, "Log in")), wrong));
    input.focus();
    return;
  }
  fill(body, h("h1", {}, "This did not work"), h("p", { class: "error", role: "alert" }, error.message),
    h("p", {}, h("a", { href: "#/runs" }, "All runs")));
}

let following = null;
function follow() {
  following?.abort();
  following = new AbortController();
  const live = document.getElementById("live");
  const told = (type, change) => {
    for (const listener of listeners) listener(change);
  };
  let lost = false;
  const state = (on) => {
    live.textContent = on ? "live" : "not connected";
    live.classList.toggle("on", on);
    // What has changed while nobody told of it is not told later.
    if (on && lost) told("reset", {});
    lost = !on;
  };
  stream("events", following.signal, told, state).catch((error) => {
    state(false);
    // The token is good no more: a view that is there says nothing of it by itself.
    if (error.status === 401 && main.querySelector(".view[data-ready]")) show();
  });
}

/// Light or dark: as the system says, until somebody chooses.
const system = matchMedia("(prefers-color-scheme: dark)");
function chosenTheme() {
  try {
    return localStorage.getItem("salamander-theme");
  } catch {
    return null;
  }
}
function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme() ?? (system.matches ? "dark" : "light");
}
function turnTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("salamander-theme", next);
  } catch {
    // A browser that keeps nothing follows its system.
  }
  applyTheme();
  redrawAll();
  show();
}
applyTheme();
system.addEventListener("change", () => {
  applyTheme();
  redrawAll();
});

const KEYS = [["/", "look for something in this view"], ["g r", "runs"], ["g e", "experiments"], ["g c", "compare"], ["g k", "cluster"], ["g m", "models"], ["g p", "pipelines"],
  ["\u2191 \u2193", "go through a table"], ["Enter", "open the row"], ["Space", "choose the row"], ["+ \u2212 0 \u2190 \u2192", "zoom and move a chart"], ["t", "light or dark"], ["?", "this help"]];
function showHelp() {
  showBox("Keys", h("dl", {}, KEYS.map(([key, text]) => [h("dt", {}, key.split(" ").map((one) => [h("kbd", {}, one), " "])), h("dd", {}, text)])),
    h("p", { class: "soft" }, "Drag over a chart to zoom, click twice for the whole. The address holds the view: copy it to send it."),
    h("p", { class: "soft" }, "Filters: ", h("code", {}, "state = running and validation/loss < 0.3 or not name ~ old")));
}
const PLACES = { r: "#/runs", e: "#/experiments", c: "#/compare", k: "#/cluster", m: "#/models", p: "#/pipelines" };
let going = 0;
window.addEventListener("keydown", (event) => {
  const busy = event.target.closest?.("input, select, textarea, dialog");
  if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
  if (Date.now() - going < 1500 && PLACES[event.key]) {
    going = 0;
    location.hash = PLACES[event.key];
  } else if (event.key === "g") {
    going = Date.now();
  } else if (event.key === "/") {
    const input = main.querySelector("input[type=search]");
    if (!input) return;
    event.preventDefault();
    input.focus();
  } else if (event.key === "t") {
    turnTheme();
  } else if (event.key === "?") {
    showHelp();
  }
});
document.getElementById("theme").addEventListener("click", turnTheme);
document.getElementById("help").addEventListener("click", showHelp);
document.getElementById("logout").addEventListener("click", () => {
  setToken(null);
  show();
  follow();
});
window.addEventListener("hashchange", show);
show();
follow();
