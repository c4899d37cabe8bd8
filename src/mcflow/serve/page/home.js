// The first screen: a place to drop a file, and the files that were sent before.

import { call, upload } from "./api.js";
import { h, notice, say } from "./dom.js";
import { count, duration, moment, size, STATES } from "./words.js";

export async function home(main, about) {
  document.title = "mcflow";
  const news = h("div", { class: "news" });
  const models = (await call("/models")).models;
  main.replaceChildren(
    h("h1", {}, "Which table has holes?"),
    dropPlace(about, news),
    news,
    models.length ? earlier(models) : "",
    steps(),
  );
  return () => {};
}

function dropPlace(about, news) {
  const field = h("input", { type: "file", id: "file", class: "unseen", accept: about.endings.join(",") });
  const place = h(
    "label",
    { class: "drop", for: "file" },
    h("span", { class: "drop-mark", "aria-hidden": "true" }),
    h("strong", {}, "Drop a file here, or choose one"),
    h("span", { class: "quiet" }, "CSV, TSV or Parquet; CSV and TSV also as .gz or .zst"),
    h("span", { class: "quiet" }, limitsOf(about.limits)),
    field,
  );
  const send = (file) => file && sendFile(file, about, place, news);
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

async function sendFile(file, about, place, news) {
  const wrong = refusal(file, about);
  if (wrong) {
    news.replaceChildren(notice(wrong, "bad"));
    return;
  }
  const bar = h("progress", { max: 1, value: 0, "aria-label": `Sending ${file.name}` });
  const words = h("span", {}, `Sending ${file.name} (${size(file.size)}) …`);
  place.classList.add("busy");
  news.replaceChildren(h("div", { class: "notice", role: "status" }, words, bar));
  try {
    const model = await upload("/models", file, { start: "false" }, (part) => {
      bar.value = part;
      if (part < 1) return;
      words.textContent = `Reading ${file.name} …`;
      bar.removeAttribute("value");
    });
    say(`${file.name} was read.`);
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
    return `${file.name} is of another kind. Send a file that ends in one of ${about.endings.join(", ")}.`;
  if (file.size > about.limits.max_upload)
    return `${file.name} has ${size(file.size)}, and this server takes ${size(about.limits.max_upload)}. Send a part of it.`;
  return file.size ? "" : `${file.name} is empty. Send a file with a header line and rows.`;
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
  if (model.state === "queued") return `waiting, ${model.position ?? 0} before it`;
  const left = model.progress?.seconds_left;
  return model.state === "running" && left ? `at work, at most ${duration(left)} left` : STATES[model.state];
}

function steps() {
  const words = [
    ["Look", "See what each column is and where its holes are, and set right what was taken for something else."],
    ["Fit", "A model learns from the observed cells how the columns belong together. Watch it, or come back later."],
    ["Use", "Look at every filled cell and at how sure it is; take the file, draws, the model and a report with you."],
  ];
  return h("ol", { class: "steps" }, words.map(([name, what]) => h("li", {}, h("strong", {}, name), h("span", {}, what))));
}
