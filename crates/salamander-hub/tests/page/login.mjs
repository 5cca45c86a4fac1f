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
const theirs = [await logged("one of theirs", 0.5), await logged("another of theirs", 0.25)];
const listed = (await (await fetch(`${base}/api/v1/runs?limit=100`, { headers: { Authorization: `Bearer ${EDITOR}` } })).json()).items;
const [one, another, ours] = ["one of theirs", "another of theirs", "live"].map((name) => listed.find((run) => run.name === name).id);
const open = async (hash) => {
  await page.goto("about:blank");
  await page.goto(`${base}/${hash}`);
  await page.waitForSelector(".view[data-ready]");
};
await open(`#/run/${one}/config`);
assert((await page.textContent("main")).includes("rate0.5"), "hyperparameters instead of a file");
await open(`#/compare?runs=${one},${another}`);
await page.waitForFunction(() => document.querySelector("main").textContent.includes("have no file"));
await page.waitForFunction(() => document.querySelector("figure.chart canvas")?.dataset.curves === "2");
await open(`#/compare?runs=${ours},${one}`);
await page.waitForFunction(() => document.querySelector("main").textContent.includes("one of theirs has no file"));
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
