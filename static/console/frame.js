// The frame of a page. Its height above the page is told to the style, so that the heads of tables and jumps to an anchor stop below it.

const frame = document.querySelector(".frame");

if (frame) {
  const measure = () => document.documentElement.style.setProperty("--k-frame", `${frame.offsetHeight}px`);
  new ResizeObserver(measure).observe(frame);
  measure();
}

// On a phone the bar at the bottom holds the pinned places; "More" opens it to a sheet with all of them, by group.
const more = document.getElementById("more");
const side = more?.closest(".side");

function unfold(open) {
  side.classList.toggle("open", open);
  more.setAttribute("aria-expanded", `${open}`);
}

if (more) {
  document.addEventListener("click", (event) => {
    if (more.contains(event.target)) unfold(!side.classList.contains("open"));
    else if (!side.contains(event.target)) unfold(false);
  });
  side.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !side.classList.contains("open")) return;
    unfold(false);
    more.focus();
  });
}
