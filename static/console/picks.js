// Chosen rows: kept by key while the list refreshes itself under them; the bar says how many and offers what to do.

const bar = document.getElementById("picked");
const picked = new Set();
let all = false;

const boxes = () => [...document.querySelectorAll("[data-pick]")];

function show() {
  const some = boxes();
  for (const box of some) {
    box.checked = all || picked.has(box.dataset.pick);
    box.closest("tr").classList.toggle("chosen", box.checked);
  }
  const onPage = some.filter((box) => box.checked).length;
  const head = document.querySelector("[data-pick-all]");
  if (head) {
    head.checked = some.length > 0 && onPage === some.length;
    head.indeterminate = onPage > 0 && onPage < some.length;
  }
  const total = Number(bar.dataset.total);
  const number = all ? total : picked.size;
  bar.hidden = number === 0;
  bar.querySelector("p").textContent = (all ? bar.dataset.sayAll : bar.dataset.saySome).replace("{n}", number);
  const matching = bar.querySelector("[data-pick-matching]");
  if (matching) matching.hidden = all || total <= some.length || onPage < some.length;
  bar.elements.picked.value = [...picked].join(",");
  for (const old of bar.querySelectorAll("[data-filter]")) old.remove();
  if (!all) return;
  hidden("all", "1"); // what was asked for goes along, or all would mean the whole list
  for (const [name, value] of new URLSearchParams(location.search)) hidden(name, value);
}

function hidden(name, value) {
  const field = document.createElement("input");
  Object.assign(field, { type: "hidden", name, value });
  field.dataset.filter = "";
  bar.append(field);
}

function none() {
  picked.clear();
  all = false;
}

// What was chosen comes back with the list, by "back" and by "reload"; not by a new visit.
const PLACE = `picked ${location.pathname}${location.search}`;

function restore() {
  const [entry] = performance.getEntriesByType("navigation");
  const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  if (!kept || !["back_forward", "reload"].includes(entry?.type)) return;
  for (const key of kept.picked) picked.add(key);
  all = kept.all && Boolean(bar.querySelector("[data-pick-matching]"));
  if (picked.size || all) show();
}

addEventListener("pagehide", () => {
  if (bar && (picked.size || all)) sessionStorage.setItem(PLACE, JSON.stringify({ picked: [...picked], all }));
  else sessionStorage.removeItem(PLACE);
});

if (bar) {
  restore();
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick]")) {
      if (all) for (const box of boxes()) picked.add(box.dataset.pick);
      all = false;
      if (event.target.checked) picked.add(event.target.dataset.pick);
      else picked.delete(event.target.dataset.pick);
    } else if (event.target.matches("[data-pick-all]")) {
      none();
      if (event.target.checked) for (const box of boxes()) picked.add(box.dataset.pick);
    } else return;
    show();
  });
  bar.addEventListener("click", (event) => {
    if (event.target.closest("[data-pick-matching]")) all = true;
    else if (event.target.closest("[data-pick-none]")) none();
    else return;
    show();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.querySelector("[data-picked-done]")) none();
    show();
  });
}
