// Virtual table: renders the visible rows and columns and fetches them on demand, for millions of rows.

import { call } from "./api.js";
import { announce, h } from "./dom.js";
import { count } from "./format.js";

// Rows and columns of a page that is fetched at once, and pages that are kept.
const [PAGE_ROWS, PAGE_COLUMNS, MAX_PAGES] = [100, 40, 80];
// Browsers limit the height of elements to about twenty million pixels; longer tables scroll in larger steps.
const MAX_PIXELS = 8_000_000;

export class Grid {
  constructor(content, base, level) {
    Object.assign(this, { content, base, level });
    this.rows = content.rows;
    this.names = content.columns.map((column) => column.name);
    this.pages = new Map();
    this.active = { row: 0, column: 0 };
    this.intervals = "none";
    this.build();
  }

  build() {
    this.window = h("div", { class: "grid-window", role: "presentation" });
    this.space = h("div", { class: "grid-space", role: "presentation" }, this.window);
    this.frame = h(
      "div",
      {
        class: "grid",
        role: "grid",
        tabindex: "0",
        "aria-label": "Filled table",
        "aria-rowcount": this.rows + 1,
        "aria-colcount": this.names.length,
        "aria-readonly": "true",
        onscroll: () => this.soon(),
        onkeydown: (event) => this.key(event),
        onfocus: () => this.showActive(),
        onblur: () => this.hideTip(),
        onpointerover: (event) => this.point(event),
        onpointerleave: () => this.hideTip(),
        onclick: (event) => this.click(event),
      },
      this.space,
    );
    this.tip = h("div", { class: "tip", role: "tooltip", id: "grid-tip", hidden: true });
    const row = h("input", { type: "number", min: 1, max: this.rows, id: "go-row", placeholder: "1" });
    const go = (event) => {
      event.preventDefault();
      if (row.value) this.moveTo(Math.min(this.rows, Math.max(1, Number(row.value))) - 1, this.active.column);
    };
    this.element = h(
      "div",
      {},
      h(
        "div",
        { class: "grid-tools" },
        h("button", { onclick: () => this.next() }, "Next filled cell"),
        h("form", { class: "inline", onsubmit: go }, h("label", { for: "go-row" }, "Row"), row, h("button", {}, "Go")),
        h("span", { class: "quiet" }, `of ${count(this.rows)}`),
      ),
      this.frame,
      this.tip,
    );
  }

  open() {
    this.watcher = new ResizeObserver(() => this.measure());
    this.watcher.observe(this.frame);
    this.measure();
  }

  close() {
    this.watcher?.disconnect();
    cancelAnimationFrame(this.frameDue);
  }

  setIntervals(state) {
    if (state === "ready" && this.intervals !== "ready") {
      this.pages.clear();
      this.soon();
    }
    this.intervals = state;
  }

  measure() {
    const style = getComputedStyle(this.frame);
    const pixels = (name) => parseFloat(style.getPropertyValue(name));
    this.height = pixels("--row");
    this.width = pixels("--column");
    this.side = pixels("--side");
    const room = this.frame.clientHeight - this.height;
    this.fit = Math.max(1, Math.floor(room / this.height));
    this.tall = Math.min(this.rows * this.height, MAX_PIXELS);
    this.space.style.height = `${this.tall + this.height}px`;
    this.space.style.width = `${this.names.length * this.width + this.side}px`;
    this.window.style.width = `${this.frame.clientWidth}px`;
    this.window.style.height = `${this.frame.clientHeight}px`;
    this.soon();
  }

  // Index of the topmost visible row, with a fractional part if it is partly scrolled out.
  get top() {
    const room = this.tall + this.height - this.frame.clientHeight;
    if (room <= 0) return 0;
    const last = Math.max(0, this.rows - (this.frame.clientHeight - this.height) / this.height);
    return (Math.min(1, this.frame.scrollTop / room)) * last;
  }

