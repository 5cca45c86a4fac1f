// A field of pixels to draw in, with a pointer or by keys.

const SCALE = 10;

/** A canvas of height x width pixels; `values()` are its bytes, row by row, white on black. */
export function drawing(height, width) {
  const canvas = document.createElement("canvas");
  canvas.width = width * SCALE;
  canvas.height = height * SCALE;
  canvas.tabIndex = 0;
  canvas.setAttribute("aria-label", `draw ${width} by ${height} pixels`);
  const pixels = new Uint8Array(height * width);
  const context = canvas.getContext("2d");
  const paint = () => {
    for (let at = 0; at < pixels.length; at += 1) {
      const grey = pixels[at];
      context.fillStyle = `rgb(${grey}, ${grey}, ${grey})`;
      context.fillRect((at % width) * SCALE, Math.floor(at / width) * SCALE, SCALE, SCALE);
    }
  };
  // A pen as thick as handwriting is in such pictures.
  const dot = (x, y) => {
    for (let row = Math.floor(y) - 1; row <= y + 1; row += 1) {
      for (let column = Math.floor(x) - 1; column <= x + 1; column += 1) {
        if (row < 0 || column < 0 || row >= height || column >= width) continue;
        const near = Math.max(0, 1.6 - Math.hypot(row + 0.5 - y, column + 0.5 - x));
        const at = row * width + column;
        pixels[at] = Math.max(pixels[at], Math.min(255, Math.round(near * 255)));
      }
    }
  };
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  const stroke = (event) => {
    const [x, y] = place(event);
    const [fromX, fromY] = last ?? [x, y];
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(x - fromX, y - fromY)));
    for (let step = 0; step <= steps; step += 1) dot(fromX + ((x - fromX) * step) / steps, fromY + ((y - fromY) * step) / steps);
    last = [x, y];
    paint();
  };
  canvas.addEventListener("pointerdown", (event) => { last = null; canvas.setPointerCapture(event.pointerId); stroke(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) stroke(event); });
  canvas.addEventListener("pointerup", () => { last = null; });
  paint();
  return { canvas, values: () => [...pixels], clear: () => { pixels.fill(0); paint(); } };
}
