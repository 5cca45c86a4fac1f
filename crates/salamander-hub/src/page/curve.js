// What is drawn of a curve. Pure, so that it can be tried without a browser.

/// What clients of MLflow's mean by infinity is the largest number that there is.
const LARGEST = 1.7e308;

/// Where there is nothing to draw: `null` in lists, NaN in arrays of numbers, and what is infinite.
export function isGap(y) {
  return y === null || y === undefined || !(Math.abs(y) < LARGEST);
}

/// Of each column of pixels the first, the smallest, the largest and the last point: the line through them covers the
/// same pixels as the line through all. `null` is where there was no number.
export function reduce(xs, ys, place, columns) {
  const out = [];
  let column = null, first = null, min = null, max = null, last = null;
  const flush = () => {
    if (first === null) return;
    const kept = [...new Set([first, min, max, last])].sort((a, b) => a - b);
    for (const at of kept) out.push(at);
    first = min = max = last = null;
  };
  for (let at = 0; at < xs.length; at += 1) {
    if (isGap(ys[at])) {
      flush();
      column = null;
      if (out.length && out[out.length - 1] !== null) out.push(null);
      continue;
    }
    const where = Math.floor(place(xs[at]));
    if (where < -1 || where > columns + 1) {
      // The nearest point on each side leads the line in and out.
      flush();
      column = where < -1 ? -2 : columns + 2;
      if (where > columns + 1) {
        out.push(at);
        const next = ys.indexOf(null, at);
        if (next < 0) break;
        at = next - 1;
        continue;
      }
      if (out.length && out[out.length - 1] !== null && place(xs[out[out.length - 1]]) < -1) out.pop();
      out.push(at);
      continue;
    }
    if (where !== column) {
      flush();
      column = where;
      first = min = max = at;
    }
    if (ys[at] < ys[min]) min = at;
    if (ys[at] > ys[max]) max = at;
    last = at;
  }
  flush();
  return out;
}

/// An exponential moving average without the pull towards zero at its beginning; gaps stay gaps.
export function smooth(ys, weight) {
  if (!(weight > 0)) return ys;
  let last = 0, count = 0;
  return ys.map((y) => {
    if (isGap(y)) return y;
    last = last * weight + (1 - weight) * y;
    count += 1;
    return last / (1 - weight ** count);
  });
}

/// Round numbers between two ends, about so many.
export function ticks(from, to, about) {
  const span = to - from;
  if (!(span > 0) || !Number.isFinite(span)) return [from];
  const raw = span / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const out = [];
  for (let at = Math.ceil(from / step); at * step <= to + step * 1e-9; at += 1) out.push(Number((at * step).toPrecision(12)));
  return out;
}

export function logTicks(from, to, about) {
  const [low, high] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const every = Math.max(1, Math.ceil((high - low) / Math.max(1, about)));
  const out = [];
  for (let power = low; power <= high; power += 1) {
    const factors = high - low <= 2 ? [1, 2, 5] : [1];
    if ((power - low) % every !== 0) continue;
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= from * 0.999 && value <= to * 1.001) out.push(value);
    }
  }
  return out.length > 1 ? out : [from, to];
}

/// The place of a value in a sorted list, between its neighbours.
export function interpolate(xs, ys, x) {
  if (!xs.length) return null;
  let [low, high] = [0, xs.length - 1];
  if (x <= xs[0]) return ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  const share = xs[high] === xs[low] ? 0 : (x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + (ys[high] - ys[low]) * share;
}

/// The index of the point that is nearest to x, or -1.
export function nearest(xs, x) {
  if (!xs.length) return -1;
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

/// The mean of several curves over a common axis, with the band between the smallest and the largest: also of points
/// between the places at which the mean is taken.
export function band(curves, columns) {
  const all = curves.filter((curve) => curve.xs.length)
    .map((curve) => ({ xs: curve.xs, ys: curve.ys.map((y) => (isGap(y) ? NaN : y)) }));
  if (!all.length) return { xs: [], ys: [], low: [], high: [] };
  const from = Math.min(...all.map((curve) => curve.xs[0]));
  const to = Math.max(...all.map((curve) => curve.xs[curve.xs.length - 1]));
  const out = { xs: [], ys: [], low: [], high: [] };
  const extremes = Array.from({ length: columns + 1 }, () => [Infinity, -Infinity]);
  for (const { xs, ys } of all) {
    for (let at = 0; at < xs.length; at += 1) {
      const column = extremes[to > from ? Math.round(((xs[at] - from) / (to - from)) * columns) : 0];
      if (!column || !Number.isFinite(ys[at])) continue;
      if (ys[at] < column[0]) column[0] = ys[at];
      if (ys[at] > column[1]) column[1] = ys[at];
    }
  }
  for (let at = 0; at <= columns; at += 1) {
    const x = from + ((to - from) * at) / columns;
    const values = all.filter((curve) => x >= curve.xs[0] && x <= curve.xs[curve.xs.length - 1])
      .map((curve) => interpolate(curve.xs, curve.ys, x)).filter((y) => Number.isFinite(y));
    if (!values.length) continue;
    out.xs.push(x);
    out.ys.push(values.reduce((sum, y) => sum + y, 0) / values.length);
    out.low.push(Math.min(extremes[at][0], ...values));
    out.high.push(Math.max(extremes[at][1], ...values));
  }
  return out;
}

/// How much two lists go up and down together, by their ranks: -1 to 1.
export function rankCorrelation(a, b) {
  const ranks = (list) => {
    const order = list.map((value, at) => [value, at]).sort((x, y) => x[0] - y[0]);
    const out = new Array(list.length);
    for (let from = 0; from < order.length;) {
      let to = from;
      while (to < order.length && order[to][0] === order[from][0]) to += 1;
      for (let at = from; at < to; at += 1) out[order[at][1]] = (from + to - 1) / 2;
      from = to;
    }
    return out;
  };
  const [x, y] = [ranks(a), ranks(b)];
  const mean = (x.length - 1) / 2;
  let [xy, xx, yy] = [0, 0, 0];
  for (let at = 0; at < x.length; at += 1) {
    xy += (x[at] - mean) * (y[at] - mean);
    xx += (x[at] - mean) ** 2;
    yy += (y[at] - mean) ** 2;
  }
  return xx && yy ? xy / Math.sqrt(xx * yy) : 0;
}
