// The registry: models with their versions.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { time } from "./format.js";

export async function models(body, view) {
  const draw = async () => {
    const found = await get("models", {}, view.signal);
    const list = Array.isArray(found) ? found : found.items ?? [];
    const details = await Promise.all(list.map((model) => get(`models/${encodeURIComponent(model.name)}`, {}, view.signal)));
    fill(body, h("h1", {}, "Models"),
      list.length === 0 && h("p", { class: "soft" }, "No checkpoint is registered yet."),
      details.map((model) => h("section", {}, h("h2", {}, model.name), h("p", {}, model.description ?? ""),
        h("div", { class: "scroll" }, h("table", { "aria-label": `versions of ${model.name}` },
          h("thead", {}, h("tr", {}, ["version", "run", "checkpoint", "notes", "registered"].map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, (model.versions ?? []).map((version) => h("tr", {},
            h("td", {}, String(version.version)), h("td", {}, h("a", { href: view.link(["run", String(version.run)]) }, String(version.run))),
            h("td", {}, version.checkpoint), h("td", {}, version.notes ?? ""), h("td", {}, time(version.created))))))))));
  };
  await draw();
  view.onChange((change) => (change.models ? draw() : null));
}
