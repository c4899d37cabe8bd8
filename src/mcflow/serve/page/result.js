// After the fit: files to take along, the filled cells in a table, and the report.

import { call } from "./api.js";
import { h } from "./dom.js";
import { Grid } from "./grid.js";
import { plural } from "./words.js";

export function resultPart(page) {
  return new ResultPart(page);
}

class ResultPart {
  constructor(page) {
    this.page = page;
    this.base = `/models/${page.model.id}`;
    this.draws = h("div", { class: "draws" });
    this.cells = h("div", { class: "cells-part" });
    this.state = h("p", { class: "quiet", role: "status" });
    this.element = h(
      "div",
      {},
      this.downloads(),
      h("section", { "aria-labelledby": "cells" }, h("h2", { id: "cells" }, "Filled cells"), this.state, this.cells),
      this.report(),
      h("p", {}, h("button", { class: "plain", onclick: () => this.again() }, "Fit again with other choices")),
    );
  }

  downloads() {
    const many = h("input", { id: "draw-count", type: "number", min: 1, max: 100, value: 5 });
    const draw = async (event) => {
      event.preventDefault();
      await this.page.attempt(() => call(`${this.base}/draws`, { method: "POST", body: { m: Number(many.value), seed: this.page.model.options.seed } }));
      this.page.listen();
    };
    return h(
      "section",
      { class: "downloads", "aria-label": "Downloads" },
      h("a", { class: "button primary", href: `${this.base}/filled`, download: true, id: "download-filled" }, "Download the filled file"),
      h("a", { class: "button", href: `${this.base}/model`, download: true, id: "download-model" }, "Model"),
      h("a", { class: "button", href: `${this.base}/report?download=true`, download: true, id: "download-report" }, "Report"),
      h("form", { class: "inline", onsubmit: draw }, h("label", { for: "draw-count" }, "Draws"), many, h("button", {}, "Make draws")),
      this.draws,
    );
  }

  report() {
    const place = h("div", {});
    const open = (event) => {
      if (!event.target.open || place.firstChild) return;
      place.append(h("iframe", { src: `${this.base}/report`, title: "Report", sandbox: "allow-scripts allow-popups", class: "report" }));
    };
    return h(
      "details",
      { class: "report-part", ontoggle: open },
      h("summary", {}, "Report: what was missing, how it was learned, what was filled in"),
      h("p", {}, h("a", { href: `${this.base}/report`, target: "_blank", rel: "noopener" }, "Open it on a page of its own")),
      place,
    );
  }

  update(model) {
    this.showDraws(model.runs.filter((run) => run.kind === "draws"));
    const { table, intervals } = model;
    const words = {
      none: "The table is being made ready …",
      building: "The table is being made ready …",
      failed: `The table cannot be shown: ${table.message} The downloads are whole.`,
    };
    this.state.textContent = words[table.state] ?? this.intervalWords(intervals);
    if (table.state !== "ready") return;
    if (!this.grid) {
      this.grid = new Grid(this.page.content, this.base, this.page.about.level);
      this.cells.replaceChildren(this.grid.element);
      this.grid.open();
    }
    this.grid.setIntervals(intervals.state);
  }

  intervalWords(intervals) {
    const level = Math.round(100 * this.page.about.level);
    return {
      ready: `Filled cells have a corner mark. Point at one, or go to it with the arrow keys, to see its ${level} % interval.`,
      failed: `Filled cells have a corner mark. There are no intervals: ${intervals.message}`,
    }[intervals.state] ?? "Filled cells have a corner mark. Their intervals are being computed …";
  }

  showDraws(runs) {
    this.draws.replaceChildren(
      ...runs.map((run) => {
        const words = plural(run.options.m, "draw");
        const href = `${this.base}/runs/${run.id}/file`;
        if (run.state === "done") return h("a", { class: "button", href, download: true }, `Download ${words}`);
        return h("span", { class: "quiet", role: "status" }, run.message || `${words}: ${run.state === "queued" ? "waiting" : "being drawn"} …`);
      }),
    );
  }

  again() {
    const { page } = this;
    page.model = { ...page.model, state: "ready" };
    page.draw();
  }

  close() {
    this.grid?.close();
  }
}
