// Gets curves from the hub as one chart shows them: so many stretches as it has pixels, every point when zoomed in.

import { getBytes } from "./api.js";
import { band, interpolate, isGap } from "./curve.js";

const MOST = 500;
/// Stretches that are asked for where an average needs every point.
const ALL = 20_000;

/// Curves of runs for some metrics: {metric: {run: {xs, ys, points, reduced}}}.
export async function load(runs, metrics, { params, pixels, signal }) {
  const axis = params.x ?? "step";
  const timed = axis === "relative" || axis === "wall";
  const stretches = params.smooth ? ALL : Math.max(50, Math.round(pixels));
  const times = timed ? await timesOf(runs, metrics, signal) : () => null;
  const axes = new Map(runs.map((run) => [run.id, new Map(metrics.map((metric) => [metric, xAxis(run, axis, times(run, metric))]))]));
  const along = axis.startsWith("metric:") ? await fetchAll(runs, [axis.slice(7)], { points: stretches }, signal) : null;
  let window = {};
  if (!along && (params.from !== undefined || params.to !== undefined)) {
    const back = (name, fallback) => {
      if (params[name] === undefined) return null;
      const each = [...axes.values()].flatMap((of) => [...of.values()]);
      const steps = each.map(({ back: place }) => place?.(Number(params[name])) ?? Number(params[name])).filter(Number.isFinite);
      return steps.length ? fallback(...steps) : null;
    };
    const [from, to] = [back("from", Math.min), back("to", Math.max)];
    // One step more on each side, so that lines reach the edge.
    window = { from: from === null ? null : Math.floor(from) - 1, to: to === null ? null : Math.ceil(to) + 1 };
  }
  const found = await fetchAll(runs, metrics, { points: stretches, ...window }, signal);
  const out = {};
  for (const metric of metrics) {
    out[metric] = {};
    for (const run of runs) {
      const curve = found.get(run.id)?.[metric];
      // Who tells no time has no place on an axis of it.
      if (!curve || (timed && !times(run, metric)?.steps.length)) continue;
      if (along) {
        const by = along.get(run.id)?.[axis.slice(7)];
        if (by) out[metric][run.id] = { ...byMetric(curve, by), points: curve.points, reduced: curve.reduced };
        continue;
      }
      const { to } = axes.get(run.id).get(metric);
      out[metric][run.id] = { xs: to ? curve.steps.map(to) : curve.steps, ys: curve.values, points: curve.points, reduced: curve.reduced };
    }
  }
  return out;
}

/// Whether a client of MLflow's has logged a run.
const isOfClient = (run) => (run.folder ?? "").startsWith(".hub/mlflow/");

/// When steps were, by run and metric. A run of ours has one curve of it; of a client's each metric has its own, since
/// it may count steps of its own.
async function timesOf(runs, metrics, signal) {
  const [name, points] = [(metric) => `@time/${metric}`, { points: 2000 }];
  const [ours, theirs] = await Promise.all([
    fetchAll(runs.filter((run) => !isOfClient(run)), ["time"], points, signal),
    fetchAll(runs.filter(isOfClient), metrics.map(name), points, signal)]);
  return (run, metric) => (isOfClient(run) ? theirs.get(run.id)?.[name(metric)] : ours.get(run.id)?.time);
}

/// A curve by the values of another one, step by step: of each step of the one that has fewer, with what the other one
/// has there. Its line goes back and forth.
export function byMetric(curve, by) {
  const fewer = by.steps.length < curve.steps.length ? by : curve;
  const other = fewer === by ? curve : by;
  const values = other.values.map((value) => value ?? NaN);
  const [first, last] = [other.steps[0], other.steps[other.steps.length - 1]];
  const out = { xs: [], ys: [], unsorted: true };
  fewer.steps.forEach((step, at) => {
    const own = fewer.values[at];
    if (isGap(own) || step < first || step > last) return;
    const found = interpolate(other.steps, values, step);
    if (!Number.isFinite(found)) return;
    out.xs.push(fewer === by ? own : found);
    out.ys.push(fewer === by ? found : own);
  });
  return out;
}

async function fetchAll(runs, metrics, params, signal) {
  const each = Math.max(1, Math.floor(MOST / metrics.length));
  const parts = [];
  for (let from = 0; from < runs.length; from += each) {
    const some = runs.slice(from, from + each).map((run) => run.id).join(",");
    parts.push(getBytes("curves/binary", { runs: some, metrics: metrics.join(","), ...params }, signal).then(decode));
  }
  const found = new Map();
  for (const { run, curves } of (await Promise.all(parts)).flat()) {
    found.set(run, Object.fromEntries(curves.map((curve) => [curve.metric, curve])));
  }
  return found;
}

