// Before the fit: detected columns, missing cells, first rows, and options of the fit.

import { field, h, notice } from "./dom.js";
import { count, KINDS, plural, ROLES, share } from "./format.js";

// Columns that are listed at first, and added by "Show more".
const PAGE_SIZE = 60;
const RESUME = "Resume continues from the last checkpoint. After a change of options, the fit starts from the beginning.";

export function columnsPart(page) {
  const { content, about, model } = page;
  const choices = { ...model.options, kinds: { ...model.options.kinds }, roles: { ...model.options.roles }, na: [...model.options.na] };
  const fit = options(page, choices);
  // Reads the file again, with all that was chosen so far.
  const readAgain = (change) => page.inspect({ ...choices, ...fit.chosen(), ...change });
  const element = h(
    "div",
    {},
    content.problem ? notice(content.problem, "bad") : content.missing ? "" : notice("No cell is missing. You can still fit a model for other files.", ""),
    suspectNotice(content, choices, readAgain),
    columnTable(content, about, choices, readAgain),
    firstRows(content),
    reading(page, choices, readAgain),
    fit.element,
  );
  return { element, alive: true };
}

function suspectNotice(content, choices, readAgain) {
  const columns = content.columns.filter((column) => column.suspects?.length).length;
  if (!columns) return "";
  const text = `${plural(columns, "column")} may contain codes for missing cells, such as −999. They are marked below. Left as they are, they are used as values. `;
  return h("div", { class: "notice warn", role: "status" }, text, h("button", { onclick: () => readAgain({ na: [...choices.na, "auto"] }) }, "Take all as missing"));
}

function reading(page, choices, readAgain) {
  const everywhere = choices.na.filter((entry) => !entry.includes("="));
  const codes = h("input", { id: "na", value: everywhere.join(", "), placeholder: "none" });
  const lines = h("input", { id: "skip-rows", type: "number", min: 0, max: 1000000, step: 1, value: choices.skip_rows });
  const send = (event) => {
    event.preventDefault();
    const given = codes.value.split(",").map((code) => code.trim()).filter(Boolean);
    readAgain({ na: [...choices.na.filter((entry) => entry.includes("=")), ...given], skip_rows: Number(lines.value) });
  };
  const hasLines = !/\.(parquet|pq)$/i.test(page.model.filename);
  return h(
    "form",
    { class: "options", onsubmit: send },
    h("h2", {}, "File"),
    h("div", { class: "fields" }, [
      field(codes, "Codes for missing cells", "Values in all columns, such as -999, 99; “auto” takes all suspected codes."),
      hasLines ? field(lines, "Lines above the header", "Title lines, which are kept in the filled file.") : "",
    ]),
    h("button", {}, "Read again"),
  );
}

function columnTable(content, about, choices, readAgain) {
  const rows = h("tbody");
  const more = h("button", { class: "plain", onclick: () => show(shown + PAGE_SIZE) });
  let [shown, query] = [PAGE_SIZE, ""];
  const show = (most) => {
    shown = most;
    const found = content.columns.filter((column) => column.name.toLowerCase().includes(query));
    rows.replaceChildren(...found.slice(0, shown).map((column) => line(column, content.rows, about, choices, readAgain)));
    more.hidden = found.length <= shown;
    more.textContent = `Show more (${count(found.length - shown)} hidden)`;
  };
  const search = h("input", {
    type: "search",
    placeholder: "Find a column",
    "aria-label": "Find a column",
    oninput: (event) => {
      query = event.target.value.toLowerCase();
      show(PAGE_SIZE);
    },
  });
  show(PAGE_SIZE);
  return h(
    "section",
    { "aria-labelledby": "columns" },
    h("div", { class: "row" }, h("h2", { id: "columns" }, "Columns"), content.columns.length > 15 ? search : ""),
    h("p", { class: "quiet" }, "Check the detected column types. Use “category” for codes such as ZIP or ICD codes."),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "columns" },
        h("thead", {}, h("tr", {}, ["Column", "Kind", "Role", "Missing", "Values", "Why"].map((name) => h("th", { scope: "col" }, name)))),
        rows,
      ),
    ),
    more,
  );
}

function line(column, rows, about, choices, readAgain) {
  const name = column.name || "(no name)";
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", { "data-label": "Kind" }, choice(`Kind of ${name}`, column.kinds ?? about.kinds, KINDS, column, choices.kinds, column.kind)),
    h("td", { "data-label": "Role" }, choice(`Role of ${name}`, about.roles, ROLES, column, choices.roles, "fill")),
    h("td", { class: "missing", "data-label": "Missing" }, missingBar(column.missing, rows), codes(column, choices, readAgain)),
    h("td", { class: "values", "data-label": "Values" }, values(column)),
    h("td", { class: "values", "data-label": "Why" }, column.why ?? ""),
  );
}

