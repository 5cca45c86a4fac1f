// How good a classifier is, by class: its confusion matrix and its report.

import { get } from "./api.js";
import { canvasOf } from "./canvas.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";

export async function confusion(area, view, own, path) {
  const draw = async () => {
    const report = await get(`${path}/report`, {}, view.signal);
    if (!report?.rows) {
      fill(area, h("p", { class: "empty" }, "A classifier has a report when its run has ended."));
      return;
    }
    const rows = [...report.rows, report.macro_avg, report.weighted_avg].filter(Boolean);
    fill(area, h("p", {}, h("b", {}, `accuracy ${number(report.accuracy)}`)), h("div", { class: "two" }, report.confusion && matrix(report.confusion),
      h("div", { class: "scroll" }, h("table", { "aria-label": "by class" },
        h("thead", {}, h("tr", {}, ["class", "precision", "recall", "F1", "records"].map((title, at) => h("th", { scope: "col", class: at ? "num" : null }, title)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), [row.precision, row.recall, row.f1, row.support].map((value) => h("td", { class: "num" }, number(value, 4))))))))));
  };
  await draw();
  return draw;
}

/// Which classes are taken for which: rows are the truth.
function matrix({ names, counts }) {
  const cell = Math.max(6, Math.min(46, Math.floor(620 / names.length)));
  const margin = Math.max(28, Math.min(120, 14 + 7 * Math.max(...names.map((name) => name.length))));
  const side = margin + cell * names.length;
  const { canvas, pen, soft } = canvasOf(side, side, `confusion matrix of ${names.length} classes; the table beside it has the figures`);
  Object.assign(canvas.dataset, { cell, margin });
  pen.textBaseline = "middle";
  counts.forEach((row, truth) => {
    const total = row.reduce((sum, count) => sum + count, 0) || 1;
    row.forEach((count, predicted) => {
      const share = count / total;
      const [x, y] = [margin + predicted * cell, margin + truth * cell];
      pen.fillStyle = `rgb(${239 - 231 * share} ${244 - 180 * share} ${250 - 121 * share})`;
      pen.fillRect(x, y, cell - 1, cell - 1);
      if (cell < 24) return;
      pen.fillStyle = share > 0.5 ? "#fff" : "#222";
      pen.textAlign = "center";
      pen.fillText(String(count), x + cell / 2, y + cell / 2, cell - 4);
    });
  });
  pen.fillStyle = soft;
  if (cell >= 12) {
    names.forEach((name, at) => {
      pen.textAlign = "right";
      pen.fillText(name, margin - 6, margin + (at + 0.5) * cell, margin - 10);
      pen.save();
      pen.translate(margin + (at + 0.5) * cell, margin - 6);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0, margin - 10);
      pen.restore();
    });
  }
  const tip = h("p", { class: "note", role: "status" }, "rows: the truth; columns: what was predicted");
  canvas.addEventListener("pointermove", (event) => {
    const rect = canvas.getBoundingClientRect();
    const [predicted, truth] = [event.clientX - rect.left, event.clientY - rect.top].map((at) => Math.floor((at - margin) / cell));
    const count = counts[truth]?.[predicted];
    if (count !== undefined) tip.textContent = `${names[truth]} taken for ${names[predicted]}: ${number(count)} times`;
  });
  return h("div", { class: "drawn heat" }, canvas, tip);
}
