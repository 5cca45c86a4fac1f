// Drawing surfaces for plots that are not curves.

import { h } from "./dom.js";

/// A canvas of this size with its pen and the colors of the theme.
export function canvasOf(width, height, label) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": label });
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11.5px system-ui, sans-serif";
  return { canvas, pen, ...themeColors() };
}

export function themeColors() {
  const style = getComputedStyle(document.documentElement);
  const names = ["text", "soft", "line", "back", "panel", "raised", "good", "bad", "busy", "accent"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/// How wide a drawing in this element can be.
export function widthOf(element, least = 280) {
  return Math.max(least, (element.clientWidth || element.parentElement?.clientWidth || 700) - 22);
}

/// Where a pointer is on a canvas.
export function placeOf(canvas, event) {
  const rect = canvas.getBoundingClientRect();
  return [event.clientX - rect.left, event.clientY - rect.top];
}

/// From little to much, readable on both themes.
export function heat(share) {
  const stops = [[68, 59, 150], [42, 120, 170], [38, 164, 133], [150, 190, 60], [245, 205, 60]];
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const [low, part] = [Math.min(stops.length - 2, Math.floor(at)), at - Math.min(stops.length - 2, Math.floor(at))];
  return `rgb(${stops[low].map((one, index) => Math.round(one + (stops[low + 1][index] - one) * part)).join(" ")})`;
}

/// A line that a pointer is told in.
export function tipLine(text) {
  return h("p", { class: "note", role: "status" }, text);
}
