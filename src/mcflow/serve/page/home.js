// Start screen: upload of a file, and earlier files.

import { call, upload } from "./api.js";
import { announce, field, h, notice } from "./dom.js";
import { count, duration, moment, size, STATES } from "./format.js";

export async function home(main, about) {
  document.title = "mcflow";
  const news = h("div", { class: "news" });
  const models = (await call("/models")).models;
  const lines = h("input", { type: "number", id: "skip-rows", min: 0, max: 1000000, step: 1, value: 0 });
  main.replaceChildren(
    h("h1", {}, "Upload a table with missing values"),
    dropZone(about, news, lines),
    news,
    h("details", { class: "reading" }, h("summary", {}, "The file has title lines above the header"), field(lines, "Lines above the header", "They are kept in the filled file. Set their number before you choose the file.")),
    models.length ? earlier(models) : "",
    steps(),
  );
  return () => {};
}

function dropZone(about, news, lines) {
  const field = h("input", { type: "file", id: "file", class: "visually-hidden", accept: about.endings.join(",") });
  const place = h(
    "label",
    { class: "drop", for: "file" },
    h("span", { class: "drop-mark", "aria-hidden": "true" }),
    h("strong", {}, "Drop a file here or choose one"),
    h("span", { class: "quiet" }, "CSV, TSV, Excel or Parquet; CSV and TSV also as .gz or .zst"),
    h("span", { class: "quiet" }, limitsOf(about.limits)),
    field,
  );
  const send = (file) => file && sendFile(file, about, place, news, lines);
  field.addEventListener("change", () => send(field.files[0]));
  place.addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    send(event.dataTransfer.files[0]);
  });
  return place;
}

function limitsOf(limits) {
  return `Up to ${size(limits.max_upload)}, ${count(limits.max_rows)} rows and ${count(limits.max_columns)} columns`;
}

async function sendFile(file, about, place, news, lines) {
  const wrong = refusal(file, about);
  if (wrong) {
    news.replaceChildren(notice(wrong, "bad"));
    return;
  }
  const bar = h("progress", { max: 1, value: 0, "aria-label": `Uploading ${file.name}` });
  const text = h("span", {}, `Uploading ${file.name} (${size(file.size)}) …`);
  place.classList.add("busy");
  news.replaceChildren(h("div", { class: "notice", role: "status" }, text, bar));
  try {
    const model = await upload("/models", file, { start: "false", skip_rows: lines.value || "0" }, (part) => {
      bar.value = part;
      if (part < 1) return;
      text.textContent = `Reading ${file.name} …`;
      bar.removeAttribute("value");
    });
    announce(`${file.name} was read.`);
    location.hash = `#/models/${model.id}`;
  } catch (error) {
    news.replaceChildren(notice(error.message, "bad"));
  } finally {
    place.classList.remove("busy");
  }
}

function refusal(file, about) {
  const name = file.name.toLowerCase();
  if (!about.endings.some((ending) => name.endsWith(ending)))
    return `${file.name} has an unsupported format. Use a file that ends in one of ${about.endings.join(", ")}.`;
  if (file.size > about.limits.max_upload)
    return `${file.name} has ${size(file.size)}, and this server accepts ${size(about.limits.max_upload)}. Upload a part of it.`;
  return file.size ? "" : `${file.name} is empty. Use a file with a header line and rows.`;
}

function earlier(models) {
  const lines = models.map((model) =>
    h(
      "li",
      {},
      h("a", { href: `#/models/${model.id}` }, model.filename),
      h("span", { class: `state ${model.state}` }, stateOf(model)),
      h("span", { class: "quiet" }, `${size(model.size)} · ${moment(model.created)}`),
    ),
  );
  return h("section", { "aria-labelledby": "earlier" }, h("h2", { id: "earlier" }, "Earlier files"), h("ul", { class: "files" }, lines));
}

function stateOf(model) {
  if (model.state === "queued") return `queued, ${model.position ?? 0} ahead`;
  const left = model.progress?.seconds_left;
  return model.state === "running" && left ? `running, at most ${duration(left)} remaining` : STATES[model.state];
}

function steps() {
  const texts = [
    ["Check", "See the detected type and the missing cells of each column, and correct types if necessary."],
    ["Fit", "A model learns the relationships between the columns from the observed cells. Follow it, or come back later."],
    ["Download", "Review every filled cell with its interval; download the filled file, draws, the model and a report."],
  ];
  return h("ol", { class: "steps" }, texts.map(([name, text]) => h("li", {}, h("strong", {}, name), h("span", {}, text))));
}
