// The page: which view the address names, and the stream of changes that all views listen to.

import { ApiError, setToken, stream } from "./api.js";
import { fill, h } from "./dom.js";
import { cluster } from "./view_cluster.js";
import { compare } from "./view_compare.js";
import { experiments } from "./view_experiments.js";
import { models } from "./view_models.js";
import { run } from "./view_run.js";
import { runs } from "./view_runs.js";
import { search } from "./view_search.js";

const VIEWS = { runs, run, compare, experiments, search, cluster, models };
const main = document.getElementById("main");
let current = null;
const listeners = new Set();

/// `#/run/3.1/curves?x=epoch` is the view `run` with two parts and its parameters.
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  return { name: parts[0] || "runs", parts: parts.slice(1), params: Object.fromEntries(new URLSearchParams(query ?? "")) };
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
  for (const anchor of document.querySelectorAll("nav a")) {
    const on = anchor.getAttribute("href") === `#/${name}`;
    on ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  }
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
  if (error instanceof ApiError && error.status === 401) {
    const input = h("input", { type: "password", autocomplete: "current-password", "aria-label": "token" });
    fill(body, h("h1", {}, "Log in"), h("p", {}, "This hub asks for a token: `salamander hub token NAME` makes one."),
      h("form", {
        onsubmit: (event) => {
          event.preventDefault();
          setToken(input.value);
          show();
          follow();
        },
      }, input, " ", h("button", {}, "Log in")), h("p", { class: "error" }, error.message));
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
  const state = (on) => {
    live.textContent = on ? "live" : "not connected";
    live.classList.toggle("on", on);
  };
  const told = (type, change) => {
    for (const listener of listeners) listener(change);
  };
  stream("events", following.signal, told, state).catch(() => state(false));
}

window.addEventListener("hashchange", show);
show();
follow();
