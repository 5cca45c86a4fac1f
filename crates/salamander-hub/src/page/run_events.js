// What a master's log tells of members, generations, kills and checkpoints. Pure.

const PATTERNS = [
  ["join", /worker (\S+) joined: slot (\d+), process (\d+)/, ([, id, slot, pid]) => ({ id, lane: `worker-${slot}`, text: `worker-${slot} joined, process ${pid}` })],
  ["join", /parameter server (\d+) is ready: (\S+), process (\d+)/, ([, seat, id, pid]) => ({ id, lane: `ps-${seat}`, text: `ps-${seat} is ready, process ${pid}` })],
  ["kill", /worker (\S+): slot (\d+), process (\d+) (was killed: .*|crashed: .*)/, ([, id, slot, pid, how]) => ({ id, lane: `worker-${slot}`, text: `worker-${slot}, process ${pid}, ${how}` })],
  ["leave", /worker (\S+): slot (\d+), process (\d+) ended/, ([, id, slot]) => ({ id, lane: `worker-${slot}`, text: `worker-${slot} ended` })],
  ["kill", /parameter server (\d+): process (\d+) (was killed: .*|crashed: .*)/, ([, seat, pid, how]) => ({ lane: `ps-${seat}`, text: `ps-${seat}, process ${pid}, ${how}` })],
  ["leave", /parameter server (\d+): process (\d+) ended/, ([, seat]) => ({ lane: `ps-${seat}`, text: `ps-${seat} ended` })],
  ["drop", /worker (\S+) (?:dropped|replaced): (.*)/, ([, id, why]) => ({ id, text: `dropped: ${why}` })],
  ["generation", /generation (\S+) began: (\d+) members?, from (.*), after (\d+) ms/, ([, generation, members, from, took]) => ({ generation, members: Number(members), took: Number(took), text: `generation ${generation}: ${members} ${members === "1" ? "member" : "members"}, from ${from}, after ${took} ms` })],
  ["checkpoint", /checkpoint (\S+) kept, version (\d+)/, ([, id, version]) => ({ text: `checkpoint ${id}, version ${version}` })],
  ["master", /master restarted, term (\d+)/, ([, term]) => ({ text: `master restarted, term ${term}` })],
  ["scale", /(\d+) (workers?|parameter servers?) (?:is|are) wanted/, ([, count, what]) => ({ text: `${count} ${what} wanted` })],
];

/// Events with their times, from lines of a log.
export function eventsOf(lines) {
  const found = [];
  for (const line of lines) {
    if (!line.time) continue;
    for (const [kind, pattern, read] of PATTERNS) {
      const match = pattern.exec(line.text);
      if (!match) continue;
      found.push({ kind, time: line.time, ...read(match) });
      break;
    }
  }
  const lanes = new Map();
  for (const event of found) {
    if (event.kind === "join" && event.id) lanes.set(event.id, event.lane);
    if (event.kind === "drop" && lanes.has(event.id)) {
      event.lane = lanes.get(event.id);
      event.text = `${event.lane} ${event.text}`;
    }
  }
  return found;
}

/// When each process was there: {lane, from, to, lost}; `to` is null while it is.
export function stretchesOf(events) {
  const [open, out] = [new Map(), []];
  const close = (lane, to, lost) => {
    const stretch = open.get(lane);
    if (!stretch) return;
    Object.assign(stretch, { to, lost });
    open.delete(lane);
  };
  for (const event of events) {
    if (!event.lane) continue;
    if (event.kind === "join") {
      close(event.lane, event.time, true);
      const stretch = { lane: event.lane, from: event.time, to: null, lost: false };
      open.set(event.lane, stretch);
      out.push(stretch);
    } else if (event.kind === "kill" || event.kind === "leave" || event.kind === "drop") {
      close(event.lane, event.time, event.kind !== "leave");
    }
  }
  return out;
}

/// The share of the time in which steps followed each other as they usually do; times are in seconds, sorted. A pause
/// counts as lost where it is longer than a second and ten usual steps.
export function goodput(times) {
  const gaps = [];
  for (let at = 1; at < times.length; at += 1) gaps.push(times[at] - times[at - 1]);
  if (gaps.length < 3) return null;
  const usual = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)];
  const limit = Math.max(1, 10 * usual);
  const lost = gaps.filter((gap) => gap > limit).reduce((sum, gap) => sum + gap - usual, 0);
  const whole = times[times.length - 1] - times[0];
  return whole > 0 ? { share: 1 - lost / whole, lost, pauses: gaps.filter((gap) => gap > limit).length } : null;
}
