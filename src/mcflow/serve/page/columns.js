// Before the fit: what each column was taken for, its holes, the first rows, and a few choices.

import { h, notice } from "./dom.js";
import { count, KINDS, plural, ROLES, share } from "./words.js";

const AT_ONCE = 60;

export function columnsPart(page) {
  const { content, about, model } = page;
  const choices = { ...model.options, kinds: { ...model.options.kinds }, roles: { ...model.options.roles } };
  const element = h(
    "div",
    {},
    content.problem ? notice(content.problem, "bad") : content.missing ? "" : notice("No cell is missing. A fit still gives a model for other files.", ""),
    listOfColumns(content, about, choices),
    firstRows(content),
    options(page, choices),
  );
  return { element, alive: true };
}

function listOfColumns(content, about, choices) {
  const rows = h("tbody");
  const more = h("button", { class: "plain", onclick: () => show(shown + AT_ONCE) });
  let [shown, sought] = [AT_ONCE, ""];
  const show = (most) => {
    shown = most;
    const found = content.columns.filter((column) => column.name.toLowerCase().includes(sought));
    rows.replaceChildren(...found.slice(0, shown).map((column) => line(column, content.rows, about, choices)));
    more.hidden = found.length <= shown;
    more.textContent = `Show more (${count(found.length - shown)} are not shown)`;
  };
  const search = h("input", {
    type: "search",
    placeholder: "Find a column",
    "aria-label": "Find a column",
    oninput: (event) => {
      sought = event.target.value.toLowerCase();
      show(AT_ONCE);
    },
  });
  show(AT_ONCE);
  return h(
    "section",
    { "aria-labelledby": "columns" },
    h("div", { class: "row" }, h("h2", { id: "columns" }, "Columns"), content.columns.length > 15 ? search : ""),
    h("p", { class: "quiet" }, "Set right what was taken for something else. A code that only looks like a number is a category."),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "columns" },
        h("thead", {}, h("tr", {}, ["Column", "Kind", "Role", "Missing", "Values"].map((name) => h("th", { scope: "col" }, name)))),
        rows,
      ),
    ),
    more,
  );
}

function line(column, rows, about, choices) {
  const name = column.name || "(no name)";
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", { "data-label": "Kind" }, choice(`Kind of ${name}`, about.kinds, KINDS, column, choices.kinds, column.kind)),
    h("td", { "data-label": "Role" }, choice(`Role of ${name}`, about.roles, ROLES, column, choices.roles, "fill")),
    h("td", { class: "missing", "data-label": "Missing" }, holes(column.missing, rows)),
    h("td", { class: "values", "data-label": "Values" }, values(column)),
  );
}

function choice(label, allowed, words, column, chosen, found) {
  const all = allowed.includes(found) ? allowed : [found, ...allowed];
  const select = h(
    "select",
    {
      "aria-label": label,
      onchange: () => {
        if (select.value === found) delete chosen[column.name];
        else chosen[column.name] = select.value;
        select.classList.toggle("changed", select.value !== found);
      },
    },
    all.map((word) => h("option", { value: word }, words[word] ?? word)),
  );
  select.value = chosen[column.name] ?? found;
  select.classList.toggle("changed", select.value !== found);
  select.disabled = !column.name;
  return select;
}

function holes(missing, rows) {
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", {}));
  bar.firstChild.style.width = `${Math.min(100, (100 * missing) / rows)}%`;
  return [missing ? bar : "", h("span", { title: plural(missing, "cell") }, missing ? share(missing, rows) : "none")];
}

function values(column) {
  if (column.range && !["identifier", "text"].includes(column.kind)) return `${column.range[0]} to ${column.range[1]}`;
  return column.examples.join(", ");
}

function firstRows(content) {
  const width = content.preview[0]?.length ?? 0;
  const names = content.columns.slice(0, width).map((column) => column.name);
  const body = content.preview.map((row) =>
    h("tr", {}, row.map((cell) => (cell === null ? h("td", { class: "hole" }, h("span", { class: "unseen" }, "missing")) : h("td", {}, cell)))),
  );
  return h(
    "details",
    { class: "preview" },
    h("summary", {}, `First ${plural(content.preview.length, "row")}`),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "First rows" },
      h("table", { class: "cells" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, body)),
    ),
  );
}

function options(page, choices) {
  const most = page.about.limits.max_time;
  const preset = h("select", { id: "preset" }, h("option", { value: "default" }, "default"), h("option", { value: "paper" }, "paper: the published method"));
  preset.value = choices.preset;
  const seed = h("input", { id: "seed", type: "number", min: 0, max: 4294967295, step: 1, value: choices.seed, required: true });
  const time = h("input", { id: "time", type: "number", min: 1, max: most, step: "any", value: choices.max_time ?? "", placeholder: "no limit" });
  const epochs = h("input", { id: "epochs", type: "number", min: 1, max: 1000000, step: 1, value: choices.max_epochs ?? "", placeholder: "as the settings say" });
  const again = page.model.state === "ready" ? "Start" : page.model.state === "failed" ? "Start again" : "Go on";
  const start = (event) => {
    event.preventDefault();
    const number = (input) => (input.value ? Number(input.value) : null);
    const given = { preset: preset.value, seed: Number(seed.value), max_time: number(time), max_epochs: number(epochs) };
    page.start({ ...choices, ...given });
  };
  return h(
    "form",
    { class: "options", onsubmit: start },
    h("h2", {}, "Fit"),
    h("div", { class: "fields" }, [
      field(preset, "Settings", "What the fit starts from."),
      field(seed, "Seed", "The same seed gives the same file."),
      field(epochs, "Epochs, at most", "Passes over the rows."),
      field(time, "Seconds for the fit", "Left empty, it learns until it gets no better, and the answer is the same every time."),
    ]),
    h("button", { class: "primary" }, again),
  );
}

function field(input, label, hint) {
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, hint ? h("small", { id: `${input.id}-hint` }, hint) : "");
}