function choice(label, allowed, labels, column, chosen, found) {
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
    all.map((value) => h("option", { value }, labels[value] ?? value)),
  );
  select.value = chosen[column.name] ?? found;
  select.classList.toggle("changed", select.value !== found);
  select.disabled = !column.name;
  return select;
}

function missingBar(missing, rows) {
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", {}));
  bar.firstChild.style.width = `${Math.min(100, (100 * missing) / rows)}%`;
  return [missing ? bar : "", h("span", { title: plural(missing, "cell") }, missing ? share(missing, rows) : "none")];
}

// Suspected codes with a button that takes them as missing, and taken codes with one that uses them as values.
function codes(column, choices, readAgain) {
  const others = choices.na.filter((entry) => !entry.includes("=") || entry.slice(0, entry.lastIndexOf("=")) !== column.name);
  const suspects = column.suspects ?? [];
  const taken = column.taken ?? [];
  const found = suspects.map((code) => `${code.value} (${plural(code.count, "cell")})`).join(", ");
  const kept = others.includes("auto") ? [...others, `${column.name}=`] : others;
  const all = [...taken, ...suspects.map((code) => code.value)].join(",");
  return [
    suspects.length &&
      h(
        "div",
        { class: "suspect" },
        `Missing? ${found} `,
        h("button", { class: "plain", "aria-label": `Take ${found} as missing in ${column.name}`, onclick: () => readAgain({ na: [...others, `${column.name}=${all}`] }) }, "Take as missing"),
      ),
    taken.length &&
      h(
        "div",
        { class: "suspect" },
        `${taken.join(", ")} taken as missing `,
        h("button", { class: "plain", "aria-label": `Use ${taken.join(", ")} as values in ${column.name}`, onclick: () => readAgain({ na: kept }) }, "Undo"),
      ),
  ].filter(Boolean);
}

function values(column) {
  if (column.range && !["identifier", "text"].includes(column.kind)) return `${column.range[0]} to ${column.range[1]}`;
  return column.examples.join(", ");
}

function firstRows(content) {
  const width = content.preview[0]?.length ?? 0;
  const names = content.columns.slice(0, width).map((column) => column.name);
  const body = content.preview.map((row) =>
    h("tr", {}, row.map((cell) => (cell === null ? h("td", { class: "missing-cell" }, h("span", { class: "visually-hidden" }, "missing")) : h("td", {}, cell)))),
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
  const preset = h("select", { id: "preset" }, h("option", { value: "default" }, "default"), h("option", { value: "paper" }, "paper: the method of the MCFlow paper"));
  preset.value = choices.preset;
  const seed = h("input", { id: "seed", type: "number", min: 0, max: 4294967295, step: 1, value: choices.seed, required: true });
  const time = h("input", { id: "time", type: "number", min: 1, max: most, step: "any", value: choices.max_time ?? "", placeholder: "no limit" });
  const epochs = h("input", { id: "epochs", type: "number", min: 1, max: 1000000, step: 1, value: choices.max_epochs ?? "", placeholder: "as in the preset" });
  const schema = h("input", { id: "schema", type: "file", accept: ".toml" });
  schema.addEventListener("change", async () => {
    choices.columns_file = schema.files.length ? await schema.files[0].text() : "";
  });
  const label = page.model.state === "ready" ? "Start" : page.model.state === "failed" ? "Start again" : "Resume";
  const number = (input) => (input.value ? Number(input.value) : null);
  const chosen = () => ({ preset: preset.value, seed: Number(seed.value), max_time: number(time), max_epochs: number(epochs) });
  const start = (event) => {
    event.preventDefault();
    page.start({ ...choices, ...chosen() });
  };
  const element = h(
    "form",
    { class: "options", onsubmit: start },
    h("h2", {}, "Fit"),
    h("div", { class: "fields" }, [
      field(preset, "Preset", "Default settings of the fit."),
      field(seed, "Seed", "Random seed; the same seed gives the same file."),
      field(schema, "Schema file", "Optional, as `mcflow schema` writes it. What you choose in the table goes first."),
      field(epochs, "Maximum epochs", "Passes over the rows."),
      field(time, "Time limit in seconds", "If empty, training stops when the validation error no longer improves, and the result is reproducible."),
    ]),
    h("p", { class: "row" }, h("button", { class: "primary" }, label), label === "Resume" ? h("span", { class: "quiet" }, RESUME) : ""),
  );
  return { element, chosen };
}
