// A hub with a login: the page asks for a token, says what is wrong with one, and keeps it for its tab only.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const { URL: base, TOKEN, EDITOR, PLAYWRIGHT, SALAMANDER_SCREENSHOTS: pictures } = process.env;
const { chromium } = createRequire(`${PLAYWRIGHT}/`)("playwright-core");
const browser = await chromium.launch({ timeout: 120_000, executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ acceptDownloads: true });
const page = await context.newPage();
page.setDefaultTimeout(120_000);
await page.goto(`${base}/#/runs`);
await page.waitForSelector(".login input");
assert(!(await page.textContent("main")).includes("live"), "nothing is told before");
if (pictures) {
  fs.mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/login.png` });
}
const enter = async (token) => {
  await page.fill(".login input", token);
  await page.click(".login button");
};
await enter("slm_wrong_token");
await page.waitForFunction(() => document.querySelector(".login [role=alert]")?.textContent.includes("nobody's"));
await enter(TOKEN);
await page.waitForFunction(() => document.querySelectorAll("tbody tr:not(.space)").length === 1);
assert(!page.url().includes(TOKEN), "the address does not have it");
assert.equal(await page.evaluate(() => JSON.stringify({ ...localStorage })), "{}", "nor is it kept for long");
// A file is fetched with the token, not by a link.
await page.goto(`${base}/#/run/1.1/checkpoints`);
await page.click("[aria-label^='download step-']");
const download = page.waitForEvent("download");
await page.click("[aria-label='download model.safetensors']");
assert.equal(fs.readFileSync(await (await download).path(), "utf8"), "these are weights");
await page.click("dialog button:text-is('Close')");
// What a client of MLflow has registered stands on the page, as text.
const register = async (call, body) => {
  const answer = await fetch(`${base}/api/2.0/mlflow/${call}`, { method: "POST", headers: { Authorization: `Bearer ${EDITOR}`, "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return JSON.parse(text);
};
const hostile = "<img src=x onerror='window.hurt=1'>";
await register("registered-models/create", { name: "<b>theirs", description: hostile });
await register("model-versions/create", { name: "<b>theirs", source: "mlflow-artifacts:/0/x", description: "the first" });
await register("registered-models/alias", { name: "<b>theirs", alias: "champion", version: "1" });
await page.goto(`${base}/#/models`);
await page.waitForSelector("[aria-label='versions of <b>theirs']");
const registered = await page.textContent("main");
for (const part of ["<b>theirs", hostile, "the first", "champion"]) assert(registered.includes(part), part);
assert.equal(await page.evaluate(() => window.hurt), undefined, "a description was executed");
// Runs that a client has logged have no file: their hyperparameters are shown, and they are compared as others are.
const logged = async (name, rate) => {
  const { run } = await register("runs/create", { experiment_id: "0", run_name: name });
  const metrics = [1, 2, 3].map((step) => ({ key: "score", value: step * rate, timestamp: 1_700_000_000_000 + step * 1000, step }));
  await register("runs/log-batch", { run_id: run.info.run_id, params: [{ key: "rate", value: String(rate) }], metrics });
  return run.info.run_id;
};
const listed = async (name) => {
  const answer = await fetch(`${base}/api/v1/runs?limit=100`, { headers: { Authorization: `Bearer ${EDITOR}` } });
  return (await answer.json()).items.find((run) => run.name === name);
};
const open = async (hash) => {
  await page.goto("about:blank");
  await page.goto(`${base}/${hash}`);
  await page.waitForSelector(".view[data-ready]");
};
const says = (text) => page.waitForFunction((part) => document.querySelector("main").textContent.includes(part), text);
const theirs = await logged("one of theirs", 0.5);
const [{ id: one, experiment }, { id: ours }] = [await listed("one of theirs"), await listed("live")];
// A second run that comes while the page of its experiment is open is compared with the first.
await open(`#/search/${experiment}`);
await says("1 run of clients of MLflow");
await page.waitForSelector("h2:text-is('Parallel coordinates')", { state: "hidden" });
await logged("another of theirs", 0.25);
await page.waitForSelector("h2:text-is('Parallel coordinates')", { state: "visible" });
const { id: another } = await listed("another of theirs");
// Whose metrics have other names than ours has charts of them, also over the times that the client has told.
await open(`#/run/${one}`);
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
for (const [x, from, to] of [["wall", 1_700_000_001, 1_700_000_003], ["relative", 0, 2]]) {
  await open(`#/run/${one}/curves?x=${x}`);
  await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "1");
  const { x0, x1 } = JSON.parse(await page.getAttribute("figure.chart canvas", "data-ends"));
  assert(Math.abs(x0 - from) < 0.5 && Math.abs(x1 - to) < 0.5, `${x}: ${x0} to ${x1}`);
}
// The addresses that a client prints.
const places = [[`experiments/0/runs/${theirs}`, `run/${one}`], ["experiments/0", `search/${experiment}`], [`experiments/1/runs/5a1a${"1".padStart(14, "0")}${"1".padStart(14, "0")}`, `run/${ours}`]];
for (const [printed, place] of places) {
  await page.goto("about:blank");
  await page.goto(`${base}/#/${printed}`);
  await page.waitForFunction((hash) => location.hash === hash && document.querySelector(".view[data-ready] h1"), `#/${place}`);
}
await open(`#/run/${one}/config`);
assert((await page.textContent("main")).includes("rate0.5"), "hyperparameters instead of a file");
await open(`#/compare?runs=${one},${another}`);
await page.waitForFunction(() => document.querySelector("main").textContent.includes("have no file"));
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "2");
await open(`#/compare?runs=${ours},${one}`);
await page.waitForFunction(() => document.querySelector("main").textContent.includes("one of theirs has no file"));
// An address that is none says so; a token that is good no more leads to the login.
await page.goto("about:blank");
await page.goto(`${base}/#/run/%`);
await says("This did not work");
await open("#/models");
await page.waitForFunction(() => document.getElementById("live").textContent === "live");
await page.route("**/api/v1/*", (route) => route.fulfill({ status: 401, contentType: "application/json", body: '{"error":"this token is nobody\'s"}' }));
await page.evaluate(() => {
  for (const hidden of [true, false]) {
    Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }
});
await page.waitForSelector(".login input");
await page.unroute("**/api/v1/*");
await enter(TOKEN);
await page.waitForSelector(".view.models[data-ready]");
// A viewer may look, and is told why nothing more.
await page.goto(`${base}/#/search/1`);
await page.click("button:text-is('Archive')");
await page.click("dialog button:text-is('Archive')");
await page.waitForFunction(() => document.getElementById("told").textContent.includes("may look"));
await page.click("#logout");
await page.waitForSelector(".login input");
// Who guesses has to wait; a minute that ends meanwhile counts anew.
let [status, told] = [0, ""];
for (let rounds = 0; rounds < 20 && !told.includes("try again"); rounds += 1) {
  status = 0;
  for (let tries = 0; tries < 40 && status !== 429; tries += 1) {
    ({ status } = await fetch(`${base}/api/v1/runs`, { headers: { Authorization: `Bearer slm_a_${tries}` } }));
  }
  await page.evaluate(() => document.querySelector(".login").setAttribute("data-seen", ""));
  await enter("slm_wrong_token");
  told = await page.textContent(".login:not([data-seen]) [role=alert]");
}
assert.equal(status, 429);
assert(told.includes("try again"), told);
await browser.close();
