// Creates elements; text is always set as text, never as markup.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(NAMESPACE, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Announces a sentence to screen readers; it replaces the previous one.
export function announce(sentence) {
  document.getElementById("live").textContent = sentence;
}

// Input with its label and a hint.
export function field(input, label, hint) {
  input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, h("small", { id: `${input.id}-hint` }, hint));
}

export function notice(text, kind = "") {
  return h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
}
