// Entry point of the page: routing between screens, and the token dialog.

import { call, onTokenRequired } from "./api.js";
import { notice } from "./dom.js";
import { home } from "./home.js";
import { modelPage } from "./model.js";
import { hours } from "./format.js";

const main = document.getElementById("main");
let leave = () => {};
let asked = null;

function askForToken() {
  asked ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const field = document.getElementById("token");
    const wrong = document.getElementById("token-wrong");
    const form = document.getElementById("token-form");
    const send = async (event) => {
      event.preventDefault();
      try {
        await call("/session", { method: "POST", body: { token: field.value } });
      } catch (error) {
        wrong.textContent = error.message;
        return;
      }
      form.removeEventListener("submit", send);
      field.value = wrong.textContent = "";
      dialog.close();
      asked = null;
      resolve();
    };
    form.addEventListener("submit", send);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  });
  return asked;
}

async function show() {
  leave();
  leave = () => {};
  const id = /^#\/models\/([0-9a-f]+)$/.exec(location.hash)?.[1];
  try {
    const about = await call("/about");
    if (about.token && !about.known) await askForToken();
    document.getElementById("about").textContent =
      `mcflow ${about.version} · files are deleted after ${hours(about.limits.keep)}`;
    leave = await (id ? modelPage(main, id, about) : home(main, about));
  } catch (error) {
    main.replaceChildren(notice(error.message, "bad"));
  }
}

onTokenRequired(askForToken);
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
// Without this, a file dropped beside the drop zone would make the browser leave the page.
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
show();
