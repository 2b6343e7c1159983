// Line numbers beside the policy's text, marked where the server found a mistake.

const area = document.getElementById("text");
const gutter = document.querySelector(".gutter");
const problems = document.getElementById("problems");

function draw() {
  const marks = new Map();
  for (const one of problems.querySelectorAll("[data-line]")) {
    const line = Number(one.dataset.line);
    if (marks.get(line) !== "wrong") marks.set(line, "warning" in one.dataset ? "warned" : "wrong");
  }
  const lines = area.value.split("\n").length;
  gutter.replaceChildren(
    ...Array.from({ length: lines }, (_, index) => {
      const row = document.createElement("span");
      row.textContent = `${index + 1}`;
      if (marks.has(index + 1)) row.className = marks.get(index + 1);
      return row;
    }),
  );
  gutter.scrollTop = area.scrollTop;
}

area.addEventListener("input", draw);
area.addEventListener("scroll", () => (gutter.scrollTop = area.scrollTop));
document.addEventListener("htmx:afterSwap", (event) => event.detail.target === problems && draw());
problems.addEventListener("click", (event) => {
  const one = event.target.closest("button")?.closest("[data-line]");
  if (!one) return;
  const lines = area.value.split("\n");
  const before = lines.slice(0, one.dataset.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  const start = before + Number(one.dataset.column) - 1;
  area.focus();
  area.setSelectionRange(start, before + (lines[one.dataset.line - 1] ?? "").length);
});
area.addEventListener("keydown", (event) => {
  if (event.key !== "Tab" || event.shiftKey || !area.value) return;
  event.preventDefault(); // Escape first, then Tab, leaves the text
  document.execCommand("insertText", false, "  ");
});
draw();
