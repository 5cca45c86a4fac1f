// A field for each input of a model: text, numbers, or a picture to draw.

import { drawing } from "/page/draw.js";

const FEW = 64;

/** The height and width of an input that is a small grey picture; nothing where it is none. */
function picture({ datatype, shape }) {
  const [height, width] = shape.slice(-2);
  const before = shape.slice(1, -2).every((size) => size === 1);
  const fits = (size) => size >= 8 && size <= 64;
  return shape.length >= 3 && before && fits(height) && fits(width) && datatype !== "BYTES" ? [height, width] : null;
}

function numbers(text, name, whole) {
  const parts = text.split(/[\s,;[\]]+/).filter(Boolean);
  return parts.map((part) => {
    const number = Number(part);
    if (!Number.isFinite(number) || (whole && !Number.isInteger(number))) throw new Error(`${name}: ${part} is no ${whole ? "whole " : ""}number`);
    return number;
  });
}

function field(input) {
  const drawn = picture(input);
  // Not a label around a drawing: a click within one would be a click on the button in it.
  const label = document.createElement(drawn ? "div" : "label");
  label.className = "field";
  const size = input.shape.slice(1).reduce((product, next) => product * next, 1);
  label.append(`${input.name} (${input.datatype}${input.shape.length > 1 ? ` ${JSON.stringify(input.shape.slice(1))}` : ""})`);
  if (drawn) {
    const own = drawing(...drawn);
    const clear = document.createElement("button");
    clear.type = "button";
    clear.textContent = "clear";
    clear.addEventListener("click", own.clear);
    label.append(own.canvas, clear);
    const scale = input.datatype.startsWith("FP") ? 1 / 255 : 1;
    return { label, value: () => own.values().map((pixel) => pixel * scale) };
  }
  const entry = document.createElement(input.datatype === "BYTES" || size > FEW || size < 0 ? "textarea" : "input");
  entry.name = input.name;
  label.append(entry);
  if (input.datatype === "BYTES") return { label, value: () => entry.value };
  const whole = !/^(FP|BF)/.test(input.datatype);
  const value = () => {
    const found = numbers(entry.value, input.name, whole);
    if (found.length === 0) return undefined;
    return found.length === 1 ? found[0] : found;
  };
  return { label, value };
}

/** Fills a form with the fields of a model; `record()` is what was entered. */
export function fields(form, inputs) {
  const all = inputs.map((input) => [input.name, field(input)]);
  const send = document.createElement("button");
  send.textContent = "ask";
  form.replaceChildren(...all.map(([, one]) => one.label), send);
  return () => Object.fromEntries(all.map(([name, one]) => [name, one.value()]).filter(([, value]) => value !== undefined));
}
