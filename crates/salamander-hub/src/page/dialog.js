// Questions before something is done, and short words after it.

import { button, h } from "./dom.js";

/// Asks whether to do something; fields are {name, label, value, type, options}. Answers with their values, or null.
export function ask({ title, text, confirm, danger = false, fields = [] }) {
  return new Promise((answer) => {
    const inputs = fields.map((field) => ({
      field,
      input: field.options
        ? h("select", { name: field.name }, field.options.map((option) => h("option", { value: option, selected: option === field.value }, option)))
        : h("input", { name: field.name, type: field.type ?? "text", value: field.value ?? "", min: field.min ?? null, list: field.list ? `list-${field.name}` : null, autocomplete: "off", required: field.required ?? false }),
    }));
    const done = (value) => {
      dialog.close();
      dialog.remove();
      answer(value);
    };
    const dialog = h("dialog", { "aria-labelledby": "asked" }, h("form", {
      method: "dialog", onsubmit: (event) => {
        event.preventDefault();
        done(Object.fromEntries(inputs.map(({ field, input }) => [field.name, input.value])));
      },
    }, h("h2", { id: "asked" }, title), text && h("p", {}, text),
    inputs.map(({ field, input }) => h("label", {}, field.label, input, field.list && h("datalist", { id: `list-${field.name}` }, field.list.map((one) => h("option", { value: one }))))),
    // Two buttons of one name would leave it open which one cancels what.
    h("div", { class: "buttons" }, button(confirm === "Cancel" ? "Back" : "Cancel", () => done(null)), h("button", { class: `main ${danger ? "danger" : ""}`, type: "submit" }, confirm))));
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      done(null);
    });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0]?.input ?? dialog.querySelector("button.main")).focus();
  });
}

/// Something to read, with a button to close it.
export function showBox(title, ...content) {
  const dialog = h("dialog", { "aria-labelledby": "shown" }, h("h2", { id: "shown" }, title), content,
    h("div", { class: "buttons" }, button("Close", () => dialog.close(), { class: "main" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/// A word at the edge of the page, for a moment.
export function tell(text, bad = false) {
  const word = h("div", { class: bad ? "bad" : null, role: bad ? "alert" : null }, text);
  document.getElementById("told").append(word);
  setTimeout(() => word.remove(), bad ? 12_000 : 5000);
}

/// Does something and says how it went; true: it went well.
export async function attempt(call, done) {
  try {
    await call();
    if (done) tell(done);
    return true;
  } catch (error) {
    tell(error.message, true);
    return false;
  }
}
