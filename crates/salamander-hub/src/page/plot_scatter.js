// What trials measured by one hyperparameter, and by two of them.

import { canvasOf, heat, placeOf, tipLine, widthOf } from "./canvas.js";
import { color } from "./chart.js";
import { ticks } from "./curve.js";
import { fill, h, select } from "./dom.js";
import { number } from "./format.js";
import { axisOf, isWide, varied } from "./trials.js";

/// One point for each trial: the metric over a hyperparameter.
export function drawScatter(element, { view, trials, value, name, redraw }) {
  const hparams = varied(trials);
  if (!hparams.length) {
    fill(element, h("p", { class: "soft" }, "Trials differ in no hyperparameter."));
    return;
  }
  const by = hparams.includes(view.params.scatter) ? view.params.scatter : hparams[0];
  const list = trials.map((trial) => trial.flat[by]);
  const words = list.every((one) => typeof one === "number" || one === undefined) ? null : [...new Set(list.map(String))].sort();
  const place = axisOf(list);
  const points = trials.map((trial) => ({ trial, x: place(trial.flat[by]), y: value(trial) })).filter(({ x, y }) => x !== null && y !== null && Number.isFinite(y));
  const [width, height, left] = [widthOf(element), 280, 58];
  const { canvas, pen, soft, line } = canvasOf(width, height, `${name} by ${by}: ${points.length} trials`);
  const f = !words && isWide(points.map(({ x }) => x)) ? Math.log10 : (one) => one;
  const ends = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? [low - 0.5, high + 0.5] : [low - (high - low) * 0.04, high + (high - low) * 0.04];
  };
  const [[x0, x1], [y0, y1]] = [ends(points.map(({ x }) => f(x))), ends(points.map(({ y }) => y))];
  const px = (one) => left + ((f(one) - x0) / (x1 - x0)) * (width - left - 16);
  const py = (one) => height - 28 - ((one - y0) / (y1 - y0)) * (height - 44);
  pen.strokeStyle = line;
  pen.fillStyle = soft;
  pen.textAlign = "right";
  for (const tick of ticks(y0, y1, 5)) {
    pen.beginPath();
    pen.moveTo(left, py(tick));
    pen.lineTo(width - 16, py(tick));
    pen.stroke();
    pen.fillText(number(tick, 4), left - 6, py(tick) + 4);
  }
  pen.textAlign = "center";
  const along = words ? words.map((_, at) => at) : ticks(x0, x1, width / 110);
  for (const tick of along) pen.fillText(words ? words[tick] : number(f === Math.log10 ? 10 ** tick : tick, 3), left + ((tick - x0) / (x1 - x0)) * (width - left - 16), height - 10, 100);
  for (const { trial, x, y } of points) {
    pen.globalAlpha = 0.8;
    pen.fillStyle = color(trial.trial % 10);
    pen.beginPath();
    pen.arc(px(x), py(y), 4.5, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  canvas.dataset.points = String(points.length);
  const tip = tipLine(`${name} (up) by ${by}`);
  const near = (event) => {
    const [mx, my] = placeOf(canvas, event);
    return points.map((one) => ({ one, far: Math.hypot(px(one.x) - mx, py(one.y) - my) })).reduce((best, next) => (best === null || next.far < best.far ? next : best), null);
  };
  canvas.addEventListener("pointermove", (event) => {
    const found = near(event);
    if (found) tip.textContent = `${found.one.trial.name}: ${by} ${found.one.trial.flat[by]}, ${name} ${number(found.one.y)}`;
  });
  canvas.addEventListener("click", (event) => {
    const found = near(event);
    if (found && found.far < 12) location.hash = view.link(["run", found.one.trial.id]);
  });
  fill(element, h("div", { class: "bar" }, select("by", hparams.map((one) => [one, one]), by, (chosen) => {
    view.set({ scatter: chosen });
    redraw();
  })), h("div", { class: "drawn scatter" }, canvas), tip);
}

/// Cells of an axis: each word or number its own while they are few, else stretches of the same width.
function cellsOf(trials, name, most) {
  const list = trials.map((trial) => trial.flat[name]);
  const numbers = list.filter((one) => typeof one === "number");
  const different = [...new Set(list.filter((one) => one !== undefined).map((one) => (typeof one === "number" ? one : String(one))))];
  if (different.length <= most || !numbers.length) {
    different.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
    return { titles: different.map((one) => (typeof one === "number" ? number(one, 3) : one)), of: (trial) => different.findIndex((one) => String(one) === String(trial.flat[name])) };
  }
  const f = isWide(numbers) ? Math.log10 : (one) => one;
  const [low, high] = [f(Math.min(...numbers)), f(Math.max(...numbers))];
  const edge = (at) => low + ((high - low) * at) / most;
  const back = (one) => (f === Math.log10 ? 10 ** one : one);
  return {
    titles: Array.from({ length: most }, (_, at) => number(back((edge(at) + edge(at + 1)) / 2), 2)),
    of: (trial) => (typeof trial.flat[name] === "number" ? Math.min(most - 1, Math.floor(((f(trial.flat[name]) - low) / (high - low)) * most)) : -1),
  };
}

/// The mean of the metric in each cell of two hyperparameters.
export function drawHeat(element, { view, trials, value, name, smaller, redraw }) {
  const hparams = varied(trials);
  if (hparams.length < 2) {
    fill(element, h("p", { class: "soft" }, "Two hyperparameters that differ are needed."));
    return;
  }
  const across = hparams.includes(view.params.heatx) ? view.params.heatx : hparams[0];
  const up = hparams.includes(view.params.heaty) && view.params.heaty !== across ? view.params.heaty : hparams.find((one) => one !== across);
  const known = trials.filter((trial) => value(trial) !== null && Number.isFinite(value(trial)));
  const [xs, ys] = [cellsOf(known, across, 10), cellsOf(known, up, 8)];
  const sums = new Map();
  for (const trial of known) {
    const key = `${xs.of(trial)},${ys.of(trial)}`;
    const cell = sums.get(key) ?? { sum: 0, count: 0 };
    cell.sum += value(trial);
    cell.count += 1;
    sums.set(key, cell);
  }
  const means = [...sums.values()].map((cell) => cell.sum / cell.count);
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const [width, height, left, below] = [widthOf(element), 280, 78, 30];
  const { canvas, pen, soft, raised } = canvasOf(width, height, `mean ${name} by ${across} and ${up}`);
  const [cw, ch] = [(width - left - 12) / Math.max(1, xs.titles.length), (height - below - 8) / Math.max(1, ys.titles.length)];
  pen.textBaseline = "middle";
  ys.titles.forEach((title, row) => {
    const y = 8 + (ys.titles.length - 1 - row) * ch;
    pen.textAlign = "right";
    pen.fillStyle = soft;
    pen.fillText(title, left - 6, y + ch / 2, left - 10);
    xs.titles.forEach((_, column) => {
      const cell = sums.get(`${column},${row}`);
      const share = cell ? (high === low ? 1 : (cell.sum / cell.count - low) / (high - low)) : 0;
      const good = smaller ? 1 - share : share;
      pen.fillStyle = cell ? heat(good) : raised;
      pen.fillRect(left + column * cw, y, cw - 2, ch - 2);
      if (!cell || cw < 44 || ch < 16) return;
      pen.textAlign = "center";
      pen.fillStyle = good > 0.55 ? "#16161a" : "#ffffff";
      pen.fillText(number(cell.sum / cell.count, 3), left + (column + 0.5) * cw - 1, y + ch / 2, cw - 6);
    });
  });
  pen.textAlign = "center";
  pen.fillStyle = soft;
  xs.titles.forEach((title, column) => pen.fillText(title, left + (column + 0.5) * cw, height - below / 2, cw - 4));
  canvas.dataset.cells = String(sums.size);
  const tip = tipLine(`mean ${name}; bright is better. Across: ${across}, up: ${up}.`);
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = placeOf(canvas, event);
    const [column, row] = [Math.floor((px - left) / cw), ys.titles.length - 1 - Math.floor((py - 8) / ch)];
    const cell = sums.get(`${column},${row}`);
    if (cell) tip.textContent = `${across} ${xs.titles[column]}, ${up} ${ys.titles[row]}: mean ${name} ${number(cell.sum / cell.count)} of ${cell.count} trials`;
  });
  const choose = (label, key, at, not) => select(label, hparams.filter((one) => one !== not).map((one) => [one, one]), at, (chosen) => {
    view.set({ [key]: chosen });
    redraw();
  });
  fill(element, h("div", { class: "bar" }, choose("across", "heatx", across, null), choose("up", "heaty", up, across)), h("div", { class: "drawn heatmap" }, canvas), tip);
}
