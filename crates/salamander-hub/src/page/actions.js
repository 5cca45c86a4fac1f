// What can be done with an experiment, a run or a checkpoint; whoever clicks is asked first.

import { act, download, get } from "./api.js";
import { ask, attempt, showBox } from "./dialog.js";
import { button, h } from "./dom.js";
import { bytes } from "./format.js";

const SAID = {
  pause: ["Pause", "Its process ends with a checkpoint, and goes on from there when it is activated."],
  activate: ["Activate", "It goes on as soon as there are slots."],
  cancel: ["Cancel", "Its process ends with a checkpoint; it goes on only if it is activated."],
  kill: ["Kill", "Its processes end at once; what was trained since the last checkpoint is lost."],
  archive: ["Archive", "Lists leave it out; nothing is deleted."],
  unarchive: ["Unarchive", "Lists show it again."],
};

/// Whoever has left the view need not see what came of it.
function unlessLeft(error) {
  if (error.name !== "AbortError") throw error;
}

/// Buttons for an experiment: its state, labels, place in the queue.
export function experimentActions(experiment, changed) {
  const path = `experiments/${experiment.id}`;
  const doing = async (call, done) => {
    if (await attempt(call, done)) await changed().catch(unlessLeft);
  };
  const { state } = experiment;
  const over = ["completed", "canceled", "failed", "killed"].includes(state);
  // The hub ends and pauses what it has started, and nothing else; what has not come to its end can go on.
  const own = experiment.origin === "hub" && !over;
  const again = experiment.origin === "hub" && ["canceled", "failed"].includes(state);
  const wanted = [...(own ? [state === "paused" ? "activate" : "pause", "cancel", "kill"] : again ? ["activate"] : []), experiment.archived ? "unarchive" : "archive"];
  const verb = (name) => button(SAID[name][0], async () => {
    const [title, text] = SAID[name];
    const answer = await ask({ title: `${title} experiment ${experiment.id}, ${experiment.name}?`, text, confirm: title, danger: name === "kill" });
    if (answer) doing(() => act("POST", `${path}/${name}`), `${title}: done`);
  }, { class: name === "kill" ? "danger" : null });
  const priority = own && button(`Priority ${experiment.priority}`, async () => {
    const answer = await ask({ title: "Priority in the queue", text: "From 1 to 99; the smaller number comes first.", confirm: "Change", fields: [{ name: "priority", label: "Priority", type: "number", min: 1, value: experiment.priority }] });
    if (answer) doing(() => act("PATCH", path, { priority: Number(answer.priority) }), "Changed");
  });
  return h("div", { class: "bar actions" }, wanted.map(verb), priority,
    experiment.labels.map((name) => h("span", { class: "label" }, name,
      button("\u00d7", async () => {
        if (await ask({ title: `Remove label ${name}?`, text: `Of experiment ${experiment.id}, ${experiment.name}.`, confirm: "Remove" })) doing(() => act("PATCH", path, { remove_labels: [name] }));
      }, { "aria-label": `remove label ${name}` }))),
    button("Label\u2026", async () => {
      const answer = await ask({ title: "Add a label", confirm: "Add label", fields: [{ name: "label", label: "Label", required: true }] });
      if (answer?.label.trim()) doing(() => act("PATCH", path, { add_labels: [answer.label.trim()] }));
    }));
}

/// Buttons for a run that goes on: another number of workers, the end of a trial.
export function runActions(run, experiment, members, changed) {
  const path = `runs/${encodeURIComponent(run.id)}`;
  const doing = async (call, done) => {
    if (await attempt(call, done)) await changed().catch(unlessLeft);
  };
  const running = run.state === "running";
  return [
    running && members && !members.unreachable && button("Scale\u2026", async () => {
      const fields = [{ name: "workers", label: "Workers", type: "number", min: 1, value: members.wanted }];
      if (members.wanted_servers) fields.push({ name: "servers", label: "Parameter servers", type: "number", min: 1, value: members.wanted_servers });
      const answer = await ask({ title: `Scale ${run.name}`, text: "Workers join and leave while it trains; nothing is trained twice.", confirm: "Scale", fields });
      if (!answer) return;
      const to = { workers: Number(answer.workers) };
      if (answer.servers) to.servers = Number(answer.servers);
      doing(() => act("POST", `${path}/scale`, to), `Asked for ${answer.workers} workers`);
    }),
    running && experiment.kind === "search" && button("Kill this trial", async () => {
      if (await ask({ title: `Kill ${run.name}?`, text: "The search goes on without it.", confirm: "Kill", danger: true })) doing(() => act("POST", `${path}/kill`), "Killed");
    }, { class: "danger" }),
  ];
}

/// The files of a checkpoint, to be saved one by one.
export async function showFiles(run, checkpoint) {
  const path = `runs/${encodeURIComponent(run.id)}/checkpoints/${encodeURIComponent(checkpoint.name)}/files`;
  await attempt(async () => {
    const files = await get(path);
    showBox(`Files of ${checkpoint.name}`, h("ul", {}, files.map((file) => h("li", {}, h("span", {}, file.path, " ", h("span", { class: "soft" }, bytes(file.bytes))),
      button("Download", () => attempt(() => download(`${path}/${file.path.split("/").map(encodeURIComponent).join("/")}`, file.path.split("/").at(-1))), { "aria-label": `download ${file.path}` })))));
  });
}

/// Makes a checkpoint a version of a model, which is made if it is not there.
export async function register(run, checkpoint, changed) {
  const found = await get("models").catch(() => []);
  const known = (Array.isArray(found) ? found : found.items ?? []).map((model) => model.name);
  const answer = await ask({
    title: `Register ${checkpoint.name}`, text: `Of run ${run.id}, ${run.name}. A registered checkpoint is never collected.`, confirm: "Register",
    fields: [{ name: "model", label: "Model", value: run.model ?? "", required: true, list: known }, { name: "notes", label: "Notes" }, { name: "alias", label: "Alias (such as champion), if any" }],
  });
  if (!answer?.model.trim()) return;
  const name = answer.model.trim();
  if (await attempt(async () => {
    if (!known.includes(name)) await act("POST", "models", { name });
    const version = await act("POST", `models/${encodeURIComponent(name)}/versions`, { run: run.id, checkpoint: checkpoint.name, notes: answer.notes });
    if (answer.alias.trim()) await act("POST", `models/${encodeURIComponent(name)}/aliases`, { alias: answer.alias.trim(), version: version.version });
  }, `Registered as ${name}`)) await changed();
}
