// Asks the server what it has, lets people try it, and watches it.

import { draw } from "/page/chart.js";
import { fields } from "/page/form.js";
import { counts, percentile, requests } from "/page/metrics.js";

const by = (id) => document.getElementById(id);
const token = () => by("token").value;
let [record, looked, points] = [() => ({}), null, []];

async function ask(path, body) {
  const headers = token() ? { authorization: `Bearer ${token()}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body: body && JSON.stringify(body) });
  if (answer.status === 401) by("token-field").hidden = false;
  if (!answer.ok) {
    const told = await answer.text();
    let error = told;
    try { error = JSON.parse(told).error ?? told; } catch { /* it was no JSON: it is shown as it is */ }
    throw new Error(error);
  }
  return answer;
}

function table(head, rows) {
  const made = document.createElement("table");
  const line = (cells, kind) => {
    const row = made.insertRow();
    for (const text of cells) {
      const cell = document.createElement(kind);
      cell.append(text);
      row.append(cell);
    }
  };
  if (head) line(head, "th");
  rows.forEach((cells) => line(cells, "td"));
  return made;
}

async function showModels() {
  const index = await (await ask("/v2/repository/index", {})).json();
  const rows = [];
  const names = [...new Set(index.map((model) => model.name))];
  for (const { name, version, state, reason } of index) {
    const about = state === "READY" ? await (await ask(`/v2/models/${name}/versions/${version}`)).json() : { inputs: [], outputs: [] };
    const list = (tensors) => tensors.map((tensor) => `${tensor.name} ${tensor.datatype} ${JSON.stringify(tensor.shape)}`).join("\n");
    rows.push([name, version, reason ? `${state}: ${reason}` : state, list(about.inputs), list(about.outputs)]);
  }
  by("models").replaceChildren(table(["name", "version", "state", "inputs", "outputs"], rows));
  const chosen = by("model").value;
  by("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  by("state").textContent = index.every((model) => model.state === "READY") ? "ready" : "not all models are ready";
}

async function showForm() {
  [looked, points] = [null, []];
  by("answer").replaceChildren();
  by("problem").textContent = "";
  const about = await (await ask(`/v2/models/${by("model").value}`)).json();
  record = fields(by("form"), about.inputs);
}

/** Values of an output: one as it is, several with a bar each. */
function shown(output) {
  const bars = output.datatype.startsWith("FP") && output.data.length > 1 && output.data.every((value) => value >= 0 && value <= 1);
  if (!bars) return output.data.join(", ");
  const rows = output.data.map((value, place) => {
    const bar = document.createElement("meter");
    bar.value = value;
    return [String(place), bar, value.toFixed(4)];
  });
  return table(null, rows);
}

by("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  by("problem").textContent = "";
  try {
    const begin = performance.now();
    const answer = await (await ask(`/v2/models/${by("model").value}/infer`, record())).json();
    const took = `${(performance.now() - begin).toFixed(1)} ms, version ${answer.model_version}`;
    const told = document.createElement("p");
    told.className = "soft";
    told.textContent = took;
    by("answer").replaceChildren(table(["output", "values"], answer.outputs.map((output) => [output.name, shown(output)])), told);
  } catch (error) {
    by("answer").replaceChildren();
    by("problem").textContent = error.message;
  }
});

async function watch() {
  try {
    const now = counts(await (await ask("/metrics")).text(), by("model").value);
    if (looked) {
      points.push({ p50: percentile(looked, now, 0.5), p99: percentile(looked, now, 0.99) });
      points = points.slice(-600);
      draw(by("chart"), points);
      by("rates").textContent = `${requests(looked, now)} requests in the last second, ${now.waiting} wait`;
    }
    looked = now;
  } catch (error) {
    by("state").textContent = error.message;
  }
  setTimeout(watch, 1000);
}

async function begin() {
  try {
    await showModels();
    await showForm();
    document.body.dataset.ready = "yes";
  } catch (error) {
    by("state").textContent = error.message;
  }
}
by("model").addEventListener("change", () => showForm().catch((error) => { by("problem").textContent = error.message; }));
by("token").addEventListener("change", begin);
await begin();
watch();
