// Opens every view of the dashboard in chromium and compares what is there with what the API says.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const { URL: base, RUNS, SPIKE, LONG, HOSTILE, WEIGHTS, PLAYWRIGHT, SALAMANDER_SCREENSHOTS: pictures } = process.env;
const { chromium } = createRequire(`${PLAYWRIGHT}/`)("playwright-core");
const browser = await chromium.launch({ timeout: 120_000, executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
const page = await context.newPage();
// A million lines are read first, in a debug build and perhaps beside other tests.
page.setDefaultTimeout(600_000);
const [problems, elsewhere] = [[], []];
page.on("pageerror", (error) => problems.push(String(error)));
// Reading pixels back is this test's doing, not the page's.
const ours = (text) => text.includes("willReadFrequently");
page.on("console", (message) => ["error", "warning"].includes(message.type()) && !ours(message.text()) && problems.push(message.text()));
page.on("request", (request) => {
  const url = request.url();
  if (!url.startsWith(base) && !url.startsWith("data:") && !url.startsWith("blob:")) elsewhere.push(url);
});
const api = async (path) => (await fetch(`${base}/api/v1/${path}`)).json();
const until = async (what, holds) => {
  for (let tries = 0; tries < 12_000; tries += 1) {
    if (await holds()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`never: ${what}`);
};
let shots = 0;
const look = async (name) => {
  if (!pictures) return;
  fs.mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/${String((shots += 1)).padStart(2, "0")}-${name}.png` });
};
const open = async (hash) => {
  await page.goto("about:blank");
  await page.goto(`${base}/${hash}`);
  await page.waitForSelector(".view[data-ready]");
};
const noHarm = async () => assert.equal(await page.evaluate(() => window.hurt), undefined, "a name was executed");

// The store has read the folders.
await until("all runs are in the store", async () => {
  const found = await api("runs?limit=1000&metrics=*");
  return found.total === 23 && found.items.every((run) => run.steps > 0) && found.items.some((run) => run.steps === Number(LONG));
});
const all = (await api("runs?limit=1000&metrics=*")).items;
const named = (name) => all.find((run) => run.name === name || run.folder.startsWith(name));
const [long, hostile, live] = ["long-1", "hostile-1", "live-1"].map(named);

// Runs: as many rows as the API has, names as text, sort, filter, columns, the address.
await open("#/runs");
await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.space)").length === 23);
const cells = await page.$$eval("tbody tr:not(.space) td:nth-child(2)", (list) => list.map((cell) => cell.textContent));
assert.deepEqual([...cells].sort(), all.map((run) => run.name).sort());
assert(cells.includes(HOSTILE), "a hostile name is text");
await noHarm();
await look("runs");
await page.fill("input[type=search]", "best > 0.75 and not long");
const expected = all.filter((run) => run.best > 0.75 && !run.name.includes("long")).length;
await page.waitForFunction((count) => document.querySelectorAll("tbody tr:not(.space)").length === count, expected);
assert(page.url().includes("filter="), "the address holds the filter");
await page.click("thead button:text-is('best')");
const bests = await page.$$eval("tbody tr:not(.space)", (rows) => rows.map((row) => Number(row.querySelector("span[title=accuracy]")?.textContent)));
assert.deepEqual(bests, [...bests].sort((a, b) => a - b));
await page.reload();
await page.waitForFunction((count) => document.querySelectorAll("tbody tr:not(.space)").length === count, expected);
await page.fill("input[type=search]", "best > ");
await page.waitForFunction(() => document.querySelector("main [role=alert]").textContent !== "");
// Keys go through the table; a choice of columns is in the address; the table as a file.
await open("#/runs?columns=name,state,hparam.learning_rate");
await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.space)").length === 23);
assert.deepEqual(await page.$$eval("thead button", (list) => list.map((one) => one.textContent)), ["run", "state", "learning_rate"]);
await page.focus("[role=region]");
await page.keyboard.press("ArrowDown");
await page.keyboard.press("ArrowDown");
await page.keyboard.press(" ");
await page.waitForFunction(() => location.hash.includes("chosen="));
assert.equal(await page.locator("tbody tr.active input:checked").count(), 1);
const saved = async (click) => {
  const download = page.waitForEvent("download");
  await click();
  return fs.readFileSync(await (await download).path(), "utf8");
};
const csv = await saved(() => page.click("button:text-is('CSV')"));
assert.equal(csv.trim().split("\n").length, 24);
assert(csv.startsWith("run,state,learning_rate"));
// Groups: as many as there are values, with the mean of theirs; their curves have a band.
await open("#/runs?group=experiment&columns=name,best&metrics=^loss$");
const groups = [...new Set(all.map((run) => run.experiment))];
await page.waitForFunction((count) => document.querySelectorAll("[aria-label=runs] tbody tr:not(.space)").length === count, groups.length);
for (const group of groups) {
  const members = all.filter((run) => run.experiment === group && run.best !== null);
  const mean = members.reduce((sum, run) => sum + run.best, 0) / members.length;
  const row = await page.locator("[aria-label=runs] tbody tr", { has: page.locator(`a:text-is("${group}")`) }).textContent();
  assert(row.includes(String(Number(mean.toPrecision(4)))), `${row} has the mean ${mean}`);
}
await page.waitForFunction((count) => document.querySelector("figure.chart canvas")?.dataset.curves === String(count), groups.length);
await look("groups");

// Curves: a spike of one point among a million is on the canvas, where it belongs.
const at = (name) => page.evaluate((title) => {
  const figure = [...document.querySelectorAll("figure.chart")].find((one) => one.querySelector("strong").textContent === title);
  const { box, ends } = figure.querySelector("canvas").dataset;
  return box && { box: JSON.parse(box), ends: JSON.parse(ends) };
}, name);
/// Whether there is ink of a curve near a value.
const inked = (name, x, y, reach = 3) => page.evaluate(([title, x, y, reach]) => {
  const canvas = [...document.querySelectorAll("figure.chart")].find((one) => one.querySelector("strong").textContent === title).querySelector("canvas");
  const [box, ends] = [JSON.parse(canvas.dataset.box), JSON.parse(canvas.dataset.ends)];
  const ratio = canvas.width / canvas.clientWidth;
  const px = (box.left + ((x - ends.x0) / (ends.x1 - ends.x0)) * box.width) * ratio;
  const py = (box.top + (1 - (y - ends.y0) / (ends.y1 - ends.y0)) * box.height) * ratio;
  const data = canvas.getContext("2d").getImageData(Math.round(px - reach), Math.round(py - reach), 2 * reach + 1, 2 * reach + 1).data;
  for (let at = 0; at < data.length; at += 4) {
    const [r, g, b, a] = data.slice(at, at + 4);
    if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 60) return true;
  }
  return false;
}, [name, x, y, reach]);
await open(`#/run/${long.id}/curves?metrics=^loss$`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
let chart = await at("loss");
assert(chart.ends.x0 <= 1 && chart.ends.x1 >= Number(LONG), JSON.stringify(chart));
assert(chart.ends.y1 >= 9, "the spike is within the axis");
assert(await inked("loss", Number(SPIKE), 9), "the spike is drawn");
assert(await inked("loss", Number(SPIKE), 5), "and the line to it");
assert(!(await inked("loss", Number(SPIKE) + 60_000, 5)), "and nothing beside it");
const curve = (await api(`runs/${long.id}/curves?metrics=loss&points=300`)).curves[0];
for (const place of [20, 111, 222, 333, 444]) assert(await inked("loss", curve.steps[place], curve.values[place]), `step ${curve.steps[place]} is drawn`);
await look("spike");
// Zoom to the single point.
await open(`#/run/${long.id}/curves?metrics=^loss$&from=${Number(SPIKE) - 3}&to=${Number(SPIKE) + 3}`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
chart = await at("loss");
assert.deepEqual([chart.ends.x0, chart.ends.x1], [Number(SPIKE) - 3, Number(SPIKE) + 3]);
for (const step of [-2, -1, 0, 1, 2]) {
  const value = step === 0 ? 9 : 1 + 0.5 * Math.sin((Number(SPIKE) + step) / 40_000);
  assert(await inked("loss", Number(SPIKE) + step, value), `point ${step} is drawn`);
}
await look("zoom");
// Dragging zooms, a double click gives all back, keys move.
await open(`#/run/${live.id}/curves?metrics=^loss$`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
const place = await page.locator("figure.chart canvas").first().boundingBox();
await page.mouse.move(place.x + 300, place.y + 80);
await page.mouse.down();
await page.mouse.move(place.x + 600, place.y + 90, { steps: 5 });
await page.mouse.up();
await page.waitForFunction(() => location.hash.includes("from="));
await until("the axis is that of the zoom", async () => (await at("loss")).ends.x0 > 1);
await page.mouse.dblclick(place.x + 300, place.y + 80);
await page.waitForFunction(() => !location.hash.includes("from="));
await page.locator("figure.chart canvas").first().press("+");
await page.waitForFunction(() => location.hash.includes("from="));
await page.locator("figure.chart canvas").first().press("0");
await page.mouse.move(place.x + 400, place.y + 100);
await page.waitForFunction(() => !document.querySelector(".tip").hidden);
assert((await page.textContent(".tip")).includes("live"));
// Live: what a run appends is drawn.
fs.appendFileSync(`${RUNS}/live-1/metrics.jsonl`, JSON.stringify({ kind: "step", steps: 21, epoch: 0, loss: 7.5, learning_rate: 0.1, time: 1_700_000_001 }) + "\n");
await until("the new point is drawn", async () => (await at("loss")).ends.x1 >= 21 && (await inked("loss", 21, 7.5)));
await look("live");
// A metric as the axis: the curve is where both say.
await open(`#/run/${live.id}/curves?metrics=^loss$&x=metric:learning_rate`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
assert(await inked("loss", 0.1, 7.5), "loss by learning rate");
// The other axes.
for (const [x, end] of [["epoch", 2.1], ["relative", 0.99]]) {
  await open(`#/run/${live.id}/curves?metrics=^loss$&x=${x}`);
  await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
  assert(Math.abs((await at("loss")).ends.x1 - end) < 0.02, `${x}: ${(await at("loss")).ends.x1}`);
}
await open(`#/run/${live.id}/curves?metrics=^loss$&logy=1&logx=1&smooth=0.8&x=wall`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
// Out of the page.
for (const [kind, check] of [["CSV", (text) => text.split("\n").length > 20], ["SVG", (text) => text.includes("<path") && text.includes("clip-path=")], ["PNG", (text) => text.includes("PNG")]]) {
  const download = page.waitForEvent("download");
  await page.locator("figure.chart .tools button", { hasText: kind }).first().click();
  const file = await (await download).path();
  assert(check(fs.readFileSync(file, "latin1")), kind);
}

// One run: every part.
await open(`#/run/${hostile.id}`);
await page.waitForFunction(() => document.querySelectorAll("figure.chart").length === 2);
assert((await page.textContent("h1")).startsWith(HOSTILE));
assert((await page.textContent("main")).includes("learning_rate"), "hyperparameters");
await noHarm();
await look("run");
for (const [part, text] of [["config", "entrypoint"], ["checkpoints", "00ff00ff"], ["ledger", "intact"], ["members", "was killed"], ["profiler", "worker-1"], ["confusion", "accuracy 0.85"]]) {
  await open(`#/run/${hostile.id}/${part}`);
  assert((await page.textContent("main")).includes(text), part);
  await look(part);
}
await noHarm();
// The time line: three stretches of two processes, one of them killed. The profiler: what was kept, to the pixel.
await open(`#/run/${hostile.id}/members`);
assert.deepEqual(await page.$eval(".timeline canvas", ({ dataset }) => [dataset.stretches, dataset.kills]), ["3", "1"]);
assert.deepEqual(await page.$$eval(".figure b", (list) => list.slice(1, 3).map((one) => one.textContent)), ["3", "1"]);
await open(`#/run/${hostile.id}/profiler`);
assert.deepEqual(await page.$$eval(".strip canvas", (list) => list.map((one) => one.dataset.process)), ["worker-0", "worker-1"]);
const busy = await page.$$eval(".strip canvas", (list) => list.map((canvas) => {
  const ratio = canvas.width / canvas.clientWidth;
  const { data } = canvas.getContext("2d").getImageData(Math.round(canvas.width / 2), 0, 1, canvas.height);
  let blue = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at + 2] > 180 && data[at] < 120) blue += 1;
  return blue / ratio / 44;
}));
assert(Math.abs(busy[0] - 0.6) < 0.06 && Math.abs(busy[1] - 0.3) < 0.06, `shares of computing: ${busy}`);
await page.waitForFunction(() => document.querySelectorAll("figure.chart canvas:not(.over)").length === 5);
// A checkpoint: downloaded byte by byte, registered after a question, named, seen among the models.
await open(`#/run/${hostile.id}/checkpoints`);
await page.click("[aria-label='download step-00000050']");
assert.equal(await saved(() => page.click("[aria-label='download model.safetensors']")), WEIGHTS);
await page.click("dialog button:text-is('Close')");
await page.click("[aria-label='register step-00000050']");
await page.fill("dialog [name=model]", "digits");
await page.fill("dialog [name=alias]", "champion");
await page.fill("dialog [name=notes]", HOSTILE);
await look("register");
await page.click("dialog button:text-is('Register')");
await until("it is registered", async () => (await api("models/digits")).versions?.[0]?.aliases.includes("champion"));
await open("#/models");
assert((await page.textContent("main")).includes("champion"));
// An alias goes after a question only.
await page.click("[aria-label='remove alias champion']");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });
assert((await api("models/digits")).versions[0].aliases.includes("champion"), "nobody said yes");
assert((await page.textContent("main")).includes(HOSTILE));
await noHarm();
await look("models");
await open(`#/run/${hostile.id}/confusion`);
assert(await page.evaluate(() => {
  const canvas = document.querySelector(".heat canvas");
  const [cell, margin] = [Number(canvas.dataset.cell), Number(canvas.dataset.margin)];
  const ratio = canvas.width / canvas.clientWidth;
  const red = (column, row) => canvas.getContext("2d").getImageData((margin + column * cell + 3) * ratio, (margin + row * cell + 3) * ratio, 1, 1).data[0];
  return red(0, 0) < red(1, 0) && red(1, 1) < red(0, 1);
}), "the diagonal is darker");
await look("confusion");
await open(`#/run/${hostile.id}/logs`);
await page.waitForFunction(() => document.querySelector(".log").textContent.includes("lease expired"));
const log = await page.textContent(".log");
assert(log.includes(HOSTILE) && !log.includes("\u001b"), log.slice(0, 2000));
assert(log.includes("broken") && log.length < 200_000, "a line of ten million characters is cut");
fs.appendFileSync(`${RUNS}/hostile-1/logs/worker-0.log`, "2026-11-18T06:57:36Z ERROR a new line\n");
fs.appendFileSync(`${RUNS}/hostile-1/metrics.jsonl`, JSON.stringify({ kind: "step", steps: 51, epoch: 0, loss: 0.01, learning_rate: 0.1, time: 1_700_000_001 }) + "\n");
await page.waitForFunction(() => document.querySelector(".log").textContent.includes("a new line"));
await page.fill("[aria-label='search in logs']", "lease");
await page.waitForFunction(() => !document.querySelector(".log").textContent.includes("a new line"));
await noHarm();
await look("logs");

// Compare: as many curves as runs; the difference; a group.
const trials = all.filter((run) => run.folder.startsWith("tuning-1"));
assert.equal(trials.length, 20);
await open(`#/compare?runs=${trials.map((run) => run.id).join(",")}&metrics=^loss$`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "20");
for (const trial of [trials[0], trials[19]]) {
  const drawn = (await api(`runs/${trial.id}/curves?metrics=loss`)).curves[0];
  assert(await inked("loss", drawn.steps[20], drawn.values[20]), trial.name);
}
assert((await page.textContent("[aria-label=differences]")).includes("learning_rate"));
assert.equal(await page.locator(".diff").count(), 1);
await look("compare");
await page.selectOption("select >> nth=0", "learning_rate");
await page.waitForFunction(() => location.hash.includes("group=learning_rate"));
// Two runs with their own files: what differs is marked, and the distance to the baseline is told.
await open(`#/compare?runs=${long.id},${live.id}&metrics=^loss$&pinned=${live.id}`);
assert.deepEqual(await page.$$eval(".diff .new", (list) => list.map((one) => one.textContent).filter((text) => text.includes("learning_rate"))), ["+ hyperparameters: {learning_rate: 0.1, global_batch_size: 8, layers: {width: 16}}"]);
assert((await page.textContent("[aria-label=differences]")).includes("baseline"));
await look("difference");

// A search: parallel coordinates with brushing, the table follows.
const search = trials[0].experiment;
await open(`#/search/${search}`);
await page.waitForFunction(() => document.querySelector(".parallel canvas")?.dataset.kept === "20");
await look("search");
assert.equal(await page.getAttribute(".scatter canvas", "data-points"), "20");
assert(Number(await page.getAttribute(".heatmap canvas", "data-cells")) > 1);
assert.equal(await page.getAttribute(".gantt canvas", "data-trials"), "20");
assert.equal(await page.getAttribute(".gantt canvas", "data-marks"), "20");
const important = await page.$$eval("[aria-label=importance] tbody tr", (rows) => rows.map((row) => [row.cells[0].textContent, Number(row.cells[1].textContent)]));
assert.deepEqual(important.map(([name]) => name).sort(), ["learning_rate", "width"]);
assert(important.every(([, share]) => share >= 0 && share <= 1), JSON.stringify(important));
await page.selectOption("section:has(> h2:text-is('Learning curves')) select >> nth=0", "5");
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "5");
await page.locator(".parallel canvas").scrollIntoViewIfNeeded();
const box = await page.locator(".parallel canvas").boundingBox();
const axes = JSON.parse(await page.getAttribute(".parallel canvas", "data-axes"));
const axis = axes.find(({ key }) => key === "learning_rate");
await page.mouse.move(box.x + axis.x, box.y + axis.bottom + 2);
await page.mouse.down();
await page.mouse.move(box.x + axis.x, box.y + (axis.top + axis.bottom) / 2, { steps: 4 });
await page.mouse.up();
const rates = trials.map((run) => run.hparams.learning_rate);
const [lowest, highest] = [Math.min(...rates), Math.max(...rates)];
const middle = highest / lowest > 50 ? Math.sqrt(lowest * highest) : (lowest + highest) / 2;
const half = rates.filter((rate) => rate <= middle).length;
await page.waitForFunction((count) => Number(document.querySelector(".parallel canvas").dataset.kept) === count, half);
await page.waitForFunction((count) => document.querySelectorAll("[aria-label=trials] tbody tr:not(.space)").length === count, half);
assert(page.url().includes("brush="), "the address holds the brush");
await look("brush");

// Actions: asked for first, done by the hub, seen in the page.
await open(`#/search/${live.experiment}`);
await page.click("button:text-is('Label\u2026')");
await page.fill("dialog input", "baseline");
await page.click("dialog button:text-is('Add label')");
await page.waitForFunction(() => [...document.querySelectorAll(".label")].some((one) => one.textContent.startsWith("baseline")));
assert.deepEqual((await api(`experiments/${live.experiment}`)).labels, ["baseline"]);
await page.click("button:text-is('Archive')");
await look("asked");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });
assert.equal((await api(`experiments/${live.experiment}`)).archived, false, "nobody said yes");
await page.click("button:text-is('Archive')");
await page.click("dialog button:text-is('Archive')");
await page.waitForSelector("button:text-is('Unarchive')");
assert.equal((await api(`experiments/${live.experiment}`)).archived, true);
await page.click("button:text-is('Unarchive')");
await page.click("dialog button:text-is('Unarchive')");
await page.waitForSelector("button:text-is('Archive')");
await page.click("[aria-label='remove label baseline']");
await page.click("dialog button:text-is('Remove')");
await page.waitForFunction(() => !document.querySelector(".actions .label"));
// What a page of another site could send is refused: it can send no JSON, and its name is not ours.
for (const headers of [{ "Content-Type": "text/plain" }, { "Content-Type": "application/json", Origin: "http://evil.example" }]) {
  const refused = await fetch(`${base}/api/v1/experiments/${live.experiment}`, { method: "PATCH", headers, body: JSON.stringify({ add_labels: ["evil"] }) });
  assert([400, 403].includes(refused.status), `${refused.status}`);
}
await look("actions");
// Keys: views, help, light and dark.
await page.keyboard.press("Escape");
// The two have to come soon after each other: a browser that was held up in between is asked again.
for (let tries = 0; !(await page.locator(".view.cluster").count()); tries += 1) {
  assert(tries < 100, "g and k lead to the cluster");
  await page.keyboard.press("g");
  await page.keyboard.press("k");
}
await page.waitForSelector(".view.cluster[data-ready]");
await page.keyboard.press("?");
await page.waitForSelector("dialog kbd");
await page.keyboard.press("Escape");
await page.waitForSelector("dialog", { state: "detached" });
const before = await page.evaluate(() => document.documentElement.dataset.theme);
await page.keyboard.press("t");
await page.waitForFunction((theme) => document.documentElement.dataset.theme !== theme, before);
await page.waitForSelector(".view.cluster[data-ready]");
await look("cluster-dark");
await page.keyboard.press("t");

// Everything that can be used has a name for those who do not see it.
const nameless = () => page.evaluate(() => [...document.querySelectorAll("main button, main input, main select, main canvas:not(.over), header button")]
  .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.title || one.closest("label")?.textContent.trim())).map((one) => one.outerHTML.slice(0, 120)));
