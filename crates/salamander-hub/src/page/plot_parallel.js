// Trials as lines over their hyperparameters and what they measured; dragging along an axis chooses some.

import { canvasOf, heat, placeOf, widthOf } from "./canvas.js";
import { button, fill, h } from "./dom.js";
import { number } from "./format.js";
import { axisOf, isWide, varied } from "./trials.js";

export function drawParallel(element, { view, trials, value, name, brushed, changed, smaller }) {
  const axes = [...varied(trials).map((hparam) => {
    const list = trials.map((trial) => trial.flat[hparam]);
    const words = list.every((one) => typeof one === "number" || one === undefined) ? null : [...new Set(list.map(String))].sort();
    const place = axisOf(list);
    return { key: hparam, title: hparam, words, of: (trial) => place(trial.flat[hparam]) };
  }), { key: "metric", title: name, words: null, of: value }];
  for (const axis of axes) {
    const numbers = trials.map(axis.of).filter((one) => one !== null && Number.isFinite(one));
    axis.log = !axis.words && isWide(numbers);
    const f = axis.log ? Math.log10 : (one) => one;
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    axis.share = (one) => (high === low ? 0.5 : (f(one) - f(low)) / (f(high) - f(low)));
    axis.back = (share) => (axis.log ? 10 ** (f(low) + share * (f(high) - f(low))) : low + share * (high - low));
    Object.assign(axis, { low, high });
  }
  if (trials.length < 2 || axes.length < 2) {
    fill(element, h("p", { class: "soft" }, "There is nothing to compare: trials differ in no hyperparameter yet."));
    return;
  }
  const width = Math.max(widthOf(element), axes.length * 90);
  const height = 300;
  const { canvas, pen, soft, text, accent } = canvasOf(width, height, `parallel coordinates of ${trials.length} trials`);
  const x = (at) => 50 + (at * (width - 100)) / (axes.length - 1);
  const y = (share) => height - 24 - share * (height - 60);
  canvas.dataset.axes = JSON.stringify(axes.map((axis, at) => ({ key: axis.key, x: x(at), top: y(1), bottom: y(0) })));
  const brushes = () => JSON.parse(view.params.brush ?? "{}");
  const draw = (dragged) => {
    pen.clearRect(0, 0, width, height);
    const kept = new Set(brushed().map((trial) => trial.id));
    canvas.dataset.kept = String(kept.size);
    const ordered = [...trials].sort((a, b) => kept.has(a.id) - kept.has(b.id));
    for (const trial of ordered) {
      const share = value(trial) === null ? null : axes[axes.length - 1].share(value(trial));
      pen.globalAlpha = kept.has(trial.id) ? 0.8 : 0.08;
      pen.strokeStyle = share === null ? soft : heat(smaller ? 1 - share : share);
      pen.lineWidth = 1.3;
      pen.beginPath();
      let move = true;
      axes.forEach((axis, at) => {
        const one = axis.of(trial);
        if (one === null || !Number.isFinite(one)) {
          move = true;
          return;
        }
        move ? pen.moveTo(x(at), y(axis.share(one))) : pen.lineTo(x(at), y(axis.share(one)));
        move = false;
      });
      pen.stroke();
    }
    pen.globalAlpha = 1;
    axes.forEach((axis, at) => {
      pen.strokeStyle = pen.fillStyle = soft;
      pen.beginPath();
      pen.moveTo(x(at), y(0));
      pen.lineTo(x(at), y(1));
      pen.stroke();
      pen.textAlign = "center";
      pen.fillStyle = text;
      pen.fillText(axis.title, x(at), 14, 120);
      pen.fillStyle = soft;
      pen.fillText(axis.words ? axis.words.at(-1) ?? "" : number(axis.high, 3), x(at), y(1) - 5, 90);
      pen.fillText(axis.words ? axis.words[0] : number(axis.low, 3), x(at), height - 8, 90);
      const brush = dragged?.at === at ? dragged.range : brushes()[axis.key];
      if (!brush) return;
      pen.globalAlpha = 0.3;
      pen.fillStyle = accent;
      const [low, high] = brush.map((one) => y(Math.max(0, Math.min(1, axis.share(one)))));
      pen.fillRect(x(at) - 7, high, 14, low - high);
      pen.globalAlpha = 1;
    });
  };
  let drag = null;
  const place = (event) => placeOf(canvas, event);
  const shareAt = (pixel) => Math.max(0, Math.min(1, (height - 24 - pixel) / (height - 60)));
  canvas.addEventListener("pointerdown", (event) => {
    const [px, py] = place(event);
    const at = axes.findIndex((_, index) => Math.abs(x(index) - px) < 20);
    if (at >= 0) drag = { at, from: py };
    canvas.setPointerCapture(event.pointerId);
  });
  const range = (py) => [Math.max(drag.from, py), Math.min(drag.from, py)].map((pixel) => axes[drag.at].back(shareAt(pixel)));
  canvas.addEventListener("pointermove", (event) => {
    if (drag) draw({ at: drag.at, range: range(place(event)[1]) });
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const py = place(event)[1];
    const all = brushes();
    if (Math.abs(py - drag.from) < 4) delete all[axes[drag.at].key];
    else all[axes[drag.at].key] = range(py);
    drag = null;
    view.set({ brush: Object.keys(all).length ? JSON.stringify(all) : null });
    draw();
    changed();
  });
  draw();
  const clear = button("All trials", () => {
    view.set({ brush: null });
    draw();
    changed();
  }, { class: "small" });
  fill(element, h("div", { class: "drawn parallel" }, canvas), h("p", { class: "note" }, "Drag along an axis to choose trials; a click on it gives its values back. Bright is better. ", clear));
}
