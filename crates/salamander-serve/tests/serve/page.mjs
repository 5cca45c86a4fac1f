// Opens the page in chromium, tries both models as a person would, and compares what is there with what the API says.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const { URL: base, PLAYWRIGHT, SALAMANDER_SCREENSHOTS: pictures } = process.env;
const { chromium } = createRequire(`${PLAYWRIGHT}/`)("playwright-core");
const browser = await chromium.launch({ timeout: 120_000, executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1000, height: 1100 } });
page.setDefaultTimeout(120_000);
const [problems, elsewhere] = [[], []];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
page.on("request", (request) => !request.url().startsWith(base) && !request.url().startsWith("data:") && elsewhere.push(request.url()));
const look = async (name) => {
  if (!pictures) return;
  fs.mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/serve-${name}.png` });
};

await page.goto(base);
await page.waitForSelector("body[data-ready]");
assert.equal(await page.textContent("#state"), "ready");
const cells = await page.$$eval("#models td", (all) => all.map((cell) => cell.textContent));
assert.deepEqual(cells, [
  "digits", "step-7", "READY", "image UINT8 [-1,1,28,28]", "count INT64 [-1]\nshares FP32 [-1,2]",
  "reviews", "step-7", "READY", "text BYTES [-1]", "count INT64 [-1]\nshares FP32 [-1,2]",
]);

// A stroke on the canvas: as many pixels as the model counts are not black.
const count = () => page.textContent("#answer tr:nth-child(2) td:nth-child(2)");
await page.click("form button:text('ask')");
await page.waitForSelector("#answer td");
assert.equal(await count(), "0");
const box = await (await page.$("canvas")).boundingBox();
await page.mouse.move(box.x + 60, box.y + 60);
await page.mouse.down();
await page.mouse.move(box.x + 200, box.y + 200, { steps: 12 });
await page.mouse.up();
const lit = await page.$eval("canvas", (canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, 280, 280).data;
  let lit = 0;
  for (let row = 0; row < 28; row += 1) for (let column = 0; column < 28; column += 1) lit += pixels[4 * ((row * 10 + 5) * 280 + column * 10 + 5)] > 0;
  return lit;
});
assert(lit > 14, `only ${lit} pixels were drawn`);
await page.click("form button:text('ask')");
await page.waitForFunction((lit) => document.querySelector("#answer tr:nth-child(2) td:nth-child(2)")?.textContent === String(lit), lit);
assert.equal(await page.locator("#answer meter").count(), 2);
await look("digit");
await page.click("form button:text('clear')");
await page.click("form button:text('ask')");
await page.waitForFunction(() => document.querySelector("#answer tr:nth-child(2) td:nth-child(2)")?.textContent === "0");

// A sentence, with what would do harm as HTML.
await page.selectOption("#model", "reviews");
await page.waitForSelector("textarea[name=text]");
const sentence = "<img src=x onerror='window.hurt=1'> good";
await page.fill("textarea[name=text]", sentence);
await page.click("form button:text('ask')");
await page.waitForFunction((length) => document.querySelector("#answer tr:nth-child(2) td:nth-child(2)")?.textContent === String(length), sentence.length);
assert.equal(await page.evaluate(() => window.hurt), undefined);

// Curves: requests that were answered while the page was open.
for (let tries = 0; ; tries += 1) {
  await page.evaluate(() => fetch("/v2/models/reviews/infer", { method: "POST", body: JSON.stringify({ text: "again" }) }).then((answer) => answer.text()));
  const drawn = await page.evaluate(() => document.querySelector("#chart path.p99")?.getAttribute("d") ?? "");
  if (drawn.includes("h0.1")) break;
  assert(tries < 1200, "no curve was drawn");
  await new Promise((done) => setTimeout(done, 50));
}
assert.match(await page.textContent("#rates"), /\d+ requests in the last second, 0 wait/);
await look("reviews");

// What the server refuses is shown.
await page.route("**/infer", (route) => route.fulfill({ status: 400, contentType: "application/json", body: JSON.stringify({ error: "<b>no</b>" }) }));
problems.length = 0;
await page.click("form button:text('ask')");
await page.waitForFunction(() => document.querySelector("#problem").textContent === "<b>no</b>");
assert.deepEqual(problems.filter((text) => !text.includes("400")), []);
assert.deepEqual(elsewhere, []);
await browser.close();
console.log("the page shows what the server says");
