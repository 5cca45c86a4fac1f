// What trials of a search differ in, and how that goes together with what they measured. Pure.

/// Hyperparameters that are not the same in all trials.
export function varied(trials) {
  const names = new Set(trials.flatMap((trial) => Object.keys(trial.flat)));
  return [...names].sort().filter((name) => new Set(trials.map((trial) => String(trial.flat[name]))).size > 1);
}

/// Where one of these values is on their axis: words have the places of their sorted list.
export function axisOf(list) {
  if (list.every((value) => typeof value === "number" || value === undefined)) return (one) => one ?? null;
  const places = new Map([...new Set(list.map(String))].sort().map((word, at) => [word, at]));
  return (one) => (one === undefined || one === null ? null : places.get(String(one)) ?? -1);
}

/// Spread over decades: shown as logarithms.
export function isWide(values) {
  const numbers = values.filter((value) => typeof value === "number");
  return numbers.length > 2 && numbers.every((value) => value > 0) && Math.max(...numbers) / Math.min(...numbers) > 50;
}

/// At most so many bins of about as many values each; the same value is never in two. Gives the bin of each.
export function bins(values, most) {
  const sorted = [...values].sort((a, b) => a - b);
  const different = [...new Set(sorted)];
  if (different.length <= most) return values.map((value) => different.indexOf(value));
  const edges = [];
  for (let at = 1; at < most; at += 1) {
    const edge = sorted[Math.floor((at * sorted.length) / most)];
    if (edge > sorted[0] && edge !== edges.at(-1)) edges.push(edge);
  }
  return values.map((value) => edges.filter((edge) => value >= edge).length);
}

/// How much of the spread of ranks a hyperparameter alone explains, 0 to 1: the part of their variance between bins
/// of its values, less what chance would give (the adjusted share of an analysis of variance).
export function importance(values, measured) {
  const count = measured.length;
  if (count < 4) return 0;
  const order = measured.map((value, at) => [value, at]).sort((a, b) => a[0] - b[0]);
  const ranks = new Array(count);
  order.forEach(([, at], rank) => (ranks[at] = rank));
  const where = bins(values, Math.max(2, Math.min(6, Math.floor(Math.sqrt(count)))));
  const groups = new Map();
  where.forEach((bin, at) => groups.set(bin, [...(groups.get(bin) ?? []), ranks[at]]));
  const mean = (count - 1) / 2;
  const whole = ranks.reduce((sum, rank) => sum + (rank - mean) ** 2, 0);
  let between = 0;
  for (const group of groups.values()) between += group.length * (group.reduce((sum, rank) => sum + rank, 0) / group.length - mean) ** 2;
  const degrees = groups.size - 1;
  if (!whole || !degrees || count - groups.size <= 0) return 0;
  const within = (whole - between) / (count - groups.size);
  return Math.max(0, (between - degrees * within) / (whole + within));
}

/// The lengths that trials were let go to, the shortest first.
export function rungsOf(trials) {
  return [...new Set(trials.map((trial) => trial.length).filter((length) => length > 0))].sort((a, b) => a - b);
}
