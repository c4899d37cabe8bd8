// After the fit: downloads, the table of filled cells, and the report.

import { call } from "./api.js";
import { h, notice } from "./dom.js";
import { Grid } from "./grid.js";
import { count, KINDS, plural } from "./format.js";

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
    this.summary = h("div", { class: "scroll" });
    this.element = h(
      "div",
      {},
      page.model.progress?.quality ? notice(page.model.progress.quality) : "",
      this.downloads(),
      h("section", { "aria-labelledby": "by-column" }, h("h2", { id: "by-column" }, "Filled cells by column"), this.summary),
      h("section", { "aria-labelledby": "cells" }, h("h2", { id: "cells" }, "Filled cells"), this.state, this.cells),
      this.report(),
      h("p", {}, h("button", { class: "plain", onclick: () => this.again() }, "Fit again with other options")),
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
      h("summary", {}, "Report: missing values, training curves and filled values"),
      h("p", {}, h("a", { href: `${this.base}/report`, target: "_blank", rel: "noopener" }, "Open in a new tab")),
      place,
    );
  }

  update(model) {
    this.showDraws(model.runs.filter((run) => run.kind === "draws"));
    const { table, intervals } = model;
    const texts = {
      none: "Preparing the table …",
      building: "Preparing the table …",
      failed: `The table cannot be shown: ${table.message} The downloads are complete.`,
    };
    this.state.textContent = texts[table.state] ?? this.intervalText(intervals);
    if (table.state !== "ready") return;
    if (!this.grid) {
      this.grid = new Grid(this.page.content, this.base, this.page.about.level);
      this.cells.replaceChildren(this.grid.element);
      this.grid.open();
      this.grid.first();
      this.page.attempt(() => this.summarise());
    }
    this.grid.setIntervals(intervals.state);
  }

  async summarise() {
    const { columns } = await call(`${this.base}/summary`);
    const shown = columns.filter((column) => column.filled || column.left);
    const kinds = Object.fromEntries(this.page.content.columns.map((column) => [column.name, this.page.model.options.kinds[column.name] ?? column.kind]));
    const cells = (column) => [KINDS[kinds[column.name]] ?? "", count(column.filled), count(column.left), column.before, column.after];
    this.summary.replaceChildren(
      h(
        "table",
        { class: "by-column" },
        h("caption", { class: "quiet" }, "Observed and filled with: mean of numbers and times, most frequent category."),
        h("thead", {}, h("tr", {}, ["Column", "Kind", "Filled", "Left missing", "Observed", "Filled with"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, shown.map((column) => h("tr", {}, h("th", { scope: "row" }, column.name), cells(column).map((text) => h("td", {}, text))))),
      ),
    );
  }

  intervalText(intervals) {
    const level = Math.round(100 * this.page.about.level);
    return {
      ready: `Filled cells are marked in the corner. Hover over a cell, or select it with the arrow keys, to see its ${level} % interval.`,
      failed: `Filled cells are marked in the corner. There are no intervals: ${intervals.message}`,
    }[intervals.state] ?? "Filled cells are marked in the corner. Their intervals are being computed …";
  }

  showDraws(runs) {
    this.draws.replaceChildren(
      ...runs.map((run) => {
        const draws = plural(run.options.m, "draw");
        const href = `${this.base}/runs/${run.id}/file`;
        if (run.state === "done") return h("a", { class: "button", href, download: true }, `Download ${draws}`);
        return h("span", { class: "quiet", role: "status" }, run.message || `${draws}: ${run.state} …`);
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
