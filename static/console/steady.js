// Rows stay where they are while somebody points at their list or has the focus in it.
//
// A refreshed region then updates its rows in place. New rows are announced ("3 new") and appear with a press of that
// button, or once the pointer and the focus have left. In a list that is complete (data-steady="whole") a row that is
// over stays, dimmed, until then.

const region = document.getElementById("live");
const LISTS = "[data-steady], table.rows tbody";
let waiting = false;

const lists = (root) => [...root.querySelectorAll(LISTS)];
const rowsOf = (list) => [...list.children].filter((row) => keyOf(row));
const keyOf = (row) => row.id || row.querySelector("a.row-link[id]")?.id || "";
const inUse = (list) => list.matches(":hover") || (list.contains(document.activeElement) && document.activeElement !== list);

// The list of the answer in the order of the page: known rows with their new content, rows that are over, no new ones.
function steadied(old, next) {
  const known = rowsOf(old);
  const fresh = new Map(rowsOf(next).map((row) => [keyOf(row), row]));
  const kept = new Set(known.map(keyOf));
  const added = [...fresh.keys()].filter((key) => !kept.has(key)).length;
  const order = [...fresh.keys()].filter((key) => kept.has(key));
  const same = order.length === known.length && order.every((key, at) => key === keyOf(known[at]));
  if (same && !added) return 0;
  const rows = known.map((row) => {
    const now = fresh.get(keyOf(row));
    if (now) return now;
    const past = row.cloneNode(true);
    past.classList.toggle("row-past", old.dataset.steady === "whole");
    return past;
  });
  next.replaceChildren(...rows);
  return added || -1;
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = event;
  if (!region || detail.target !== region || !detail.shouldSwap || detail.elt !== region) return;
  waiting = false;
  const before = lists(region);
  if (!before.some(inUse)) return;
  const answer = new DOMParser().parseFromString(`<template>${detail.serverResponse}</template>`, "text/html");
  const content = answer.querySelector("template").content;
  const after = lists(content);
  if (after.length !== before.length) return;
  for (const [at, old] of before.entries()) {
    if (!inUse(old)) continue;
    const added = steadied(old, after[at]);
    if (!added) continue;
    waiting = true;
    if (added > 0) announce(after[at], added);
  }
  if (!waiting) return;
  const box = document.createElement("div");
  box.append(content);
  detail.serverResponse = box.innerHTML;
});

function announce(list, number) {
  const note = document.createElement("p");
  note.className = "fresh";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn btn-sm btn-primary";
  button.dataset.fresh = "";
  button.textContent = document.body.dataset.sayNew.replace("{n}", number);
  note.append(button);
  (list.closest("table") ?? list).before(note);
}

function show() {
  waiting = false;
  htmx.trigger(region, "refresh");
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-fresh]")) return;
  document.activeElement.blur();
  show();
});
for (const name of ["pointerout", "focusout"]) {
  document.addEventListener(name, () => {
    if (waiting) setTimeout(() => waiting && !lists(region).some(inUse) && show(), 300);
  });
}
