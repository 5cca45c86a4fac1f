// What Chromium takes for long tables and many curves; prints lines of: what, unit, value.

import { createRequire } from "node:module";

const { URL: base, PLAYWRIGHT } = process.env;
const { chromium } = createRequire(`${PLAYWRIGHT}/`)("playwright-core");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
// The page's policy forbids functions out of text; this measures from outside of it.
const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, bypassCSP: true });
const page = await context.newPage();
page.setDefaultTimeout(120_000);
const figure = (what, unit, value) => console.log(`${what}\t${unit}\t${value}`);
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const timed = async (hash, drawn, rounds = 5) => {
  const times = [];
  for (let round = 0; round < rounds; round += 1) {
    await page.goto("about:blank");
    await page.goto(`${base}/#/nothing`);
    await page.waitForSelector(".view[data-ready]");
    times.push(await page.evaluate(async ([hash, source]) => {
      const isDrawn = new Function(`return (${source})()`);
      const begun = performance.now();
      location.hash = hash;
      await new Promise((done) => {
        const look = () => (isDrawn() ? done() : requestAnimationFrame(look));
        look();
      });
      return performance.now() - begun;
    }, [hash, drawn.toString()]));
  }
  return times;
};
figure("10,000 runs: first rows can be used", "ms", median(await timed("#/runs", () => document.querySelectorAll(".runs tbody tr:not(.space)").length > 10)));
figure("10,000 runs: all of them are there", "ms", median(await timed("#/runs", () => document.querySelector(".runs [role=status]")?.textContent.startsWith("10,000"))));
await page.goto(`${base}/#/runs`);
await page.waitForFunction(() => document.querySelector(".runs [role=status]")?.textContent.startsWith("10,000"));
const acting = async (act) => page.evaluate(async (source) => {
  const begun = performance.now();
  new Function(source)();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begun;
}, act);
figure("10,000 runs: sorted by a metric", "ms", await acting("document.querySelectorAll('thead button')[5].click()"));
figure("10,000 runs: filtered", "ms", await acting("const i = document.querySelector('input[type=search]'); i.value = 'loss > 5 and name ~ net'; i.dispatchEvent(new Event('input'))"));

const ids = Array.from({ length: 1000 }, (_, at) => `${at + 1}.1`).join(",");
figure("1,000 curves of 1,000 points: from the address to the picture", "ms", median(await timed(`#/compare?runs=${ids}&metrics=^loss$`, () => document.querySelector("figure.chart canvas")?.dataset.curves === "1000", 3)));

// Frames while 1,500 charts are made and scrolled through.
await page.goto(`${base}/#/nothing`);
await page.waitForSelector(".view[data-ready]");
const frames = await page.evaluate(async () => {
  const times = [];
  let [last, on] = [performance.now(), true];
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (on) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  location.hash = "#/run/10000.1/curves?metrics=many";
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  while (document.querySelectorAll("figure.chart").length < 1500) await wait(50);
  for (let at = 0; at < 60; at += 1) {
    window.scrollBy(0, 700);
    await wait(50);
  }
  await wait(500);
  on = false;
  return times;
});
figure("1,500 metrics: the longest frame", "ms", Math.max(...frames));
figure("1,500 metrics: frames above 100 ms", "frames", frames.filter((time) => time > 100).length);
const sizes = await page.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes("/page/")).reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0));
figure("the page, as it is sent", "bytes", sizes);
await browser.close();