  scrollToRow(row) {
    const last = Math.max(1e-9, this.rows - (this.frame.clientHeight - this.height) / this.height);
    this.frame.scrollTop = (Math.min(row, last) / last) * (this.tall + this.height - this.frame.clientHeight);
  }

  soon() {
    this.frameDue ??= requestAnimationFrame(() => {
      this.frameDue = undefined;
      this.draw();
    });
  }

  draw() {
    const top = this.top;
    const left = this.frame.scrollLeft;
    const first = Math.floor(top);
    const last = Math.min(this.rows, first + this.fit + 2);
    const from = Math.max(0, Math.floor(left / this.width));
    const until = Math.min(this.names.length, Math.ceil((left + this.frame.clientWidth) / this.width));
    const lines = [this.header(from, until, left)];
    for (let row = first; row < last; row += 1) lines.push(this.line(row, (row - top + 1) * this.height, from, until, left));
    this.window.replaceChildren(...lines);
    this.need(first, last, from, until);
    this.frame.setAttribute("aria-activedescendant", this.window.querySelector(".active")?.id ?? "");
  }

  header(from, until, left) {
    const line = h("div", { class: "grid-row grid-head", role: "row", "aria-rowindex": 1 }, h("div", { class: "grid-side", role: "columnheader" }, "row"));
    for (let column = from; column < until; column += 1) {
      const cell = h("div", { class: "grid-cell", role: "columnheader", "aria-colindex": column + 1, title: this.names[column] }, this.names[column]);
      cell.style.transform = `translateX(${this.side + column * this.width - left}px)`;
      line.append(cell);
    }
    return line;
  }

  line(row, offset, from, until, left) {
    const line = h("div", { class: "grid-row", role: "row", "aria-rowindex": row + 2 }, h("div", { class: "grid-side", role: "rowheader" }, count(row + 1)));
    line.style.transform = `translateY(${offset}px)`;
    for (let column = from; column < until; column += 1) {
      const cell = this.cell(row, column);
      cell.style.transform = `translateX(${this.side + column * this.width - left}px)`;
      line.append(cell);
    }
    return line;
  }

  cell(row, column) {
    const { known, text, filled } = this.cellAt(row, column);
    const active = row === this.active.row && column === this.active.column;
    const kind = !known ? "loading" : filled ? "filled" : text === null ? "missing-cell" : "";
    const shown = !known ? "…" : text ?? "";
    return h(
      "div",
      {
        class: `grid-cell ${kind}${active ? " active" : ""}`,
        role: "gridcell",
        id: `cell-${row}-${column}`,
        "aria-colindex": column + 1,
        "aria-label": known ? this.description(column, text, filled) : null,
        "data-row": row,
        "data-column": column,
      },
      shown,
    );
  }

  cellAt(row, column) {
    const page = this.pages.get(pageOf(row, column));
    if (!page?.cells) return { known: false };
    const cells = page.cells[row - page.start];
    const place = column - page.column;
    return { known: true, text: cells?.[place] ?? null, filled: page.filled.get(`${row},${column}`) };
  }

  description(column, text, filled) {
    const name = this.names[column];
    if (!filled) return text === null ? `${name}: missing` : `${name}: ${text}`;
    return `${name}: ${text}, filled${this.interval(filled)}`;
  }

  interval([low, high]) {
    return low === null ? "" : `; ${Math.round(100 * this.level)} % interval ${low} to ${high}`;
  }

  // ---- fetching
  need(first, last, from, until) {
    clearTimeout(this.later);
    const wanted = [];
    for (let row = first - (first % PAGE_ROWS); row < last; row += PAGE_ROWS)
      for (let column = from - (from % PAGE_COLUMNS); column < until; column += PAGE_COLUMNS)
        if (!this.pages.has(pageOf(row, column))) wanted.push([row, column]);
    // Rows that are only scrolled past are not fetched.
    if (wanted.length) this.later = setTimeout(() => wanted.forEach(([row, column]) => this.fetch(row, column)), 60);
  }

