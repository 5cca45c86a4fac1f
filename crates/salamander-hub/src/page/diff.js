// What differs between two texts, line by line. Pure.

/// Lines of both: {kind: "same" | "gone" | "new", text}, by the longest part that they have in common.
export function diffLines(a, b) {
  const [left, right] = [a.trimEnd().split("\n"), b.trimEnd().split("\n")];
  let [from, endLeft, endRight] = [0, left.length, right.length];
  while (from < endLeft && from < endRight && left[from] === right[from]) from += 1;
  while (endLeft > from && endRight > from && left[endLeft - 1] === right[endRight - 1]) {
    endLeft -= 1;
    endRight -= 1;
  }
  const same = (text) => ({ kind: "same", text });
  return [...left.slice(0, from).map(same), ...between(left.slice(from, endLeft), right.slice(from, endRight)), ...left.slice(endLeft).map(same)];
}

/// Only what is near to a change, with {kind: "left", count} for what is left out.
export function nearChanges(lines, near = 3) {
  const close = lines.map((_, at) => lines.slice(Math.max(0, at - near), at + near + 1).some(({ kind }) => kind !== "same"));
  const out = [];
  lines.forEach((line, at) => {
    if (close[at]) out.push(line);
    else if (out.at(-1)?.kind === "left") out.at(-1).count += 1;
    else out.push({ kind: "left", count: 1 });
  });
  return out;
}

function between(left, right) {
  // Files that have so little in common are shown one after the other.
  if (left.length * right.length > 4_000_000) {
    return [...left.map((text) => ({ kind: "gone", text })), ...right.map((text) => ({ kind: "new", text }))];
  }
  const width = right.length + 1;
  const common = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = left[i] === right[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      out.push({ kind: "same", text: left[i] });
      i += 1;
      j += 1;
    } else if (j >= right.length || (i < left.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      out.push({ kind: "gone", text: left[i] });
      i += 1;
    } else {
      out.push({ kind: "new", text: right[j] });
      j += 1;
    }
  }
  return out;
}
