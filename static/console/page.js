// What every page can do: dialogs, copying, filters, and the token that every changing request carries.

const body = document.body;
const dialog = document.getElementById("dialog");
const toast = document.getElementById("toast");

document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.verb !== "get") event.detail.headers["X-CSRFToken"] = body.dataset.csrf;
});

// Reads of a cluster on one page go one after the other: a person has few places for them, and is refused without one.
let turn = Promise.resolve();
const waiting = new WeakSet();
document.addEventListener("htmx:confirm", (event) => {
  const { elt, etc, issueRequest } = event.detail;
  if (!elt.matches("[data-in-turn]")) return; // a click on a link inside of it waits for nobody
  event.preventDefault();
  if (waiting.has(elt)) return; // its turn of a minute ago has not come yet
  waiting.add(elt);
  etc.returnPromise = true;
  const issue = () => waiting.delete(elt) && elt.isConnected && issueRequest(true);
  turn = turn.then(issue).catch(() => {}); // htmx tells of its errors by events
});

// Dialogs: whatever htmx puts into #dialog is shown; [data-closes] shuts it instead of following its link.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== dialog) return;
  if (!dialog.open) dialog.showModal();
  focusFirst(dialog);
});
dialog.addEventListener("close", () => dialog.replaceChildren());

// The same form on a page of its own: the first thing to do there is to type. What is above it stays in sight. A refused
// form starts at the field that was wrong. A select with a choice is passed over: a letter typed there changes it unseen.
function focusFirst(place) {
  const fields = [...(place?.querySelectorAll("input:not([type=hidden]), select, textarea") ?? [])];
  const wrong = fields.find((field) => field.matches("[aria-invalid=true]"));
  const first = wrong ?? fields.find((field) => !field.matches("select") || !field.value);
  first?.focus({ preventScroll: place !== dialog });
}
focusFirst(document.querySelector("#live > form.sheet"));

// htmx binds a link when the page is complete, or 20 ms after a swap. Whoever is faster would follow the link to the
// page instead of opening the dialog.
document.addEventListener(
  "click",
  (event) => {
    const link = event.target.closest("a[hx-get]");
    if (link) htmx.process(link);
  },
  true,
);

// A common reason fills the field, and can be changed before it is sent.
document.addEventListener("click", (event) => {
  const preset = event.target.closest("[data-preset]");
  const field = preset?.form?.elements.reason;
  if (!field) return;
  field.value = preset.dataset.preset;
  field.focus();
});

// A request that somebody else has answered meanwhile cannot be answered again.
document.addEventListener("htmx:afterSwap", (event) => {
  if (!dialog.contains(event.detail.target) || !dialog.querySelector("[data-over]")) return;
  for (const button of dialog.querySelectorAll("button[type=submit]")) button.disabled = true;
});

// Whoever approves must have seen what the act takes away: the button works once [data-awaited] has been replaced.
function holdBack() {
  for (const form of document.querySelectorAll("form[data-waits]")) {
    const waits = form.querySelector("[data-awaited], [data-over]") !== null;
    for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = waits;
  }
}
document.addEventListener("htmx:afterSwap", holdBack);
holdBack();

// What does not come is unknown, and says so: otherwise the button would wait for ever.
for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    const { elt } = event.detail;
    for (const awaited of [elt, ...elt.querySelectorAll("*")].filter((one) => one.matches("[data-awaited]"))) {
      awaited.textContent = awaited.dataset.sayUnknown;
      awaited.removeAttribute("data-awaited");
    }
    holdBack();
  });
}

// A link to a request puts the focus there, so that the next key is about it. The browser itself takes the focus away
// when it scrolls to the place, at the end of loading.
function focusNamed() {
  if (!location.hash.startsWith("#question-")) return;
  setTimeout(() => document.getElementById(location.hash.slice(1))?.querySelector("a.row-link")?.focus());
}
if (document.readyState === "complete") focusNamed();
else addEventListener("load", focusNamed);
addEventListener("hashchange", focusNamed);

document.addEventListener("click", async (event) => {
  const closes = event.target.closest("[data-closes]");
  if (closes && closes.closest("dialog")) {
    event.preventDefault();
    closes.closest("dialog").close();
    return;
  }
  const opens = event.target.closest("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens)?.showModal();
  const copies = event.target.closest("[data-copy]");
  if (copies) {
    await copy(copies.dataset.copy);
    say(body.dataset.sayCopied);
  }
  for (const menu of document.querySelectorAll("details.menu[open], #mode[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
  if (event.target instanceof HTMLDialogElement) event.target.close(); // the backdrop
});

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // plain HTTP has no clipboard
  area.value = text;
  body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

let quiet = 0;
function say(text, milliseconds = 1800) {
  toast.textContent = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => (toast.textContent = ""), milliseconds);
}

// What an act before this page has done is said at its top, which may be out of sight: the focus is where it was.
const done = document.querySelector("#main > p[role=status]")?.textContent;
if (done) say(done, 6000);

// A click that got no answer, or an error, says so. A refresh of a region is no click: the live link shows it.
function unanswered(event, text) {
  const { elt, target } = event.detail;
  if (elt === target && elt.dataset.topics !== undefined) return;
  say(text, 10_000);
  if (!dialog.open) return;
  const note = document.createElement("p"); // the toast is behind an open dialog
  note.className = "note note-error unanswered";
  note.role = "alert";
  note.textContent = text;
  dialog.querySelector(".unanswered")?.remove();
  dialog.querySelector(".sheet-foot")?.before(note);
}
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => unanswered(event, body.dataset.sayUnanswered));
}
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status >= 500) unanswered(event, body.dataset.sayFailed);
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});

// An empty filter is no filter: it stays out of the address.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.filters")) return;
  for (const field of event.target.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form.filters :disabled")) field.disabled = false;
});

// A row is opened by a click anywhere on it.
document.addEventListener("click", (event) => {
  const row = event.target.closest("table.rows tbody tr");
  if (!row || event.target.closest("a, button, details, input, select")) return;
  if (!getSelection().isCollapsed) return;
  row.querySelector("a.row-link")?.click();
});
