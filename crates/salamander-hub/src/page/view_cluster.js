// What is being trained now, and what recent runs have been through.

import { all, get } from "./api.js";
import { fill, h } from "./dom.js";
import { duration, number } from "./format.js";
import { prepare, state } from "./view_runs.js";

const RECENT = 50;

export async function cluster(body, view) {
  const [going, past] = [h("div"), h("div")];
  fill(body, h("h1", {}, "Cluster"), h("h2", {}, "Going on"), going, h("h2", {}, `The last ${RECENT} runs that ended`), past);
  const draw = async () => {
    const found = (await all("runs", { state: "running,queued,pausing,stopping", sort: "-started" }, null, view.signal)).map((run) => prepare({ ...run }));
    fill(going, found.length === 0 && h("p", { class: "soft" }, "Nothing is being trained."), found.length > 0 && h("div", { class: "scroll" }, h("table", { "aria-label": "going on" },
      h("thead", {}, h("tr", {}, ["run", "state", "workers", "done", "steps / s", "for"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, found.map((run) => h("tr", {}, h("td", {}, h("a", { href: view.link(["run", run.id]) }, run.name)), h("td", {}, state(run)), h("td", { class: "num" }, number(run.workers)),
        h("td", { class: "num" }, run.total_steps ? `${Math.round((run.steps / run.total_steps) * 100)} %` : number(run.steps)),
        h("td", { class: "num" }, run.duration ? number(run.steps / (run.duration / 1000), 3) : ""), h("td", { class: "num" }, duration(run.duration))))))));
    const page = await get("runs", { state: "completed,failed,interrupted,canceled", sort: "-ended", limit: RECENT }, view.signal);
    const ended = await Promise.all(page.items.map(async (run) => [run, await get(`runs/${encodeURIComponent(run.id)}/summary`, {}, view.signal)]));
    const share = (summary) => {
      const rank = summary?.timings;
      const sum = rank && rank.compute_s + rank.exchange_s + rank.data_s + (rank.test_s ?? 0);
      return sum ? `${Math.round((rank.compute_s / sum) * 100)} %` : "";
    };
    fill(past, h("div", { class: "scroll" }, h("table", { "aria-label": "ended" },
      h("thead", {}, h("tr", {}, ["run", "state", "workers", "generations", "workers again", "servers again", "masters again", "computing", "records applied twice"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, ended.map(([run, summary]) => h("tr", {}, h("td", {}, h("a", { href: view.link(["run", run.id, "time"]) }, run.name)), h("td", {}, state(run)),
        [summary?.workers, summary?.generations, summary?.restarts?.worker, summary?.restarts?.ps, summary?.restarts?.master].map((value) => h("td", { class: "num" }, number(value))),
        h("td", { class: "num" }, share(summary)),
        h("td", { class: "num" }, summary?.ledger?.length ? String(summary.ledger.reduce((sum, line) => sum + (line.duplicated ?? 0), 0)) : "")))))));
  };
  await draw();
  view.onChange(draw, 2000);
}
