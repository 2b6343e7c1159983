// Before the first paint: the reader's theme, or the system's. No module, so that it runs at once.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("theme") || "auto";
    } catch {
      return "auto";
    }
  };
  const paint = () => {
    const theme = chosen();
    document.documentElement.dataset.bsTheme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    document.dispatchEvent(new CustomEvent("theme"));
  };
  paint();
  dark.addEventListener("change", paint);
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
