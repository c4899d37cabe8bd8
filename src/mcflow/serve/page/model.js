// Screen of one file: columns before the fit, progress during the fit, and results after it.

import { call, listen } from "./api.js";
import { columnsPart } from "./columns.js";
import { announce, h, notice } from "./dom.js";
import { fitPart } from "./fit.js";
import { resultPart } from "./result.js";
import { moment, plural, share, size, STATES } from "./format.js";

const RESTING = ["ready", "failed", "cancelled", "interrupted"];

export async function modelPage(main, id, about) {
  const page = new ModelPage(main, await call(`/models/${id}`), about);
  page.open();
  return () => page.close();
}

class ModelPage {
  constructor(main, model, about) {
    Object.assign(this, { main, model, about, content: model.content });
    this.news = h("div", { class: "news" });
    // Outside of the parts that are drawn again, so that it keeps the keyboard focus.
    this.crumbs = h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All files"));
    this.head = h("div", { class: "head" });
    this.body = h("div", {});
    this.foot = h("div", { class: "foot" });
    this.shown = "";
    this.stop = () => {};
  }

  open() {
    this.main.replaceChildren(this.crumbs, this.head, this.news, this.body, this.foot);
    this.draw();
    this.listen();
  }

  close() {
    this.stop();
    this.part?.close?.();
  }

  listen() {
    this.stop();
    this.stop = listen(`/models/${this.model.id}/events`, {
      onState: (state) => this.changed(state),
      onProgress: (event) => this.part?.progress?.(event),
      onLost: () => this.lost(),
      onOpen: () => this.lostNotice?.remove(),
    });
  }

  async lost() {
    try {
      await call(`/models/${this.model.id}`);
    } catch (error) {
      if (error.status === 404) {
        this.stop();
        this.main.replaceChildren(notice(error.message, "bad"), h("p", {}, h("a", { href: "#/" }, "Upload another file")));
        return;
      }
      this.lostNotice ??= notice("The connection is lost. The job continues on the server. Reconnecting …", "bad");
      this.news.append(this.lostNotice);
    }
  }

  async changed(state) {
    const before = this.model.state;
    this.model = { ...state, content: this.content };
    if (!this.content && state.state !== "checking") this.content = (await call(`/models/${state.id}`)).content;
    if (before !== state.state) announce(`${state.filename}: ${STATES[state.state]}. ${state.message}`);
    this.draw();
  }

  draw() {
    const { model, content } = this;
    document.title = `${model.filename} – mcflow`;
    this.head.replaceChildren(...this.heading());
    this.foot.replaceChildren(this.footer());
    const part = model.state === "done" ? "result" : RESTING.includes(model.state) ? "columns" : "fit";
    if (part !== this.shown || (part === "columns" && !this.part?.alive)) {
      this.part?.close?.();
      this.shown = part;
      const make = { result: resultPart, columns: columnsPart, fit: fitPart }[part];
      this.part = part === "columns" && !content ? this.unreadable() : make(this);
      this.body.replaceChildren(this.part.element);
    }
    this.part.update?.(model);
  }

  heading() {
    const { model, content } = this;
    const cells = content ? content.rows * content.columns.length : 0;
    const facts = content
      ? [plural(content.rows, "row"), plural(content.columns.length, "column"), `${share(content.missing, cells)} of the cells missing`]
      : [];
    const problem = model.message && model.state !== "done" ? notice(model.message, model.state === "failed" ? "bad" : "") : "";
    return [
      h("h1", {}, model.filename, " ", h("span", { class: `state ${model.state}` }, STATES[model.state])),
      h("p", { class: "facts" }, [...facts, size(model.size)].join(" · ")),
      problem,
    ];
  }

  unreadable() {
    return { alive: true, element: h("p", {}, h("a", { href: "#/" }, "Upload another file")) };
  }

  footer() {
    const { model } = this;
    const when = model.expires ? `This file and its results will be deleted on ${moment(model.expires)}. ` : "";
    return h(
      "p",
      { class: "quiet" },
      when,
      h("button", { class: "plain", onclick: () => this.remove() }, "Delete now"),
    );
  }

  async remove() {
    if (!confirm(`Delete ${this.model.filename} and all its results from this server?`)) return;
    this.stop();
    await this.attempt(async () => {
      await call(`/models/${this.model.id}`, { method: "DELETE" });
      announce("Deleted.");
      location.hash = "#/";
    });
  }

  async start(choices) {
    await this.attempt(async () => {
      this.changed(await call(`/models/${this.model.id}/start`, { method: "POST", body: choices }));
      this.listen();
    });
  }

  // Reads the file again with other options, and shows the columns as they are then.
  async inspect(choices) {
    this.body.inert = true;
    await this.attempt(async () => {
      this.news.replaceChildren(notice("Reading the file again …"));
      const state = await call(`/models/${this.model.id}/inspect`, { method: "POST", body: choices });
      this.news.replaceChildren();
      this.content = state.content = state.state === "checking" ? null : state.content;
      this.part.alive = false;
      await this.changed(state);
      if (state.state === "checking") this.listen();
      else announce(`The file was read again: ${plural(state.content.missing, "cell")} missing.`);
    });
    this.body.inert = false;
  }

  async cancel() {
    await this.attempt(() => call(`/models/${this.model.id}/cancel`, { method: "POST" }));
  }

  async attempt(work) {
    this.news.replaceChildren();
    try {
      return await work();
    } catch (error) {
      this.news.replaceChildren(notice(error.message, "bad"));
      this.news.scrollIntoView({ block: "nearest" });
      return null;
    }
  }
}
