// Ctrl-K: pages, acts and nodes, found by any part of their words. Pages and acts are links that the server rendered
// for this person; nodes, racks, GPUs, parts, jobs, rescues, incidents and codes are asked for by name or number, and
// so are acts on a node ("drain gpu-0040"). An act opens its preview or form as a dialog.

const palette = document.getElementById("palette");
const input = palette?.querySelector("input");
const list = palette?.querySelector("[role=listbox]");
const fixed = list ? [...list.children] : [];
let asked = 0;
let wait = 0;

const options = () => [...list.children].filter((one) => !one.hidden);

function choose(option) {
  for (const one of list.children) one.setAttribute("aria-selected", `${one === option}`);
  if (option) input.setAttribute("aria-activedescendant", option.id);
  else input.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function narrow() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const one of fixed) {
    const text = `${one.textContent} ${one.dataset.words ?? ""}`.toLowerCase();
    one.hidden = !words.every((word) => text.includes(word));
  }
  forget("[data-found=act]"); // Enter must not open an act that an earlier text named
  choose(options()[0]);
  clearTimeout(wait);
  wait = setTimeout(search, 120);
}

function forget(which) {
  for (const old of list.querySelectorAll(which)) old.remove();
}

async function search() {
  const mine = ++asked;
  const text = input.value.trim();
  let found = [];
  if (text) {
    const answer = await fetch(`${palette.dataset.found}?q=${encodeURIComponent(text)}`);
    if (answer.ok) found = (await answer.json()).hits;
  }
  if (mine !== asked) return; // a later question was asked meanwhile
  forget("[data-found]");
  for (const [index, hit] of found.entries()) {
    const option = document.createElement("a");
    Object.assign(option, { id: `palette-found-${index}`, href: hit.page, tabIndex: -1, role: "option" });
    option.dataset.found = hit.kind;
    if (!hit.sure) option.dataset.guess = ""; // Enter does not mean it: an arrow key, or a click, does
    const name = document.createElement("span");
    name.className = "mono";
    name.textContent = hit.label;
    const detail = document.createElement("span");
    detail.className = "quiet push";
    detail.textContent = hit.detail;
    option.append(name, detail);
    list.append(option);
    if (hit.asks) {
      option.setAttribute("hx-get", hit.page);
      option.setAttribute("hx-target", "#dialog");
      htmx.process(option);
    }
  }
  const here = list.querySelector("[aria-selected=true]");
  if (!here || here.hidden) choose(options().find((one) => one.dataset.guess === undefined));
  palette.querySelector(".blank-line").hidden = options().length > 0;
}

if (palette) {
  input.addEventListener("input", narrow);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return; // the keys are those of an input method
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const shown = options();
    const here = shown.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (step && shown.length) {
      event.preventDefault();
      choose(shown[(here + step + shown.length) % shown.length]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      shown[here]?.click();
    }
  });
  list.addEventListener("click", (event) => {
    if (event.target.closest("a")) palette.close();
  });
  palette.addEventListener("close", () => {
    input.value = "";
    forget("[data-found]");
  });
  // Opened by key or button: everything is there, the first line chosen.
  new MutationObserver(() => palette.open && (input.focus(), narrow())).observe(palette, { attributeFilter: ["open"] });
}
