// Elements from values that come from runs: text is always text, and is never read as HTML.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) put(element, child);
    else element.append(child);
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

export function select(label, options, value, changed) {
  const option = ([key, text]) => h("option", { value: key, selected: key === value }, text);
  return h("label", { class: "field" }, label + " ",
    h("select", { onchange: (event) => changed(event.target.value) }, options.map(option)));
}

export function check(label, on, changed) {
  return h("label", { class: "field" },
    h("input", { type: "checkbox", checked: on, onchange: (event) => changed(event.target.checked) }), " " + label);
}

export function button(text, act, attributes) {
  return h("button", { type: "button", onclick: act, ...attributes }, text);
}

export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/// A name that is safe as a file's.
export function fileName(text, ending) {
  return (text.replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 80) || "salamander") + ending;
}