for (const hash of ["runs", `run/${hostile.id}`, `run/${hostile.id}/profiler`, `search/${search}`, "cluster", "models"]) {
  await open(`#/${hash}`);
  assert.deepEqual(await nameless(), [], hash);
}
// A pipeline's picture is shown as an image, which runs nothing.
await open("#/pipelines");
await page.waitForFunction(() => document.querySelector("main img")?.naturalWidth === 40);
assert((await page.textContent("main")).includes("completed"), "how the pipeline ended");
await noHarm();
for (const view of ["experiments", "cluster", "pipelines"]) {
  await open(`#/${view}`);
  await look(view);
}
await open("#/nothing");
assert((await page.textContent("main")).includes("no such view"));

// A phone, in the dark.
await page.evaluate(() => localStorage.clear());
await page.emulateMedia({ colorScheme: "dark" });
await page.setViewportSize({ width: 390, height: 800 });
for (const [name, hash] of [["runs", "runs"], ["curves", `run/${hostile.id}/curves`], ["logs", `run/${hostile.id}/logs`], ["checkpoints", `run/${hostile.id}/checkpoints`], ["confusion", `run/${hostile.id}/confusion`], ["members", `run/${hostile.id}/members`],
  ["profiler", `run/${hostile.id}/profiler`], ["compare", `compare?runs=${long.id},${live.id}`], ["search", `search/${search}`], ["experiments", "experiments"], ["cluster", "cluster"], ["models", "models"], ["pipelines", "pipelines"]]) {
  await open(`#/${hash}`);
  assert(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${name} is not wider than a phone`);
  await look(`phone-${name}`);
}
await open(`#/run/${live.id}`);
await look("phone-top");
await page.locator("figure.chart").first().scrollIntoViewIfNeeded();
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
assert(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "nothing is wider than a phone");
await look("phone");
// A run with very many metrics: only charts that are looked at are drawn, and those that were have given their canvas back.
const MANY = 400;
await page.setViewportSize({ width: 1280, height: 900 });
const measured = Object.fromEntries(Array.from({ length: MANY }, (_, metric) => [`many/${metric}`, metric]));
fs.appendFileSync(`${RUNS}/live-1/metrics.jsonl`, JSON.stringify({ kind: "step", steps: 30, epoch: 0, loss: 1, learning_rate: 0.1, time: 1_700_000_002, ...measured }) + "\n");
await until("all metrics are in the store", async () => (await api(`runs/${live.id}/metrics`)).length >= MANY);
await open(`#/run/${live.id}/curves?metrics=^many/`);
await page.waitForFunction((count) => document.querySelectorAll("figure.chart").length === count, MANY);
const drawn = (place) => page.evaluate((at) => {
  const canvas = [...document.querySelectorAll("figure.chart")].at(at).querySelector("canvas");
  return canvas !== null && canvas.width > 0 && canvas.dataset.curves === "1";
}, place);
await until("the first is drawn", () => drawn(0));
assert(await page.locator("figure.chart canvas:not(.over)").count() < MANY / 4, "only what is in sight has a canvas");
await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
await until("the last is drawn, and the first is no more", async () => await drawn(-1) && !(await drawn(0)));
await page.evaluate(() => window.scrollTo(0, 0));
await until("the first is drawn again", async () => await drawn(0) && !(await drawn(-1)));
await look("many");
// Of so many metrics a table asks for those that it has to do with.
const asked = [];
page.on("request", (request) => request.url().includes("/runs?") && asked.push(new URL(request.url()).searchParams.get("metrics").split(",")));
await open("#/runs?columns=name,many/7&filter=many/3 = 3");
await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.space)").length === 1);
assert.equal(await page.textContent("tbody tr:not(.space) td:nth-child(3)"), "7");
await page.fill("input[aria-label=filter]", "many/399 < 400");
await page.waitForFunction(() => document.querySelector("tbody tr:not(.space) td:nth-child(3)")?.textContent === "7");
assert(asked.length > 1 && asked.every((metrics) => !metrics.includes("*") && metrics.length < 10), JSON.stringify(asked));
// A table that is open has what has changed.
await open("#/runs?columns=name,progress&filter=name = live");
const row = (text) => page.waitForFunction((part) => document.querySelector("tbody tr:not(.space)")?.textContent.includes(part), text);
await row("30");
fs.appendFileSync(`${RUNS}/live-1/metrics.jsonl`, JSON.stringify({ kind: "step", steps: 77, epoch: 0, loss: 1, learning_rate: 0.1, time: 1_700_000_003 }) + "\n");
await row("77");
// A browser has six connections for a hub, whatever the number of its tabs: one that nobody looks at keeps none. In a
// test all are looked at, unless they are told otherwise.
const hide = (tab, hidden) => tab.evaluate((value) => {
  Object.defineProperty(document, "hidden", { get: () => value, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}, hidden);
const connected = (tab) => tab.waitForFunction(() => document.getElementById("live").textContent === "live");
const tabs = [];
for (let count = 0; count < 8; count += 1) {
  const tab = await context.newPage();
  tab.setDefaultTimeout(600_000);
  await tab.goto(`${base}/#/models`);
  await tab.waitForSelector(".view[data-ready]");
  await connected(tab);
  await hide(tab, true);
  await tab.waitForFunction(() => document.getElementById("live").textContent === "not connected");
  tabs.push(tab);
}
await hide(tabs[0], false);
await connected(tabs[0]);
await noHarm();
assert.deepEqual(elsewhere, [], "no request leaves the machine");
assert.deepEqual(problems, [], "no errors in the console");
await browser.close();
console.log("all views were seen");
