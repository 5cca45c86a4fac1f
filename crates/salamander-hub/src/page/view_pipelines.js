// Pipelines beside the runs: each as whoever runs it draws it, whenever a step has ended.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { time } from "./format.js";

/// No event tells of them, so they are asked for again.
const AGAIN = 2000;
/// Pictures that are shown.
const SHOWN = 20;

export async function pipelines(body, view) {
  const cards = new Map();
  const list = h("div");
  fill(body, h("h1", {}, "Pipelines"), list);
  const draw = async () => {
    const found = (await get("pipelines", {}, view.signal)).slice(0, SHOWN);
    const shown = await Promise.all(found.map(async (pipeline) => {
      const known = cards.get(pipeline.name);
      if (known?.drawn === pipeline.drawn && known.state === pipeline.state) return known.card;
      const whole = await get(`pipelines/${encodeURIComponent(pipeline.name)}`, {}, view.signal);
      const card = pipelineCard(whole);
      cards.set(pipeline.name, { drawn: pipeline.drawn, state: pipeline.state, card });
      return card;
    }));
    fill(list, shown.length ? shown : h("p", { class: "empty" }, "No pipeline was run beside these runs: ", h("code", {}, "salamander pipeline run"), "."));
  };
  await draw();
  let timer = null;
  const again = async () => {
    try {
      await draw();
    } catch (error) {
      if (!view.signal.aborted) console.warn(String(error));
    }
    if (!view.signal.aborted) timer = setTimeout(again, AGAIN);
  };
  timer = setTimeout(again, AGAIN);
  view.signal.addEventListener("abort", () => clearTimeout(timer));
}

/// A picture runs no scripts: it is shown as an image.
function pipelineCard(pipeline) {
  const picture = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(pipeline.graph)}`;
  return h("section", { class: "card" }, h("h2", {}, pipeline.name),
    h("p", { class: "soft" }, `${pipeline.state ?? "has not ended"}, ${time(pipeline.drawn)}`),
    h("div", { class: "scroll" }, h("img", { src: picture, alt: `the steps of ${pipeline.name}` })));
}