  async fetch(row, column) {
    const key = pageOf(row, column);
    if (this.pages.has(key)) return;
    this.pages.set(key, {});
    while (this.pages.size > MAX_PAGES) this.pages.delete(this.pages.keys().next().value);
    try {
      const page = await call(`${this.base}/rows?start=${row}&count=${PAGE_ROWS}&column=${column}&columns=${PAGE_COLUMNS}`);
      const filled = new Map(page.filled.map(([r, c, low, high]) => [`${r},${c}`, [low, high]]));
      if (this.pages.has(key)) this.pages.set(key, { ...page, filled });
    } catch {
      this.pages.delete(key);
    }
    this.soon();
    if (document.activeElement === this.frame) requestAnimationFrame(() => this.showActive());
  }

  // ---- moving
  key(event) {
    const { row, column } = this.active;
    const end = this.names.length - 1;
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      PageUp: [row - this.fit, column],
      PageDown: [row + this.fit, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0],
      End: event.ctrlKey ? [this.rows - 1, end] : [row, end],
    };
    if (event.key === "Escape") this.hideTip();
    if (event.key === "n") this.next();
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.moveTo(...moves[event.key]);
  }

  moveTo(row, column) {
    this.active = { row: Math.min(this.rows - 1, Math.max(0, row)), column: Math.min(this.names.length - 1, Math.max(0, column)) };
    const top = this.top;
    if (this.active.row < top) this.scrollToRow(this.active.row);
    else if (this.active.row > top + this.fit - 1) this.scrollToRow(this.active.row - this.fit + 1);
    const left = this.active.column * this.width;
    const room = this.frame.clientWidth - this.side - this.width;
    if (left < this.frame.scrollLeft) this.frame.scrollLeft = left;
    else if (left > this.frame.scrollLeft + room) this.frame.scrollLeft = left - Math.max(0, room);
    this.draw();
    this.showActive();
  }

  async next() {
    const { row, column } = this.active;
    const found = await call(`${this.base}/next-filled?row=${row}&column=${column}`);
    if (!found) {
      announce("No more filled cells below. Continuing from the top.");
      await this.first();
      return;
    }
    this.moveTo(found.row, found.column);
    this.frame.focus();
  }

  async first() {
    const found = await call(`${this.base}/next-filled`);
    if (found) this.moveTo(found.row, found.column);
  }

  // ---- intervals
  point(event) {
    const cell = event.target.closest?.(".grid-cell.filled");
    if (cell) this.showTip(cell);
    else this.hideTip();
  }

  click(event) {
    const cell = event.target.closest?.("[data-row]");
    if (cell) this.moveTo(Number(cell.dataset.row), Number(cell.dataset.column));
  }

  showActive() {
    const cell = this.window.querySelector(".active.filled");
    if (cell) this.showTip(cell);
    else this.hideTip();
  }

  showTip(cell) {
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    const { text, filled } = this.cellAt(row, column);
    if (!filled) return;
    const [low, high] = filled;
    const waiting = ["none", "building"].includes(this.intervals);
    const level = `${Math.round(100 * this.level)} %`;
    const bounds = low !== null ? `${level} interval: ${low} to ${high}` : waiting ? "The interval is being computed" : "No interval: the column has no order";
    this.tip.replaceChildren(h("strong", {}, `Filled: ${text}`), h("span", {}, bounds));
    this.tip.hidden = false;
    const box = cell.getBoundingClientRect();
    const own = this.tip.getBoundingClientRect();
    const above = box.top - own.height - 6;
    this.tip.style.top = `${above > 4 ? above : box.bottom + 6}px`;
    this.tip.style.left = `${Math.max(6, Math.min(box.left, innerWidth - own.width - 6))}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

const pageOf = (row, column) => `${Math.floor(row / PAGE_ROWS)}:${Math.floor(column / PAGE_COLUMNS)}`;
