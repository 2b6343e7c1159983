// Keys: / search, ? help, j k rows, x chooses a row, a d ask to approve or deny, Ctrl-K the palette, g + letter goes. None while somebody types.

const GO_WITHIN = 1500;
let going = 0;

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
    const palette = document.getElementById("palette");
    if (!palette) return;
    event.preventDefault();
    if (palette.open) palette.close();
    else if (!document.querySelector("dialog[open]")) palette.showModal();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]")) {
    // The policy editor closes its lists with Escape, and lets Tab leave after it.
    if (event.key === "Escape" && !event.target.closest(".cm-editor")) event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (going && Date.now() - going < GO_WITHIN) {
    going = 0;
    document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`)?.click();
    event.preventDefault();
    return;
  }
  switch (event.key) {
    case "g":
      going = Date.now();
      break;
    case "/":
      document.getElementById("search")?.focus();
      event.preventDefault();
      break;
    case "?":
      document.getElementById("help-dialog")?.showModal();
      break;
    case "j":
    case "k":
      move(event.key === "j" ? 1 : -1);
      break;
    case "a":
    case "d":
      answer(event);
      break;
    case "x":
      document.activeElement.closest("tr")?.querySelector("[data-pick]")?.click();
      break;
  }
});

// Opens the dialog of the request that has the focus, or of the first one if nothing has: with the focus on another
// node's row, the first request is not the one that the person means. No key alone approves anything.
function answer(event) {
  const focused = document.activeElement;
  const main = document.getElementById("main");
  const place = focused === document.body || focused === main ? main : focused.closest("article, li.need");
  if (!place) return;
  const link = place.querySelector(`[data-answer="${event.key}"]`);
  if (!link) return;
  event.preventDefault();
  link.click();
}

function move(by) {
  const rows = [...document.querySelectorAll("#main a.row-link")];
  if (!rows.length) return;
  const row = document.activeElement.closest("tr, li, article");
  const here = rows.findIndex((one) => one === document.activeElement || row?.contains(one));
  const next = here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by));
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}
