// The strip of a node's last days: says the mark under the pointer or the focus, moves between marks with the arrow
// keys, and begins at the newest day where the strip is wider than the screen.

const region = document.getElementById("live");
const MARKS = "[data-strip] .strip-mark";

function say(event) {
  const mark = event.target.closest?.(MARKS);
  const said = document.getElementById("strip-said");
  if (!mark || !said) return;
  said.textContent = mark.querySelector(".visually-hidden").textContent;
}

document.addEventListener("pointerover", say);
document.addEventListener("focusin", say);

document.addEventListener("keydown", (event) => {
  const mark = event.target.closest?.(MARKS);
  if (!mark || event.ctrlKey || event.altKey || event.metaKey) return;
  const marks = [...document.querySelectorAll("[data-strip] a.strip-mark")];
  const here = marks.indexOf(mark);
  const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: marks.length - 1 }[event.key];
  if (next === undefined || !marks[next]) return;
  event.preventDefault();
  marks[next].focus();
});

let left = -1; // how far it was scrolled before the region was fetched again

function newest() {
  const strip = document.querySelector("[data-strip]");
  if (strip) strip.scrollLeft = left < 0 ? strip.scrollWidth : left;
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target === region) left = document.querySelector("[data-strip]")?.scrollLeft ?? -1;
});
document.addEventListener("htmx:afterSwap", (event) => event.detail.target === region && newest());
newest();
