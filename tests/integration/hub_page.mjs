// Steers two experiments that train from the hub's page, and compares what it shows with what the API says. Each
// question that the page asks is answered; nothing waits for a time, only for what is to be seen.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import { isDeepStrictEqual } from "node:util";
import { number } from "../../crates/salamander-hub/src/page/format.js";

const { URL: base, PLAYWRIGHT, SALAMANDER_SCREENSHOTS: pictures } = process.env;
/// How long anything is waited for: far longer than it takes on a machine that is busy.
const PATIENCE = 300_000;
const { chromium } = createRequire(`${PLAYWRIGHT}/`)("playwright-core");
const browser = await chromium.launch({ timeout: 120_000, executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
const page = await context.newPage();
page.setDefaultTimeout(PATIENCE);
const [problems, elsewhere] = [[], []];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => message.type() === "error" && problems.push(`${message.text()} ${message.location().url}`));
page.on("request", (request) => {
  const url = request.url();
  if (!url.startsWith(base) && !url.startsWith("data:") && !url.startsWith("blob:")) elsewhere.push(url);
});
const api = async (path) => (await fetch(`${base}/api/v1/${path}`)).json();
/// For whoever reads why this failed.
const seen = async () => `${page.url()}\n${await page.innerText("body").catch(String)}\n${JSON.stringify(await api("experiments").catch(String))}\n${problems.join("\n")}`;
/// Waits until something holds; `holds` may also say what else it has found.
const until = async (what, holds) => {
  const end = Date.now() + PATIENCE;
  let found = await holds();
  while (found !== true) {
    if (Date.now() > end) throw new Error(`never: ${what}: ${JSON.stringify(found)}\n${await seen()}`);
    await new Promise((done) => setTimeout(done, 50));
    found = await holds();
  }
};
const same = (shown, said) => isDeepStrictEqual(shown, said) || { shown, said };
let shots = 0;
const look = async (name) => {
  if (!pictures) return;
  fs.mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/hub-${String((shots += 1)).padStart(2, "0")}-${name}.png` });
};
/// Goes to another view, as a link does.
const open = async (hash) => {
  await page.evaluate((to) => {
    document.querySelector(".view")?.setAttribute("data-left", "");
    location.hash = to;
  }, hash);
  await page.waitForSelector(".view[data-ready]:not([data-left])");
};
const stands = async (state) => until(`it is ${state}`, async () => same(await page.evaluate(() => document.querySelector("main h1 .state")?.textContent), state));
const buttons = () => page.$$eval(".actions > button", (all) => all.map((one) => one.textContent));
/// Clicks a button, which asks at once; one that was drawn anew just then is clicked again.
const press = async (name) => {
  do await page.click(`.actions > button:text-is("${name}")`);
  while (!(await page.locator("dialog").count()));
};
/// Clicks a button, says yes to what it asks, and waits until the question is gone.
const act = async (name, { confirm = name, fields = {} } = {}) => {
  await press(name);
  for (const [field, value] of Object.entries(fields)) await page.fill(`dialog [name=${field}]`, value);
  await look(`asked-${name.replace(/\W/g, "")}`);
  assert.equal(await page.textContent("dialog button.main"), confirm);
  await page.click("dialog button.main");
  await page.waitForSelector("dialog", { state: "detached" });
};
/// A number that the view shows with a name below it.
const figure = (name) => page.evaluate((wanted) => [...document.querySelectorAll(".figure")].find((one) => one.querySelector("span").textContent === wanted)?.querySelector("b").textContent ?? null, name);
/// The rows of a table, cells by the titles of their columns.
const rows = (label) => page.evaluate((name) => {
  const table = document.querySelector(`table[aria-label="${name}"]`);
  if (!table) return [];
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.replace(/ [\u2191\u2193]$/, ""));
  const cells = (row) => titles.map((title, at) => [title, row.cells[at]?.textContent ?? ""]).filter(([title]) => title !== "");
  return [...table.tBodies[0].rows].filter((row) => !row.classList.contains("space")).map((row) => Object.fromEntries(cells(row)));
}, label);
/// The numbers of the experiments that the queue has, and how they stand.
const queue = async () => Object.fromEntries((await rows("queue")).map((row) => [row.experiment, row.state]));
/// Steps that the page shows of a run.
const steps = async (id) => {
  const run = await api(`runs/${id}`);
  return Number((await figure(run.total_steps ? `of ${number(run.total_steps)} steps` : "steps") ?? "0").replaceAll(",", ""));
};

/// A master that is busy may not have heard of another number in time, which the page tells: it is asked again.
const scale = async (workers) => {
  for (let tries = 1; ; tries += 1) {
    await act("Scale\u2026", { confirm: "Scale", fields: { workers: String(workers) } });
    const heard = async () => (await page.locator("#told .bad").count() ? "refused" : (await figure("members")) === `${workers} of ${workers}`);
    let found = false;
    await until(`${workers} workers train`, async () => Boolean(found = await heard()) || (await figure("members")));
    if (found === true) return;
    assert(tries < 10, `${await page.textContent("#told")}`);
    await page.waitForFunction(() => !document.querySelector("#told .bad"));
  }
};

const steer = async () => {
  await page.goto(`${base}/#/experiments`);
  await page.waitForSelector(".view[data-ready]");
  await until("both experiments run", async () => same((await rows("experiments")).map((row) => [row.id, row.experiment, row.state]).sort(), [["1", "steered", "running"], ["2", "searched", "running"]]));
  await look("experiments");
  for (const id of ["1.1", "2.1", "2.2"]) {
    await until(`run ${id} trains`, async () => {
      const run = await api(`runs/${id}`);
      return (run.state === "running" && run.steps > 10) || run;
    });
  }

  // A run of two workers is scaled while it trains.
  await open("#/run/1.1/members");
  await until("two workers train", async () => same(await figure("members"), "2 of 2"));
  await scale(1);
  await until("the API says so", async () => same((await api("runs/1.1/members")).wanted, 1));
  await look("scaled");

  // It is paused after a question only, and stays as it is until it is activated.
  await open("#/search/1");
  await stands("running");
  await press("Pause");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  const wanted = async () => (await api("cluster")).jobs.find((job) => job.experiment === 1).wanted;
  assert.equal(await wanted(), "run", "nobody said yes");
  await act("Pause");
  await stands("paused");
  await until("it can be activated", async () => same((await buttons()).includes("Activate"), true));
  assert.equal(await wanted(), "paused");
  await look("paused");
  await open("#/cluster");
  await until("the queue says so", async () => same((await queue())["1: steered"], "paused"));
  await open("#/experiments");
  await until("the list says so", async () => same((await rows("experiments")).find((row) => row.id === "1")?.state, "paused"));
  await open("#/run/1.1");
  await until("its figures are those of the API", async () => {
    const run = await api("runs/1.1");
    return same([await figure("loss"), await steps("1.1")], [number(run.metrics.loss), run.steps]);
  });
  await until("its last values are those of the API", async () => {
    const said = Object.entries((await api("runs/1.1")).metrics).filter(([name]) => name !== "time").map(([name, value]) => [name, value === null ? "no number" : number(value, 7)]);
    const shown = await page.evaluate(() => {
      const card = [...document.querySelectorAll(".card")].find((one) => one.querySelector("h2").textContent === "Last values");
      return [...card.querySelectorAll("dt")].map((name) => [name.textContent, name.nextElementSibling.textContent]);
    });
    return same(shown, said);
  });
  const { steps: paused } = await api("runs/1.1");
  // Of equal values in a pixel the first is drawn.
  await until("the curve reaches its end", () => page.evaluate((last) => {
    const charts = [...document.querySelectorAll("figure.chart")].filter((one) => one.querySelector("strong").textContent === "loss");
    const { curves, ends } = charts[0]?.querySelector("canvas")?.dataset ?? {};
    const { x1 } = JSON.parse(ends ?? "{}");
    return (curves === "1" && x1 > 0.95 * last && x1 <= last) || { curves, x1, last };
  }, paused));

  // It goes on from there, and the page follows.
  await act("Activate");
  await stands("running");
  await until("it goes on", async () => (await steps("1.1")) > paused || { paused, shown: await steps("1.1") });
  await look("activated");

  // A label, from the page to the API and into the list.
  await act("Label\u2026", { confirm: "Add label", fields: { label: "watched" } });
  await until("the label is shown", async () => same(await page.$$eval(".actions .label", (all) => all.map((one) => one.firstChild.textContent)), ["watched"]));
  assert.deepEqual((await api("experiments/1")).labels, ["watched"]);

  // It is killed, which leaves nothing to do but to go on from its last checkpoint.
  await open("#/search/1");
  await act("Kill");
  await stands("canceled");
  const { state, reason } = await api("experiments/1");
  assert.deepEqual([state, reason], ["canceled", "it was killed"]);
  await until("it says why", async () => (await page.textContent("main")).includes(reason) || reason);
  const left = async () => same((await buttons()).filter((name) => !["Archive", "Label\u2026"].includes(name)), ["Activate"]);
  await until("only what is left can be done", left);
  await look("killed");

  // A trial of a search is killed: it ends, and the search goes on without it.
  await open("#/search/2");
  const trial = (name) => rows("trials").then((all) => all.find((row) => row.run.endsWith(` trial ${name}`)));
  await until("two trials train", async () => same([(await trial(1))?.state, (await trial(2))?.state], ["running", "running"]));
  await open("#/run/2.1");
  await act("Kill this trial", { confirm: "Kill" });
  await stands("canceled");
  assert.equal((await api("runs/2.1")).state, "canceled");
  await open("#/search/2");
  await until("the search goes on", async () => same([(await trial(1))?.state, (await trial(2))?.state], ["canceled", "running"]));
  assert.equal((await api("experiments/2")).state, "running");
  await look("trial");

  // The search is canceled; the question says which button does that.
  await press("Cancel");
  assert.deepEqual(await page.$$eval("dialog .buttons button", (all) => all.map((one) => one.textContent)), ["Back", "Cancel"]);
  await page.click('dialog button:text-is("Back")');
  await page.waitForSelector("dialog", { state: "detached" });
  await act("Cancel");
  await stands("canceled");
  assert.equal((await api("experiments/2")).state, "canceled");
  // It goes on when it is activated, with the trial that is left.
  await until("it can be activated", left);
  await act("Activate");
  await stands("running");
  await until("the trial goes on", async () => same((await trial(2))?.state, "running"));
  await act("Kill");
  await stands("canceled");

  // Everything is at rest: lists show what the API says, row by row.
  const byId = (all) => all.sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }));
  await open("#/runs?columns=name,id,state,progress,best,loss,labels");
  await until("runs are those of the API", async () => {
    const said = (await api("runs?limit=1000&metrics=*")).items.map((run) => ({
      run: run.name, id: run.id, state: run.state, steps: number(run.steps), best: run.best === null ? "" : number(run.best),
      loss: "loss" in run.metrics ? number(run.metrics.loss) : "", labels: run.labels.join(""),
    }));
    return same(byId(await rows("runs")), byId(said));
  });
  await look("runs");
  await open("#/experiments?columns=id,name,state,kind,model,trials,labels");
  await until("experiments are those of the API", async () => {
    const said = (await api("experiments?limit=1000")).items.map((one) => ({
      id: String(one.id), experiment: one.name, state: one.state, kind: one.kind, model: one.model ?? "", trials: String(one.trials), labels: one.labels.join(""),
    }));
    return same(byId(await rows("experiments")), byId(said));
  });
  await open("#/run/1.1/checkpoints");
  await until("checkpoints are those of the API", async () => {
    const said = (await api("runs/1.1/checkpoints")).map((one) => [one.name, number(one.steps)]);
    return said.length > 0 && same((await rows("checkpoints")).map((row) => [row.checkpoint, row.steps]), said);
  });
  assert.deepEqual(elsewhere, [], "no request leaves the machine");
  assert.deepEqual(problems.filter((one) => !one.endsWith("/scale")), [], "no errors in the console");
};

try {
  await steer();
} catch (error) {
  // A wait of playwright's own says little of what there was instead.
  console.error(await seen());
  throw error;
} finally {
  await browser.close();
}
