// The acts of a node change with its state. An act with the focus keeps it while it applies; then the first act has it.

const acts = document.getElementById("node-acts");
const dialog = document.getElementById("dialog");
let focused = ""; // the id of the act that had the focus before the acts were replaced
let opener = ""; // the id of the act whose dialog is open

// Equal acts stay: a dialog that closes gives the focus back to the act that opened it.
acts.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
  if (detail.target !== acts) return;
  detail.shouldSwap = acts.innerHTML.trim() !== detail.fragment.innerHTML.trim();
  focused = acts.contains(document.activeElement) ? document.activeElement.id : "";
});
acts.addEventListener("htmx:beforeRequest", ({ target }) => (opener = target.id));

function stand(id) {
  if (!id || document.activeElement !== document.body) return;
  (document.getElementById(id) ?? acts.querySelector("a")).focus();
}
document.addEventListener("htmx:afterSwap", () => {
  stand(focused);
  focused = "";
});
dialog.addEventListener("close", () => {
  stand(opener);
  opener = "";
});
