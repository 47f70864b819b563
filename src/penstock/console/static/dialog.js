// Dialogs and forms. A destructive action is possible once the name of its object was typed.

import { append, fill, h } from "./dom.js";

let fields = 0;

/** A labelled control with a hint below it. */
export function field(label, control, hint = "") {
  const id = `field-${(fields += 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
}

/** A choice of one of several; `options` are values, or pairs of value and label. */
export function select(options, value, props = {}) {
  const control = h("select", props, options.map((option) => {
    const [each, label] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: each, selected: String(each) === String(value) }, label);
  }));
  return control;
}

/**
 * A modal dialog with a form. `onSubmit` runs with the button disabled; the dialog closes if it
 * returns, and shows the message if it throws.
 * @param {{title: string, body: unknown, action: string, danger?: boolean, onSubmit: () => Promise<void>, ready?: () => boolean}} options
 */
export function openDialog({ title, body, action, danger = false, onSubmit, ready = () => true }) {
  const problem = h("div", { class: "problem", role: "alert" });
  const submit = h("button", { class: danger ? "primary danger" : "primary", type: "submit" }, action);
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = h("form", { novalidate: true }, h("h2", { id: "dialog-title" }, title), body, problem, h("div", { class: "actions" }, cancel, submit));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  const check = () => (submit.disabled = !ready());
  form.addEventListener("input", check);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    fill(problem);
    try {
      await onSubmit();
      dialog.close();
    } catch (error) {
      fill(problem, error.message);
      check();
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  check();
  dialog.showModal();
  return dialog;
}

/** Asks for the name of what will be destroyed. */
export function confirmByName({ title, text, name, action, onSubmit }) {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false", class: "mono" });
  const body = [h("p", null, text), field(`Type ${name} to confirm`, typed)];
  return openDialog({ title, body, action, danger: true, onSubmit, ready: () => typed.value === name });
}

/** A short message at the bottom of the page. */
export function toast(text, link = null) {
  let stack = document.querySelector(".toasts");
  if (!stack) {
    stack = h("div", { class: "toasts", role: "status" });
    document.body.append(stack);
  }
  const message = h("div", { class: "toast" });
  append(message, [text, link && [" ", link]]);
  stack.append(message);
  setTimeout(() => message.remove(), 6000);
}
