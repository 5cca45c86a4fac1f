// The registry: models with their versions and aliases.

import { act, get, getMlflow } from "./api.js";
import { ask, attempt } from "./dialog.js";
import { button, fill, h } from "./dom.js";
import { time } from "./format.js";

export async function models(body, view) {
  const draw = async () => {
    const found = await get("models", {}, view.signal);
    const list = Array.isArray(found) ? found : found.items ?? [];
    const [details, theirs] = await Promise.all([
      Promise.all(list.map((model) => get(`models/${encodeURIComponent(model.name)}`, {}, view.signal))), modelsOfClients(view.signal)]);
    fill(body, h("h1", {}, "Models"), h("div", { class: "bar" }, button("New model\u2026", async () => {
      const answer = await ask({ title: "New model", text: "Checkpoints of runs are registered as its versions.", confirm: "Make", fields: [{ name: "name", label: "Name", required: true }, { name: "description", label: "Description" }] });
      if (answer?.name.trim() && await attempt(() => act("POST", "models", { name: answer.name.trim(), description: answer.description }), "Made")) await draw();
    })),
    list.length === 0 && theirs.length === 0 && h("p", { class: "empty" }, "No checkpoint is registered yet. The checkpoints of a run have a button for it."),
    details.map((model) => modelCard(model, view, draw)),
    theirs.length > 0 && [h("h2", {}, "Registered by clients of MLflow"), theirs.map(clientCard)]);
  };
  await draw();
  view.onChange((change) => (change.models ? draw() : null));
}

/// Models that clients of MLflow have registered, with their versions. A page that only looks at folders has none.
async function modelsOfClients(signal) {
  const { slots } = await get("cluster", {}, signal);
  if (slots === null) return [];
  const [found, versions] = await Promise.all([getMlflow("registered-models/search", { max_results: 1000 }, signal),
    getMlflow("model-versions/search", { max_results: 5000 }, signal)]);
  // Ours are among them, and stand above.
  const theirs = (found.registered_models ?? []).filter(({ tags }) => !tags.some(({ key }) => key === "salamander.owner"));
  return theirs.map((model) => ({ ...model, versions: (versions.model_versions ?? []).filter(({ name }) => name === model.name)
    .sort((a, b) => Number(a.version) - Number(b.version)) }));
}

function clientCard(model) {
  const row = (version) => h("tr", {}, h("td", { class: "num" }, version.version), h("td", {}, version.aliases.map((alias) => h("span", { class: "label" }, alias))),
    h("td", {}, version.current_stage === "None" ? "" : version.current_stage), h("td", { title: version.run_id }, version.run_id.slice(0, 12)), h("td", { title: version.source }, version.source),
    h("td", { title: version.description }, version.description), h("td", {}, time(version.creation_timestamp)));
  return h("section", { class: "card" }, h("h2", {}, model.name), model.description && h("p", {}, model.description),
    h("div", { class: "scroll" }, h("table", { "aria-label": `versions of ${model.name}` },
      h("thead", {}, h("tr", {}, ["version", "aliases", "stage", "run", "files", "notes", "registered"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, model.versions.map(row)))));
}

function modelCard(model, view, draw) {
  const path = `models/${encodeURIComponent(model.name)}`;
  const doing = async (call, done) => {
    if (await attempt(call, done)) await draw();
  };
  const name = async (version) => {
    const answer = await ask({ title: `Name version ${version.version} of ${model.name}`, text: "An alias points to one version; the one that had it loses it.", confirm: "Name", fields: [{ name: "alias", label: "Alias", value: "champion", required: true }] });
    if (answer?.alias.trim()) doing(() => act("POST", `${path}/aliases`, { alias: answer.alias.trim(), version: version.version }), "Named");
  };
  const unname = async (alias) => {
    const text = `Whoever uses model:${model.name}@${alias} finds nothing from then on.`;
    if (await ask({ title: `Remove alias ${alias} of ${model.name}?`, text, confirm: "Remove", danger: true })) doing(() => act("POST", `${path}/aliases`, { alias, version: null }), "Removed");
  };
  const remove = async (version) => {
    const what = version ? `version ${version.version} of ${model.name}` : `model ${model.name} with all versions`;
    if (await ask({ title: `Delete ${what}?`, text: "Checkpoints stay, and may be collected from then on.", confirm: "Delete", danger: true })) doing(() => act("DELETE", version ? `${path}/versions/${version.version}` : path), "Deleted");
  };
  const row = (version) => h("tr", {}, h("td", { class: "num" }, String(version.version)),
    h("td", {}, version.aliases.map((alias) => h("span", { class: "label" }, alias, button("\u00d7", () => unname(alias), { "aria-label": `remove alias ${alias}` })))),
    h("td", {}, h("a", { href: view.link(["run", String(version.run), "checkpoints"]) }, String(version.run))), h("td", {}, version.checkpoint), h("td", { title: version.notes }, version.notes ?? ""), h("td", {}, time(version.created)),
    h("td", {}, button("Name\u2026", () => name(version), { class: "small", "aria-label": `name version ${version.version}` }), " ", button("Delete", () => remove(version), { class: "small", "aria-label": `delete version ${version.version}` })));
  return h("section", { class: "card" }, h("h2", {}, model.name), model.description && h("p", {}, model.description),
    h("div", { class: "scroll" }, h("table", { "aria-label": `versions of ${model.name}` },
      h("thead", {}, h("tr", {}, ["version", "aliases", "run", "checkpoint", "notes", "registered", ""].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, (model.versions ?? []).map(row)))),
    h("p", { class: "soft" }, "Use it as ", h("code", {}, `model:${model.name}`), " or ", h("code", {}, `model:${model.name}@champion`), " in evaluate, predict, export and serve. ",
      button("Delete model", () => remove(null), { class: "small danger" })));
}