/// Curves as the hub sends them in bytes: a number of bytes, so many of JSON that says whose they are, and of each curve
/// its steps and its values as doubles, where NaN is no number. Nothing of it is copied.
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const runs = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  let at = 8 + Math.ceil(length / 8) * 8;
  const next = (count) => {
    const numbers = new Float64Array(buffer, at, count);
    at += count * 8;
    return numbers;
  };
  for (const curve of runs.flatMap((run) => run.curves)) {
    curve.steps = next(curve.count);
    curve.values = next(curve.count);
  }
  return runs;
}

function xAxis(run, axis, time) {
  if (axis === "epoch") {
    const per = run.steps_per_epoch || 1;
    return { to: (step) => step / per, back: (x) => x * per };
  }
  if (axis === "relative" || axis === "wall") {
    const [steps, at] = [time?.steps ?? [], time?.values ?? []];
    // All metrics of a client's run begin when that did, if it says so.
    const started = isOfClient(run) && run.started ? run.started / 1000 : Infinity;
    const begin = axis === "relative" && at.length ? Math.min(started, at[0]) : 0;
    return {
      to: (step) => interpolate(steps, at, step) - begin,
      back: (x) => (steps.length ? interpolate(at, steps, x + begin) : NaN),
    };
  }
  // Steps are what they are.
  return {};
}

/// Names of runs by their ids: with the id where several have the same.
export function namesOf(runs) {
  const counts = new Map();
  for (const run of runs) counts.set(run.name, (counts.get(run.name) ?? 0) + 1);
  return new Map(runs.map((run) => [run.id, counts.get(run.name) > 1 ? `${run.name} (${run.id})` : run.name]));
}

/// Fields of runs that they can be grouped by, besides their hyperparameters.
export const FIELDS = ["experiment", "model", "state", "labels", "owner"];

/// The group of a run.
export function groupOf(run, group) {
  const value = FIELDS.includes(group) ? run[group] : run.flat?.[group];
  return Array.isArray(value) ? value.join(", ") || "none" : String(value ?? "none");
}

/// Series of a chart from loaded curves, grouped by a hyperparameter if that is asked for.
export function series(runs, curves, { color, group, pinned }) {
  if (!group) {
    const names = namesOf(runs);
    return runs.filter((run) => curves[run.id]).map((run) => ({
      name: names.get(run.id), color: color(run), strong: run.id === pinned, ...curves[run.id],
    }));
  }
  const groups = new Map();
  for (const run of runs.filter((one) => curves[one.id])) {
    const key = groupOf(run, group);
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  const names = namesOf(runs);
  return [...groups].flatMap(([key, members], at) => {
    // Of lines that go back and forth there is no mean: they stay what they are.
    if (members.some((run) => curves[run.id].unsorted)) {
      return members.map((run) => ({ name: `${group} = ${key}: ${names.get(run.id)}`, color: color(members[0], at), ...curves[run.id] }));
    }
    return [{
      name: `${group} = ${key} (${members.length})`, color: color(members[0], at), strong: true,
      ...band(members.map((run) => curves[run.id]), 300),
    }];
  });
}

/// What a chart says of how exact it is.
export function noteOf(curves, params, left = 0) {
  const all = Object.values(curves);
  if (left) {
    const those = `${left === 1 ? "1 run tells" : `${left} runs tell`} no time of steps, and ${left === 1 ? "is" : "are"} left out`;
    return all.length ? `${those}; ${noteOf(curves, params)}` : those;
  }
  const points = all.reduce((sum, curve) => sum + curve.points, 0);
  const reduced = all.some((curve) => curve.reduced);
  const text = points === 1 ? "1 point" : `${points.toLocaleString("en-US")} points`;
  if (!reduced) return text;
  const smoothed = params.smooth ? "; the average is over these" : "";
  return `${text}; smallest and largest of each pixel are shown, zoom in for every point${smoothed}`;
}

export function axisName(x) {
  return x?.startsWith("metric:") ? x.slice(7) : AXES[x ?? "step"];
}

const AXES = { step: "step", epoch: "epoch", relative: "seconds since the start", wall: "time" };
