// Who trains a run: its members now, and on a time line who came, who was killed, and which generations followed.

import { get } from "./api.js";
import { canvasOf, placeOf, tipLine, widthOf } from "./canvas.js";
import { fill, h } from "./dom.js";
import { bytes, duration, number, time } from "./format.js";
import { eventsOf, goodput, stretchesOf } from "./run_events.js";

const LINES = 5000;

/// Events and goodput of a run.
export async function courseOf(run, signal) {
  const path = `runs/${encodeURIComponent(run.id)}`;
  const [page, curves] = await Promise.all([
    get(`${path}/logs`, { process: "master", limit: LINES, tail: "true" }, signal),
    get(`${path}/curves`, { metrics: "time", points: 20_000 }, signal),
  ]);
  const times = (curves.curves[0]?.values ?? []).filter((value) => value !== null);
  // A search lets its trials wait; that is no time lost.
  return { events: eventsOf(page.lines), times, goodput: run.length === null ? goodput(times) : null };
}

export async function members(area, view, first, path) {
  const [figures, now, line, list] = [h("div", { class: "figures" }), h("div"), h("div"), h("div")];
  fill(area, figures, now, h("h2", {}, "Time line"), line, h("h2", {}, "Events"), list);
  const draw = async (own = first) => {
    const [status, course, summary] = await Promise.all([get(`${path}/members`, {}, view.signal), courseOf(own, view.signal), get(`${path}/summary`, {}, view.signal)]);
    const generations = status?.generations ?? summary?.generations ?? course.events.filter(({ kind }) => kind === "generation").length;
    const restarts = status?.restarts ?? summary?.restarts ?? {};
    const one = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));
    fill(figures, one("members", status?.workers ? `${status.workers.filter(({ member }) => member !== null).length} of ${status.wanted}` : number(own.workers)),
      one("generations", number(generations)), one("workers started again", number(restarts.worker ?? 0)), one("masters started again", number(restarts.master ?? 0)),
      one("goodput", course.goodput ? `${(course.goodput.share * 100).toFixed(1)} %` : "\u2013"),
      one("lost in pauses", course.goodput ? duration(course.goodput.lost * 1000) : "\u2013"));
    drawMembers(now, status);
    drawTimeline(line, own, course);
    fill(list, course.events.length ? h("div", { class: "scroll" }, h("table", { "aria-label": "events" }, h("thead", {}, h("tr", {}, h("th", {}, "time"), h("th", {}, "kind"), h("th", {}, "what"))),
      h("tbody", {}, [...course.events].reverse().slice(0, 500).map((event) => h("tr", {}, h("td", {}, time(event.time)), h("td", { class: event.kind === "kill" || event.kind === "drop" ? "error" : null }, event.kind), h("td", { title: event.text }, event.text)))))) :
      h("p", { class: "soft" }, "The log of a master has none; a run in one process has no master."));
  };
  await draw();
  return draw;
}

function drawMembers(element, status) {
  if (!status || status.unreachable) {
    fill(element, status?.unreachable && h("p", { class: "soft" }, `Its master does not answer: ${status.unreachable}`));
    return;
  }
  const beat = (worker) => worker.beat && `${worker.beat.work} for ${duration(worker.beat.for_ms)}`;
  const rate = (worker) => (worker.beat?.compute_ms ? number((worker.beat.records / worker.beat.compute_ms) * 1000, 3) : "");
  fill(element, h("p", { class: "soft" }, `${status.state}, generation ${status.generation ?? "none"}, version ${number(status.version)}, term ${status.term}`),
    h("div", { class: "scroll" }, h("table", { "aria-label": "members" },
      h("thead", {}, h("tr", {}, ["process", "rank", "pid", "where", "doing", "records", "records / s"].map((title, at) => h("th", { scope: "col", class: at > 4 ? "num" : null }, title)))),
      h("tbody", {}, status.workers.map((worker) => h("tr", {}, h("td", {}, `worker-${worker.slot}`), h("td", {}, worker.member === null ? "waits" : String(worker.member)), h("td", {}, String(worker.pid)), h("td", { title: worker.endpoint }, worker.endpoint),
        h("td", {}, worker.connected ? beat(worker) ?? "" : "not connected"), h("td", { class: "num" }, number(worker.beat?.records)), h("td", { class: "num" }, rate(worker)))),
      status.servers.map((server) => h("tr", {}, h("td", {}, `ps-${server.seat}`), h("td", {}, ""), h("td", {}, String(server.pid ?? "")), h("td", { title: server.endpoint }, server.endpoint),
        h("td", {}, server.tables.map((table) => `${table.name}: ${number(table.rows)} rows, ${bytes(table.bytes)}`).join("; ")), h("td", {}), h("td", {})))))));
}

