// Two curves over the last minutes: half of the requests, and all but one of a hundred.

const SPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, MOST] = [640, 200, 44, 120];

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Draws points `{p50, p99}` in seconds, one for each second; absent ones are gaps. */
export function draw(svg, points) {
  const shown = points.slice(-MOST);
  const top = Math.max(0.001, ...shown.map((point) => point.p99 ?? 0)) * 1.1;
  const x = (at) => LEFT + ((WIDTH - LEFT - 8) * at) / (MOST - 1);
  const y = (seconds) => HEIGHT - 20 - ((HEIGHT - 34) * seconds) / top;
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const seconds = top * share;
    parts.push(element("text", { x: 4, y: y(seconds) + 4 }, (seconds * 1000).toPrecision(2)));
  }
  for (const curve of ["p50", "p99"]) {
    let path = "";
    let pen = false;
    shown.forEach((point, at) => {
      if (point[curve] === null) { pen = false; return; }
      path += `${pen ? "L" : "M"}${x(at).toFixed(1)},${y(point[curve]).toFixed(1)}h0.1`;
      pen = true;
    });
    parts.push(element("path", { class: curve, d: path || "M0,0" }));
    parts.push(element("text", { x: curve === "p50" ? LEFT : LEFT + 60, y: HEIGHT - 5 }, curve));
  }
  svg.replaceChildren(...parts);
}
