// "Back" leads to the place in a list that one left. Pages are not cached, and a live list may have grown meanwhile:
// the browser restores nothing, or the wrong place. The row that had been opened stays where it was on the screen.

const PLACE = `scroll ${location.pathname}${location.search}`;
const [entry] = performance.getEntriesByType("navigation");

history.scrollRestoration = "manual";
if (entry?.type === "back_forward" || entry?.type === "reload") {
  const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  if (kept && !location.hash) {
    const row = kept.row && document.getElementById(kept.row);
    scrollTo({ top: row ? row.getBoundingClientRect().top + scrollY - kept.top : kept.y, behavior: "instant" });
    row?.focus({ preventScroll: true });
  }
}

let row = null;
document.addEventListener("click", (event) => {
  row = event.target.closest("a.row-link[id]") ?? event.target.closest("tr")?.querySelector("a.row-link[id]") ?? null;
});

addEventListener("pagehide", () => {
  const kept = { y: scrollY, row: row?.isConnected ? row.id : "", top: row?.getBoundingClientRect().top ?? 0 };
  sessionStorage.setItem(PLACE, JSON.stringify(kept));
});
