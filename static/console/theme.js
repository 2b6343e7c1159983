// Before the first paint: the reader's theme, or the system's; on paper the light one. No module, so that it runs at
// once.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const chosen = () => {
    try {
      return localStorage.getItem("theme") || "auto";
    } catch {
      return "auto";
    }
  };
  const paint = () => {
    const theme = paper.matches ? "light" : chosen();
    document.documentElement.dataset.bsTheme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    document.dispatchEvent(new CustomEvent("theme"));
  };
  paint();
  dark.addEventListener("change", paint);
  paper.addEventListener("change", paint);
  addEventListener("storage", (event) => event.key === "theme" && paint());
  document.addEventListener("change", (event) => {
    if (event.target.name !== "theme") return;
    localStorage.setItem("theme", event.target.value);
    paint();
  });
  document.addEventListener("DOMContentLoaded", () => {
    const radio = document.querySelector(`#theme input[value="${chosen()}"]`);
    if (radio) radio.checked = true;
  });
})();
