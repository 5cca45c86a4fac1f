// Asks the hub. A token is kept for this tab only, and sent in a header: no other page can make a browser send it.

import { save } from "./dom.js";

const TOKEN = "salamander-token";
const seen = new Map();
const KEPT = 200;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  if (token === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, token);
  seen.clear();
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

/// A file of the hub, for the person's own disk. Without a login the browser streams it by itself.
export async function download(path, name) {
  if (!hasToken()) {
    const link = Object.assign(document.createElement("a"), { href: `/api/v1/${path}`, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    return;
  }
  const response = await fetch(`/api/v1/${path}`, { headers: headers({}) });
  if (!response.ok) throw await failure(response);
  save(name, await response.blob());
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

/// One answer; one that has not changed since is not sent again.
export function get(path, params = {}, signal = undefined) {
  return ask(`/api/v1/${path}`, params, signal, (response) => response.json());
}

/// What the hub answers clients of MLflow's.
export function getMlflow(path, params, signal) {
  return ask(`/api/2.0/mlflow/${path}`, params, signal, (response) => response.json());
}

/// The same, as bytes.
export function getBytes(path, params, signal) {
  return ask(`/api/v1/${path}`, params, signal, (response) => response.arrayBuffer());
}

async function ask(place, params, signal, read) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
  const url = `${place}${query.size ? `?${query}` : ""}`;
  const before = seen.get(url);
  const response = await fetch(url, { headers: headers(before ? { "If-None-Match": before.tag } : {}), signal });
  if (response.status === 304 && before) return before.value;
  if (!response.ok) throw await failure(response);
  const value = await read(response);
  const tag = response.headers.get("ETag");
  if (tag) {
    if (seen.size >= KEPT) seen.delete(seen.keys().next().value);
    seen.set(url, { tag, value });
  }
  return value;
}

/// Does something, after the person has said yes.
export async function act(method, path, body) {
  const response = await fetch(`/api/v1/${path}`, {
    method, headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body ?? {}),
  });
  if (!response.ok) throw await failure(response);
  return response.status === 204 ? null : response.json().catch(() => null);
}

async function failure(response) {
  const said = await response.json().catch(() => ({}));
  return new ApiError(response.status, said.error ?? said.message ?? `the hub answered ${response.status}`);
}

/// All rows of a list, page by page; `each` is called with what is there so far.
export async function all(path, params, each, signal) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { limit: 1000, ...params, cursor }, signal);
    items.push(...page.items);
    cursor = page.next;
    each?.(items, page.total);
  } while (cursor);
  return items;
}

/// Until somebody sees the page.
function inSight(signal) {
  return new Promise((done) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

/// Server-sent events with our header, which EventSource cannot send. Goes on by itself until it is aborted. A browser
/// has six connections to a hub, for all its tabs: one that nobody looks at keeps none.
export async function stream(path, signal, each, state = () => {}) {
  let last = null;
  for (;;) {
    await inSight(signal);
    if (signal.aborted) return;
    const own = new AbortController();
    const leave = () => (document.hidden || signal.aborted) && own.abort();
    document.addEventListener("visibilitychange", leave);
    signal.addEventListener("abort", leave);
    try {
      const response = await fetch(`/api/v1/${path}`, { headers: headers(last ? { "Last-Event-ID": last } : {}), signal: own.signal });
      if (!response.ok) throw await failure(response);
      state(true);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        rest += value;
        const events = rest.split("\n\n");
        rest = events.pop();
        for (const text of events) last = deliver(text, each) ?? last;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
    } finally {
      document.removeEventListener("visibilitychange", leave);
      signal.removeEventListener("abort", leave);
    }
    state(false);
    if (!document.hidden) await new Promise((done) => setTimeout(done, 1000));
  }
}

function deliver(text, each) {
  const event = { type: "message", data: "", id: null };
  for (const line of text.split("\n")) {
    const [, field, value] = /^(event|data|id): ?(.*)$/.exec(line) ?? [];
    if (field === "event") event.type = value;
    else if (field === "data") event.data += value;
    else if (field === "id") event.id = value;
  }
  if (event.data) each(event.type, JSON.parse(event.data));
  return event.id;
}
