// Very many curves as pixels of their own: a canvas takes a millisecond for each path, and this takes one for fifty.
// Pure, so that it can be tried without a browser.

import { isGap } from "./curve.js";

/// Draws a line into `pixels` (`width` x `height` of 32 bits): every pixel that the line passes through, so that no
/// point is lost. `x` and `y` say where a point is, in pixels.
export function line({ pixels, width, height }, { xs, ys, color, x, y }) {
  let [beforeX, beforeY, open] = [0, 0, false];
  const column = (at, one, other) => {
    const low = Math.max(0, Math.floor(Math.min(one, other)));
    const high = Math.min(height - 1, Math.floor(Math.max(one, other)));
    for (let place = low * width + at; place <= high * width + at; place += width) pixels[place] = color;
  };
  for (let at = 0; at < xs.length; at += 1) {
    const value = ys[at];
    if (isGap(value)) {
      open = false;
      continue;
    }
    const [toX, toY] = [x(xs[at]), y(value)];
    if (!Number.isFinite(toX) || !Number.isFinite(toY)) {
      open = false;
      continue;
    }
    const [fromX, fromY] = open ? [beforeX, beforeY] : [toX, toY];
    [beforeX, beforeY, open] = [toX, toY, true];
    const [leftX, leftY, rightX, rightY] = fromX <= toX ? [fromX, fromY, toX, toY] : [toX, toY, fromX, fromY];
    const first = Math.max(0, Math.floor(leftX));
    const last = Math.min(width - 1, Math.floor(rightX));
    if (first === last && rightX - leftX < 1) {
      column(first, leftY, rightY);
      continue;
    }
    const slope = (rightY - leftY) / (rightX - leftX);
    for (let place = first; place <= last; place += 1) {
      column(place, leftY + (Math.max(leftX, place) - leftX) * slope, leftY + (Math.min(rightX, place + 1) - leftX) * slope);
    }
  }
}

/// `#rrggbb` as the 32 bits of an opaque pixel.
export function pixelOf(color) {
  const value = Number.parseInt(color.slice(1), 16);
  return (0xff000000 | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}
