// The height of the frame above a page, so that the heads of tables and jumps to an anchor stop below it.

const frame = document.querySelector(".frame");

if (frame) {
  const measure = () => document.documentElement.style.setProperty("--k-frame", `${frame.offsetHeight}px`);
  new ResizeObserver(measure).observe(frame);
  measure();
}
