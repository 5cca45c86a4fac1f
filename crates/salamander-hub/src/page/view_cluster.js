// What is being trained now, who waits for slots, and what recent runs have been through.

import { all, get } from "./api.js";
import { fill, h } from "./dom.js";
import { bytes, duration, number, time } from "./format.js";
import { courseOf, drawTimeline } from "./run_members.js";
import { meter, prepare, state } from "./view_runs.js";

const RECENT = 30;
/// Runs that are asked for their members, and shown on a time line.
const ASKED = 12;

export async function cluster(body, view) {
  const [figures, queue, going, lines, past] = [h("div", { class: "figures" }), h("div"), h("div"), h("div"), h("div")];
  fill(body, h("h1", {}, "Cluster"), figures, h("h2", {}, "Going on"), going, queue, lines, h("h2", {}, `The last ${RECENT} runs that ended`), past);
  const draw = async () => {
    const [hub, running] = await Promise.all([get("cluster", {}, view.signal),
      all("runs", { state: "running,queued,pausing,stopping", sort: "-started" }, null, view.signal)]);
    const runs = running.map((run) => prepare({ ...run }));
    const asked = await Promise.all(runs.filter((run) => run.state === "running").slice(0, ASKED).map(async (run) => {
      const path = `runs/${encodeURIComponent(run.id)}`;
      const [status, course] = await Promise.all([get(`${path}/members`, {}, view.signal), courseOf(run, view.signal)]);
      return { run, status, course };
    }));
    drawFigures(figures, hub, runs);
    drawQueue(queue, hub, view);
    drawGoing(going, runs, asked, view);
    drawLines(lines, asked, view);
    await drawPast(past, view);
  };
  await draw();
  view.onChange(draw, 2000);
}

function drawFigures(element, hub, runs) {
  const { machine, jobs } = hub;
  const held = jobs.reduce((sum, job) => sum + (job.held ?? 0), 0);
  const waiting = jobs.filter((job) => job.state === "queued").length;
  const one = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));
  fill(element, one("runs going on", number(runs.filter((run) => run.state === "running").length)),
    hub.slots !== null && one("slots in use", `${held} of ${hub.slots}`), hub.slots !== null && one("experiments that wait", number(waiting)),
    one(`load of ${machine.processors ?? "?"} processors`, number(machine.load, 3)),
    one(`free of ${bytes(machine.memory)} memory`, bytes(machine.free)));
}

function drawQueue(element, hub, view) {
  if (hub.slots === null) {
    fill(element, h("p", { class: "soft" }, "This page only looks; ", h("code", {}, "salamander hub"), " has slots and a queue."));
    return;
  }
  const jobs = [...hub.jobs].sort((a, b) => (b.held ?? 0) - (a.held ?? 0) || a.priority - b.priority || a.experiment - b.experiment);
  fill(element, h("h2", {}, "Queue"), jobs.length === 0 ? h("p", { class: "soft" }, "Nobody waits.") : h("div", { class: "scroll" }, h("table", { "aria-label": "queue" },
    h("thead", {}, h("tr", {}, ["experiment", "state", "priority", "slots wanted", "slots held", "since", "done", "owner"].map((title, at) => h("th", { scope: "col", class: at > 1 && at < 5 ? "num" : null }, title)))),
    h("tbody", {}, jobs.map((job) => h("tr", {}, h("td", {}, h("a", { href: view.link(["search", job.experiment]) }, `${job.experiment}: ${job.name}`)), h("td", {}, state(job)), h("td", { class: "num" }, number(job.priority)),
      h("td", { class: "num" }, job.max_slots > job.slots ? `${job.slots} to ${job.max_slots}` : number(job.slots)), h("td", { class: "num" }, job.held === null ? "" : number(job.held)), h("td", {}, job.since ? time(job.since) : ""),
      h("td", {}, job.progress === null ? "" : meter(job.progress, `${Math.round(job.progress * 100)} %`)), h("td", {}, job.owner)))))));
}

