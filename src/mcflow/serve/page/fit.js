// While a file is read, waits or is being fitted: how far it is, its losses, and the time left.

import { chart } from "./chart.js";
import { h, say } from "./dom.js";
import { duration, figure, plural } from "./words.js";

const SERIES = [
  ["held_error", "Error on held-out cells"],
  ["latent_loss", "Loss of the filling network"],
  ["flow_loss", "Loss of the flow"],
];
const SAY_EVERY = 10000;

export function fitPart(page) {
  return new FitPart(page);
}

class FitPart {
  constructor(page) {
    this.page = page;
    this.epochs = new Map();
    this.phase = "";
    this.said = 0;
    this.bar = h("progress", { max: 1, "aria-label": "Progress of the fit" });
    this.words = h("p", { class: "progress-words" });
    this.charts = h("div", { class: "charts" });
    this.button = h("button", { onclick: () => this.cancel() }, "Cancel");
    this.element = h(
      "section",
      { "aria-labelledby": "fit" },
      h("h2", { id: "fit" }, "Fit"),
      this.words,
      this.bar,
      this.charts,
      h("p", { class: "row" }, this.button, h("span", { class: "quiet" }, "You can close this page; the work goes on.")),
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
    if (model.state === "queued") this.tell(model.position ? `Waiting: ${plural(model.position, "job")} before it.` : "Waiting: it is next.");
    if (model.state === "checking") this.tell("The file is being read.");
    if (model.state === "running" && !this.latest) this.tell("Getting ready …");
  }

  progress(event) {
    if (event.event === "phase") {
      this.phase = event.name;
      this.bar.removeAttribute("value");
      this.tell(`${sentence(event.name)} …`);
    } else if (event.event === "epoch") {
      this.epochs.set(event.epoch, event);
      this.advance(event.epoch / event.epochs, event);
      this.later ??= requestAnimationFrame(() => this.draw());
    } else if (event.event === "part") {
      this.advance(event.done, { ...this.latest, seconds_left: event.seconds_left });
    } else if (event.event === "end") {
      this.bar.value = 1;
      this.tell(`Learned for ${plural(event.epochs, "epoch")}: ${event.ending}. Finishing …`);
    }
  }

  advance(part, event) {
    this.latest = event;
    this.bar.value = part;
    const left = Number.isFinite(event.seconds_left) ? ` · at most ${duration(event.seconds_left)} left` : "";
    this.tell(event.epoch ? `Epoch ${event.epoch} of at most ${event.epochs}${left}` : `First epoch${left}`);
  }

  tell(words) {
    this.words.textContent = words;
    if (Date.now() - this.said < SAY_EVERY) return;
    this.said = Date.now();
    say(words);
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

const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);
