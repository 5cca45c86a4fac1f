// Curves on a canvas: thousands of them, exact to the pixel. What is drawn can be zoomed down to the single point.

import { themeColors } from "./canvas.js";
import { button, check, fileName, h, save } from "./dom.js";
import { csvCell, number } from "./format.js";
import { isGap, logTicks, nearest, reduce, smooth, ticks } from "./curve.js";
import { line as rasterLine, pixelOf } from "./raster.js";

const COLORS = ["#3d7bd9", "#e0792b", "#2f9e63", "#c94f5d", "#8a63c9", "#8c6a4f", "#c95fae", "#6f7780", "#a89a1f", "#2aa5b8"];
const MARGIN = { left: 58, right: 14, top: 10, bottom: 36 };
const SHOWN = 12;
/// The smallest width.
const LEAST = 120;
/// More curves than this are drawn as pixels.
const MANY = 100;
const everybody = new Set();
/// The colors of the theme, which all charts share: asking for them makes the browser look at every style anew.
let theme = null;
/// Widths as the browser tells them once it has placed everything: asking for one makes it do so at once.
const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) target.chart.resized(Math.round(contentRect.width));
});

/// After the theme was changed.
export function redrawAll() {
  theme = null;
  for (const chart of everybody) chart.draw();
}

export function color(at) {
  if (at < COLORS.length) return COLORS[at];
  // Hues that are far from those before, with a saturation of 0.55 and a lightness of 0.52.
  const [hue, spread] = [((at * 137.508) % 360) / 30, 0.55 * 0.48];
  const part = (shift) => {
    const k = (shift + hue) % 12;
    return Math.round(255 * (0.52 - spread * Math.max(-1, Math.min(k - 3, 9 - k, 1)))).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

export class Chart {
  /// `zoomed` is called with the new ends of the x axis, or null for all of it. Until something is drawn it is a title
  /// and room: a page with thousands of charts has those that were looked at, and no more.
  constructor({ title, height = 260, zoomed = () => {} }) {
    this.title = title;
    this.zoomed = zoomed;
    this.height = height;
    this.series = [];
    this.options = {};
    this.canvas = null;
    this.caption = h("figcaption", {}, h("strong", {}, title));
    this.plot = h("div", { class: "plot", style: { height: `${height}px` } });
    this.note = h("p", { class: "note" });
    this.element = h("figure", { class: "chart" }, this.caption, this.plot, this.note);
    everybody.add(this);
  }

  /// What it is drawn on and used with.
  build() {
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `${this.title}: curves` });
    this.over = h("canvas", { class: "over", "aria-hidden": "true", width: 0, height: 0 });
    this.tip = h("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    this.plot.append(this.canvas, this.over, this.tip);
    this.caption.append(h("span", { class: "tools" },
      button("PNG", () => this.savePng(), { title: "Save as a picture" }),
      button("SVG", () => this.saveSvg(), { title: "Save as a drawing" }),
      button("CSV", () => this.saveCsv(), { title: "Save the points that are shown" })));
    this.listen();
    this.plot.chart = this;
    resized.observe(this.plot);
  }

  close() {
    if (this.canvas) resized.unobserve(this.plot);
    everybody.delete(this);
  }

  /// Another width; the first one is the one that it was drawn with.
  resized(width) {
    const before = this.placed;
    this.placed = width;
    if (width !== before && this.last && Math.max(LEAST, width) !== this.last.width) this.draw();
  }

  /// Out of sight a canvas takes memory for nothing; what it showed is kept and drawn again when it is back.
  rest() {
    if (!this.last) return;
    this.last = null;
    this.tip.hidden = true;
    for (const canvas of [this.canvas, this.over]) canvas.width = canvas.height = 0;
  }

  /// Series: {name, color, xs, ys, low, high}; options: {xLabel, logX, logY, smooth, from, to, note}.
  set(series, options) {
    this.series = series;
    this.options = options;
    this.say(options.note ?? "");
    this.draw();
  }

  get width() {
    return Math.max(LEAST, this.placed ?? this.plot.clientWidth);
  }

  ends() {
    const { options } = this;
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of this.series) {
      for (const x of line.unsorted ? line.xs : [line.xs[0], line.xs[line.xs.length - 1]]) {
        if (x === undefined || (options.logX && x <= 0)) continue;
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x);
      }
    }
    x0 = options.from ?? x0;
    x1 = options.to ?? x1;
    if (options.logX && !(x0 > 0)) x0 = Math.min(1, x1);
    for (const { xs, ys, low, high } of this.series) {
      for (const values of [ys, low, high]) {
        if (!values) continue;
        for (let at = 0; at < xs.length; at += 1) {
          const y = values[at];
          if (isGap(y) || (options.logY && y <= 0) || xs[at] < x0 || xs[at] > x1) continue;
          if (y < y0) y0 = y;
          if (y > y1) y1 = y;
        }
      }
    }
    if (!(x0 < x1)) [x0, x1] = Number.isFinite(x0) ? [x0 - 0.5, x0 + 0.5] : [0, 1];
    if (!Number.isFinite(y0)) [y0, y1] = options.logY ? [0.1, 1] : [0, 1];
    if (options.logY) [y0, y1] = y0 === y1 ? [y0 / 2, y1 * 2] : [y0 / 1.05, y1 * 1.05];
    else {
      const pad = y0 === y1 ? Math.abs(y0) * 0.1 || 0.5 : (y1 - y0) * 0.04;
      [y0, y1] = [y0 - pad, y1 + pad];
    }
    return { x0, x1, y0, y1 };
  }

  scales(width, height) {
    const { logX, logY } = this.options;
    const ends = this.ends();
    const box = { left: MARGIN.left, top: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const scale = (from, to, log) => {
      const f = log ? Math.log : (value) => value;
      const [a, b] = [f(from), f(to)];
      return { to: (value) => (f(value) - a) / (b - a), back: (share) => { const v = a + share * (b - a); return log ? Math.exp(v) : v; } };
    };
    const [x, y] = [scale(ends.x0, ends.x1, logX), scale(ends.y0, ends.y1, logY)];
    return {
      ends, box,
      x: (value) => box.left + x.to(value) * box.width,
      y: (value) => box.top + (1 - y.to(value)) * box.height,
      backX: (pixel) => x.back((pixel - box.left) / box.width),
    };
  }

  draw() {
    // A canvas takes memory: charts that nobody sees have none.
    if (this.element.inSight === false) return;
    if (!this.canvas) this.build();
    const [width, height] = [this.width, this.height];
    const ratio = window.devicePixelRatio || 1;
    const pen = penOf(this.canvas, width, height);
    this.over.width = this.over.height = 0;
    const scales = this.scales(width, height);
    this.last = { ...scales, width };
    // For tests and programs: where which values are.
    this.canvas.dataset.box = JSON.stringify(scales.box);
    this.canvas.dataset.ends = JSON.stringify(scales.ends);
    this.canvas.dataset.curves = String(this.series.length);
    this.axes(pen, scales, this.colors());
    pen.save();
    pen.beginPath();
    pen.rect(scales.box.left, 0, scales.box.width, height);
    pen.clip();
    const many = this.many();
    if (many.length) this.raster(pen, scales, ratio, many);
    for (const path of this.paths(scales, many.length ? this.series.filter((line) => line.strong) : this.series)) {
      pen.globalAlpha = path.alpha;
      pen.strokeStyle = pen.fillStyle = path.color;
      pen.lineWidth = path.width;
      pen.beginPath();
      for (const [move, x, y] of path.points) move ? pen.moveTo(x, y) : pen.lineTo(x, y);
      path.fill ? pen.fill() : pen.stroke();
      for (const [x, y] of path.dots) {
        pen.beginPath();
        pen.arc(x, y, 2.2, 0, 7);
        pen.fill();
      }
    }
    pen.restore();
    const last = this.series[0]?.ys.findLast((y) => !isGap(y));
    this.canvas.setAttribute("aria-label", `${this.title}: ${this.series.length} curves` +
      (last === undefined ? "" : `, the first one ends at ${number(last)}`));
  }

  /// Curves that are drawn as pixels: plain ones, where there are many.
  many() {
    if (this.series.length <= MANY || this.options.smooth > 0) return [];
    return this.series.filter((line) => !line.low && !line.strong);
  }

  raster(pen, scales, ratio, lines) {
    const { box } = scales;
    const [width, height] = [Math.ceil(box.width * ratio), Math.ceil(box.height * ratio)];
    const picture = pen.createImageData(width, height);
    const target = { pixels: new Uint32Array(picture.data.buffer), width, height };
    const x = (value) => (scales.x(value) - box.left) * ratio;
    const y = (value) => (scales.y(value) - box.top) * ratio;
    for (const { xs, ys, color: own } of lines) rasterLine(target, { xs, ys, color: pixelOf(own), x, y });
    const copy = h("canvas", { width, height });
    copy.getContext("2d").putImageData(picture, 0, 0);
    pen.globalAlpha = 1;
    pen.drawImage(copy, box.left, box.top, width / ratio, height / ratio);
  }

  /// What is drawn, for the canvas and for SVG alike.
  * paths(scales, lines = this.series) {
    const { logX, logY, smooth: weight } = this.options;
    const good = (x, y) => !isGap(y) && !(logY && y <= 0) && !(logX && x <= 0);
    for (const line of lines) {
      if (line.low) {
        const up = Array.from(line.xs, (x, at) => [at === 0, scales.x(x), scales.y(line.high[at])]);
        const down = Array.from(line.xs, (x, at) => [false, scales.x(x), scales.y(line.low[at])]).reverse();
        yield { color: line.color, alpha: 0.15, width: 0, fill: true, points: [...up, ...down], dots: [] };
      }
      // Of arrays of numbers, too, a list: only that can have gaps between its numbers.
      const raw = Array.from(line.ys, (y, at) => (good(line.xs[at], y) ? y : null));
      const drawn = weight > 0 ? [[raw, 0.28, 1], [smooth(raw, weight), 1, 1.8]] : [[raw, 1, line.strong ? 2.4 : 1.3]];
      for (const [ys, alpha, width] of drawn) {
        const kept = line.unsorted ? ys.map((y, at) => (y === null ? null : at))
          : reduce(line.xs, ys, (x) => scales.x(x) - scales.box.left, scales.box.width);
        const [points, dots] = [[], []];
        let move = true;
        for (let at = 0; at < kept.length; at += 1) {
          if (kept[at] === null) {
            move = true;
            continue;
          }
          const [x, y] = [scales.x(line.xs[kept[at]]), scales.y(ys[kept[at]])];
          points.push([move, x, y]);
          const alone = move && (at + 1 === kept.length || kept[at + 1] === null);
          if (alone || kept.length * 12 < scales.box.width) dots.push([x, y]);
          move = false;
        }
        yield { color: line.color, alpha, width, fill: false, points, dots };
      }
    }
  }

  colors() {
    if (!theme) {
      const { soft, line, back } = themeColors();
      theme = { text: soft, line, back };
    }
    return theme;
  }

  grid(scales) {
    const { logX, logY } = this.options;
    const { ends, box } = scales;
    const [nx, ny] = [box.width / 90, box.height / 45];
    return {
      xs: logX ? logTicks(ends.x0, ends.x1, nx) : ticks(ends.x0, ends.x1, nx),
      ys: logY ? logTicks(ends.y0, ends.y1, ny) : ticks(ends.y0, ends.y1, ny),
    };
  }

  axes(pen, scales, colors) {
    const { box } = scales;
    const grid = this.grid(scales);
    pen.font = "11px system-ui, sans-serif";
    pen.strokeStyle = colors.line;
    pen.fillStyle = colors.text;
    pen.lineWidth = 1;
    pen.globalAlpha = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const value of grid.ys) {
      const y = Math.round(scales.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(box.left, y);
      pen.lineTo(box.left + box.width, y);
      pen.stroke();
      pen.fillText(number(value, 4), box.left - 6, y);
    }
    pen.textAlign = "right";
    pen.textBaseline = "bottom";
    pen.fillText(this.options.xLabel ?? "", box.left + box.width, box.top + box.height + MARGIN.bottom, box.width);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const value of grid.xs) {
      const text = this.xText(value, grid);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(scales.x(value), box.left + box.width + MARGIN.right - half), box.top + box.height + 6);
    }
  }

  xText(value, grid) {
    if (this.options.wall) {
      const date = new Date(value * 1000);
      const span = grid ? grid.xs[grid.xs.length - 1] - grid.xs[0] : 0;
      return span > 172_800 ? date.toLocaleDateString("en-CA") : date.toLocaleTimeString("en-GB");
    }
    return number(value, 7);
  }

  listen() {
    const { canvas } = this;
    let from = null;
    const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointerdown", (event) => {
      from = at(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.last) return;
      const x = this.last.backX(at(event));
      for (const chart of everybody) if (chart.element.inSight !== false) chart.cross(x, chart === this ? event : null, chart === this && from !== null ? [from, at(event)] : null);
    });
    canvas.addEventListener("pointerup", (event) => {
      const to = at(event);
      if (from !== null && this.last && Math.abs(to - from) > 4) this.zoom(this.last.backX(Math.min(from, to)), this.last.backX(Math.max(from, to)));
      from = null;
    });
    canvas.addEventListener("pointerleave", () => {
      for (const chart of everybody) if (chart.element.inSight !== false) chart.cross(null);
    });
    canvas.addEventListener("dblclick", () => this.zoom(null, null));
    canvas.addEventListener("keydown", (event) => {
      if (!this.last) return;
      const { x0, x1 } = this.last.ends;
      const span = x1 - x0;
      const moves = {
        "+": [x0 + span / 4, x1 - span / 4], "=": [x0 + span / 4, x1 - span / 4], "-": [x0 - span / 2, x1 + span / 2],
        ArrowLeft: [x0 - span / 4, x1 - span / 4], ArrowRight: [x0 + span / 4, x1 + span / 4], 0: [null, null],
      };
      const to = moves[event.key];
      if (!to) return;
      event.preventDefault();
      this.zoom(...to);
    });
  }

  zoom(from, to) {
    this.zoomed(from, to);
  }

  /// The common cross: a line at x in every chart, and values where the pointer is.
  cross(x, event, drag) {
    if (!this.last) return;
    if (x === null) {
      this.over.width = this.over.height = 0;
      this.tip.hidden = true;
      return;
    }
    const pen = penOf(this.over, this.last.width, this.height);
    const { box } = this.last;
    pen.strokeStyle = this.colors().text;
    pen.beginPath();
    pen.moveTo(this.last.x(x), box.top);
    pen.lineTo(this.last.x(x), box.top + box.height);
    pen.stroke();
    if (drag) {
      pen.globalAlpha = 0.15;
      pen.fillStyle = this.colors().text;
      pen.fillRect(Math.min(...drag), box.top, Math.abs(drag[1] - drag[0]), box.height);
    }
    if (!event) {
      this.tip.hidden = true;
      return;
    }
    const rect = this.canvas.getBoundingClientRect();
    const mouse = event.clientY - rect.top;
    const found = this.series.map((line) => {
      const place = line.unsorted ? closest(line, x, mouse, this.last) : nearest(line.xs, x);
      const y = place < 0 ? null : line.ys[place];
      return { line, place, y, far: isGap(y) ? Infinity : Math.abs(this.last.y(y) - mouse) };
    }).filter((one) => one.place >= 0).sort((a, b) => a.far - b.far).slice(0, SHOWN);
    this.tip.replaceChildren(...found.map(({ line, place, y }, at) => h("div", { class: at === 0 ? "near" : null },
      h("i", { style: { background: line.color } }), ` ${line.name} `,
      h("b", {}, y === null || y === undefined || Number.isNaN(y) ? "no number" : number(y, 7)), ` at ${this.xText(line.xs[place])}`)));
    this.tip.hidden = found.length === 0;
    const left = event.clientX - rect.left;
    this.tip.style.left = left > rect.width / 2 ? "auto" : `${left + 14}px`;
    this.tip.style.right = left > rect.width / 2 ? `${rect.width - left + 14}px` : "auto";
  }

  /// A text under the drawing, of one line; a pointer on it is told all of it.
  say(text) {
    if (this.note.textContent !== text) this.note.textContent = this.note.title = text;
  }

  saveCsv() {
    const lines = [["curve", this.options.xLabel ?? "x", this.title].map(csvCell).join(",")];
    for (const line of this.series) line.xs.forEach((x, at) => lines.push(`${csvCell(line.name)},${x},${line.ys[at] ?? "NaN"}`));
    save(fileName(this.title, ".csv"), new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  }

  savePng() {
    const copy = h("canvas");
    [copy.width, copy.height] = [this.canvas.width, this.canvas.height];
    const pen = copy.getContext("2d");
    pen.fillStyle = this.colors().back || "#fff";
    pen.fillRect(0, 0, copy.width, copy.height);
    pen.drawImage(this.canvas, 0, 0);
    copy.toBlob((blob) => save(fileName(this.title, ".png"), blob), "image/png");
  }

  saveSvg() {
    const [width, height, colors] = [this.width, this.height, this.colors()];
    const scales = this.scales(width, height);
    const make = (name, attributes, text) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
      if (text !== undefined) element.textContent = text;
      return element;
    };
    const root = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 11 });
    root.append(make("title", {}, this.title), make("rect", { width, height, fill: colors.back }));
    const grid = this.grid(scales);
    const { box } = scales;
    for (const value of grid.ys) {
      const y = scales.y(value);
      root.append(make("line", { x1: box.left, x2: box.left + box.width, y1: y, y2: y, stroke: colors.line }));
      root.append(make("text", { x: box.left - 6, y: y + 4, "text-anchor": "end", fill: colors.text }, number(value, 4)));
    }
    for (const value of grid.xs) {
      root.append(make("text", { x: scales.x(value), y: box.top + box.height + 16, "text-anchor": "middle", fill: colors.text }, this.xText(value, grid)));
    }
    root.append(make("text", { x: box.left + box.width, y: height - 2, "text-anchor": "end", fill: colors.text }, this.options.xLabel ?? ""));
    // As on the canvas: a part of the axis is drawn within it.
    const clip = make("clipPath", { id: "plot" });
    clip.append(make("rect", { x: box.left, y: 0, width: box.width, height }));
    const plot = make("g", { "clip-path": "url(#plot)" });
    root.append(clip, plot);
    for (const path of this.paths(scales)) {
      const d = path.points.map(([move, x, y]) => `${move ? "M" : "L"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
      plot.append(make("path", {
        d, fill: path.fill ? path.color : "none", stroke: path.fill ? "none" : path.color, "stroke-width": path.width, opacity: path.alpha,
      }));
      for (const [x, y] of path.dots) plot.append(make("circle", { cx: x, cy: y, r: 2.2, fill: path.color, opacity: path.alpha }));
    }
    save(fileName(this.title, ".svg"), new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" }));
  }
}

/// The pen of a canvas that has this size now, and nothing on it.
function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/// The point of a curve that goes back and forth which is nearest to the pointer.
function closest(line, x, mouse, scales) {
  let [best, far] = [-1, Infinity];
  const at = scales.x(x);
  for (let place = 0; place < line.xs.length; place += 1) {
    if (isGap(line.ys[place])) continue;
    const distance = Math.hypot(scales.x(line.xs[place]) - at, scales.y(line.ys[place]) - mouse);
    if (distance < far) [best, far] = [place, distance];
  }
  return best;
}

/// The settings that all charts of a view share: axis, logarithms, smoothing. They live in the address. `metrics` are
/// those that can be an axis, too.
export function chartSettings(view, changed, metrics = []) {
  const { params } = view;
  const set = (name, value) => {
    view.set({ [name]: value, ...(name === "x" ? { from: null, to: null } : {}) });
    changed(name);
  };
  const axis = [["step", "step"], ["epoch", "epoch"], ["relative", "relative time"], ["wall", "wall time"],
    ...[...new Set([...metrics, ...(params.x?.startsWith("metric:") ? [params.x.slice(7)] : [])])].map((name) => [`metric:${name}`, name])];
  const smoothing = h("input", {
    type: "range", min: 0, max: 0.99, step: 0.01, value: params.smooth ?? 0, "aria-label": "smoothing",
    oninput: (event) => set("smooth", event.target.value === "0" ? null : event.target.value),
  });
  return h("div", { class: "settings" },
    h("label", { class: "field" }, "x axis ", h("select", { onchange: (event) => set("x", event.target.value === "step" ? null : event.target.value) },
      axis.map(([key, text]) => h("option", { value: key, selected: (params.x ?? "step") === key }, text)))),
    check("log x", params.logx === "1", (on) => set("logx", on ? "1" : null)),
    check("log y", params.logy === "1", (on) => set("logy", on ? "1" : null)),
    h("label", { class: "field" }, "smoothing ", smoothing),
    button("Whole axis", () => {
      view.set({ from: null, to: null });
      changed("zoom");
    }));
}
