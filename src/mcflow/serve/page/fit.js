// During the fit: state, progress, losses and remaining time.

import { chart } from "./chart.js";
import { announce, h } from "./dom.js";
import { duration, figure, plural } from "./format.js";

const SERIES = [
  ["validation_error", "Validation error"],
  ["latent_loss", "Loss of the imputation network"],
  ["flow_loss", "Loss of the flow"],
];
const CANCEL = "Cancel stops the fit and keeps the file and the last checkpoint, so that you can resume. You can also close this page; the fit continues on the server.";
// Milliseconds between two announcements to screen readers.
const ANNOUNCE_EVERY = 10000;

export function fitPart(page) {
  return new FitPart(page);
}

class FitPart {
  constructor(page) {
    this.page = page;
    this.epochs = new Map();
    this.phase = "";
    this.announced = 0;
    this.bar = h("progress", { max: 1, "aria-label": "Progress of the fit" });
    this.text = h("p", { class: "progress-text" });
    this.charts = h("div", { class: "charts" });
    this.button = h("button", { onclick: () => this.cancel() }, "Cancel");
    this.element = h(
      "section",
      { "aria-labelledby": "fit" },
      h("h2", { id: "fit" }, "Fit"),
      this.text,
      this.bar,
      this.charts,
      h("p", { class: "row" }, this.button, h("span", { class: "quiet" }, CANCEL)),
    );
  }

  cancel() {
    this.button.disabled = true;
    this.button.textContent = "Cancelling …";
    this.page.cancel();
  }

  update(model) {
    this.model = model;
    if (model.state !== "running") this.bar.removeAttribute("value");
    if (model.state === "queued") this.show(model.position ? `In the queue: ${plural(model.position, "job")} ahead.` : "In the queue: next to start.");
    if (model.state === "checking") this.show("Reading the file …");
    if (model.state === "running" && !this.latest) this.show("Preparing …");
  }

  progress(event) {
    if (event.event === "phase") {
      this.phase = event.name;
      this.bar.removeAttribute("value");
      this.show(`${sentence(event.name)} …${remaining(event)}`);
    } else if (event.event === "epoch") {
      this.epochs.set(event.epoch, event);
      this.advance(event.epoch / event.epochs, event);
      this.later ??= requestAnimationFrame(() => this.draw());
    } else if (event.event === "part") {
      this.advance(event.done, { ...this.latest, seconds_left: event.seconds_left });
    } else if (event.event === "end") {
      this.bar.value = 1;
      this.show(`Trained ${plural(event.epochs, "epoch")}: ${event.ending}. Finishing …`);
    }
  }

  advance(part, event) {
    this.latest = event;
    this.bar.value = part;
    const left = remaining(event);
    this.show(event.epoch ? `Epoch ${event.epoch} of at most ${event.epochs}${left}` : `First epoch${left}`);
  }

  show(text) {
    this.text.textContent = text;
    if (Date.now() - this.announced < ANNOUNCE_EVERY) return;
    this.announced = Date.now();
    announce(text);
  }

  draw() {
    this.later = undefined;
    const epochs = [...this.epochs.values()].sort((one, other) => one.epoch - other.epoch);
    const shown = SERIES.map(([key, title]) => [title, epochs.filter((e) => e[key]).map((e) => [e.epoch, e[key]])]).filter(([, points]) => points.length > 1);
    this.charts.replaceChildren(
      ...shown.map(([title, points]) =>
        h("figure", {}, h("figcaption", {}, title, h("strong", {}, figure(points.at(-1)[1]))), chart(title, points)),
      ),
    );
  }

  close() {
    cancelAnimationFrame(this.later);
  }
}

const remaining = (event) => (Number.isFinite(event.seconds_left) ? ` · at most ${duration(event.seconds_left)} remaining` : "");
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
