// Acts are replaced when their page is refreshed. The act that had the focus, or that opened the dialog which closes, has
// the focus again; so has a link, also if the dialog leads back to this page. The acts of a node change with its state:
// if an act does not apply any more, the first one has it.

const acts = document.getElementById("node-acts"); // on the page of a node
const dialog = document.getElementById("dialog");
let focused = ""; // the selector of the act that had the focus before it was replaced
let opener = ""; // the selector of the act whose dialog is open

// An act is found again by its id; a link without one by its address.
function selectorOf(act) {
  if (act.id) return `#${CSS.escape(act.id)}`;
  return act.matches("a[href]") ? `a[href="${CSS.escape(act.getAttribute("href"))}"]` : "";
}
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const held = document.activeElement; // htmx itself keeps the focus of what has an id
  if (detail.target.id === "live" && !held.id && detail.target.contains(held)) focused = selectorOf(held);
});

acts?.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
  if (detail.target !== acts) return;
  detail.shouldSwap = acts.innerHTML.trim() !== detail.fragment.innerHTML.trim(); // equal acts stay
  if (acts.contains(document.activeElement)) focused = selectorOf(document.activeElement);
});
document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (detail.target === dialog && !dialog.contains(detail.elt)) opener = selectorOf(detail.elt);
});

function stand(selector) {
  if (!selector || document.activeElement !== document.body) return;
  const other = selector.startsWith("#") ? acts?.querySelector("a") : null;
  (document.querySelector(`#live ${selector}`) ?? document.querySelector(selector) ?? other)?.focus();
}
document.addEventListener("htmx:afterSwap", () => {
  stand(focused);
  focused = "";
});
dialog.addEventListener("close", () => {
  stand(opener);
  opener = "";
});

// The page that a dialog leads back to is a new one. Another tab has a place of its own for this.
const OPENER = "opener";
addEventListener("pagehide", () => {
  if (dialog.open && opener) sessionStorage.setItem(OPENER, JSON.stringify([location.pathname, opener]));
});
const [path, selector] = JSON.parse(sessionStorage.getItem(OPENER) ?? "[]");
sessionStorage.removeItem(OPENER);
if (path === location.pathname) stand(selector);