function drawGoing(element, runs, asked, view) {
  const known = new Map(asked.map((one) => [one.run.id, one]));
  const members = (status) => (status?.workers ? `${status.workers.filter(({ member }) => member !== null).length} of ${status.wanted}` : null);
  const percent = (course) => (course?.goodput ? `${(course.goodput.share * 100).toFixed(1)} %` : "");
  fill(element, runs.length === 0 ? h("p", { class: "soft" }, "Nothing is being trained.") : h("div", { class: "scroll" }, h("table", { "aria-label": "going on" },
    h("thead", {}, h("tr", {}, ["run", "state", "members", "generations", "started again", "goodput", "done", "steps / s", "for"].map((title, at) => h("th", { scope: "col", class: at > 1 && at !== 6 ? "num" : null }, title)))),
    h("tbody", {}, runs.slice(0, 200).map((run) => {
      const { status, course } = known.get(run.id) ?? {};
      return h("tr", {}, h("td", {}, h("a", { href: view.link(["run", run.id, "members"]) }, run.name)), h("td", {}, state(status?.state ? { state: status.state } : run)), h("td", { class: "num" }, members(status) ?? number(run.workers)),
        h("td", { class: "num" }, status?.generations === undefined ? "" : number(status.generations)), h("td", { class: "num" }, status?.restarts ? number(status.restarts.worker + status.restarts.ps + status.restarts.master) : ""), h("td", { class: "num" }, percent(course)),
        h("td", {}, run.total_steps ? meter(run.steps / run.total_steps, `${Math.round((run.steps / run.total_steps) * 100)} %`) : number(run.steps)),
        h("td", { class: "num" }, run.duration ? number(run.steps / (run.duration / 1000), 3) : ""), h("td", { class: "num" }, duration(run.duration)));
    })))));
}

function drawLines(element, asked, view) {
  const shown = asked.filter(({ course }) => course.events.length);
  fill(element, shown.length > 0 && h("h2", {}, "Members, kills and generations"), shown.map(({ run, course }) => {
    const place = h("div");
    // Its width is known once it is in the page.
    queueMicrotask(() => drawTimeline(place, run, course));
    return h("div", {}, h("h3", {}, h("a", { href: view.link(["run", run.id, "members"]) }, run.name)), place);
  }));
}

async function drawPast(element, view) {
  const page = await get("runs", { state: "completed,failed,interrupted,canceled,killed", sort: "-ended", limit: RECENT }, view.signal);
  const ended = await Promise.all(page.items.map(async (run) => [run, await get(`runs/${encodeURIComponent(run.id)}/summary`, {}, view.signal)]));
  const share = (summary) => {
    const rank = summary?.timings;
    const sum = rank && rank.compute_s + rank.exchange_s + rank.data_s + (rank.test_s ?? 0);
    return sum ? `${Math.round((rank.compute_s / sum) * 100)} %` : "";
  };
  const titles = ["run", "state", "ended", "workers", "generations", "workers again", "servers again", "masters again", "computing", "records applied twice"];
  fill(element, ended.length === 0 ? h("p", { class: "soft" }, "None has ended yet.") : h("div", { class: "scroll" }, h("table", { "aria-label": "ended" },
    h("thead", {}, h("tr", {}, titles.map((title, at) => h("th", { scope: "col", class: at > 2 ? "num" : null }, title)))),
    h("tbody", {}, ended.map(([run, summary]) => h("tr", {}, h("td", {}, h("a", { href: view.link(["run", run.id, "members"]) }, run.name)), h("td", {}, state(run)), h("td", {}, time(run.ended)),
      [summary?.workers, summary?.generations, summary?.restarts?.worker, summary?.restarts?.ps, summary?.restarts?.master].map((value) => h("td", { class: "num" }, number(value))),
      h("td", { class: "num" }, share(summary)),
      h("td", { class: "num" }, summary?.ledger?.length ? String(summary.ledger.reduce((sum, line) => sum + (line.duplicated ?? 0), 0)) : "")))))));
}