/// Lanes of processes with their stretches, generations above them, marks for checkpoints and kills.
export function drawTimeline(element, run, { events, times }) {
  const stretches = stretchesOf(events);
  const lanes = [...new Set(stretches.map(({ lane }) => lane))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const known = [...events.map((event) => event.time), ...(times.length ? [times[0] * 1000, times[times.length - 1] * 1000] : [])];
  if (!known.length) {
    fill(element, h("p", { class: "soft" }, "Nothing has happened yet."));
    return;
  }
  const going = run.state === "running";
  const from = Math.min(...known);
  const to = Math.max(going ? Date.now() : 0, ...known, from + 1);
  const [width, row, top, left] = [widthOf(element), 22, 26, 82];
  const height = top + Math.max(1, lanes.length) * row + 26;
  const { canvas, pen, soft, line, text, busy, bad, accent, raised } = canvasOf(width, height, `time line: ${stretches.length} stretches of ${lanes.length} processes, ${events.filter(({ kind }) => kind === "kill").length} kills`);
  const x = (at) => left + ((at - from) / (to - from)) * (width - left - 12);
  canvas.dataset.kills = String(events.filter(({ kind }) => kind === "kill").length);
  canvas.dataset.stretches = String(stretches.length);
  const began = events.filter(({ kind }) => kind === "generation");
  pen.textBaseline = "middle";
  began.forEach((event, at) => {
    const [start, end] = [x(event.time), x(began[at + 1]?.time ?? to)];
    pen.fillStyle = raised;
    if (at % 2 === 0) pen.fillRect(start, 4, Math.max(1, end - start), height - 28);
    pen.fillStyle = soft;
    if (end - start > 24) pen.fillText(`g${event.generation}`.slice(0, 14), start + 4, 14, end - start - 6);
  });
  if (!lanes.length && times.length) {
    pen.fillStyle = busy;
    pen.fillRect(x(times[0] * 1000), top + 4, Math.max(2, x(times[times.length - 1] * 1000) - x(times[0] * 1000)), row - 8);
  }
  lanes.forEach((lane, at) => {
    const y = top + at * row;
    pen.fillStyle = text;
    pen.textAlign = "left";
    pen.fillText(lane, 4, y + row / 2, left - 10);
    pen.fillStyle = line;
    pen.fillRect(left, y + row - 1, width - left - 12, 1);
    for (const stretch of stretches.filter((one) => one.lane === lane)) {
      const [start, end] = [x(stretch.from), x(stretch.to ?? to)];
      pen.fillStyle = busy;
      pen.globalAlpha = 0.75;
      pen.fillRect(start, y + 4, Math.max(2, end - start), row - 9);
      pen.globalAlpha = 1;
      if (stretch.to === null || !stretch.lost) continue;
      pen.strokeStyle = bad;
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.moveTo(end - 4, y + 4);
      pen.lineTo(end + 4, y + row - 6);
      pen.moveTo(end + 4, y + 4);
      pen.lineTo(end - 4, y + row - 6);
      pen.stroke();
    }
  });
  for (const event of events.filter(({ kind }) => kind === "checkpoint" || kind === "master" || kind === "scale")) {
    pen.fillStyle = event.kind === "checkpoint" ? soft : event.kind === "master" ? bad : accent;
    pen.fillRect(x(event.time) - 1, event.kind === "checkpoint" ? height - 26 : 4, 2, event.kind === "checkpoint" ? 6 : height - 28);
  }
  pen.fillStyle = soft;
  pen.textAlign = "left";
  pen.fillText(time(from), left, height - 9);
  pen.textAlign = "right";
  pen.fillText(duration(to - from), width - 12, height - 9);
  const tip = tipLine("Bars are processes, crosses those that were killed or dropped, shades are generations, ticks below are checkpoints.");
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = placeOf(canvas, event);
    const lane = lanes[Math.floor((py - top) / row)];
    const near = events.reduce((best, one) => {
      const far = Math.abs(x(one.time) - px) + (one.lane && one.lane !== lane ? 200 : 0);
      return best === null || far < best.far ? { one, far } : best;
    }, null);
    if (near && near.far < 60) tip.textContent = `${time(near.one.time)}: ${near.one.text}`;
  });
  fill(element, h("div", { class: "drawn timeline" }, canvas), tip);
}
