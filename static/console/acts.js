// Acts are replaced when their page is refreshed. The act that had the focus, or that opened the dialog which closes, has
// the focus again. The acts of a node change with its state: if an act does not apply any more, the first one has it.

const acts = document.getElementById("node-acts"); // on the page of a node
const dialog = document.getElementById("dialog");
let focused = ""; // the id of the act that had the focus before the acts of the node were replaced
let opener = ""; // the id of the act whose dialog is open

acts?.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
  if (detail.target !== acts) return;
  detail.shouldSwap = acts.innerHTML.trim() !== detail.fragment.innerHTML.trim(); // equal acts stay
  focused = acts.contains(document.activeElement) ? document.activeElement.id : "";
});
document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (detail.target === dialog && !dialog.contains(detail.elt)) opener = detail.elt.id;
});

function stand(id) {
  if (!id || document.activeElement !== document.body) return;
  (document.getElementById(id) ?? acts?.querySelector("a"))?.focus();
}
document.addEventListener("htmx:afterSwap", () => {
  stand(focused);
  focused = "";
});
dialog.addEventListener("close", () => {
  stand(opener);
  opener = "";
});
