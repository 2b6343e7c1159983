// The base of the elements that draw numbers over time with uPlot: their life cycle, words of time, axes and colours.

export const DAY = 86400;

export class TimeChart extends HTMLElement {
  connectedCallback() {
    this.read();
    this.draw = () => this.paint();
    document.addEventListener("theme", this.draw);
    this.sized = new ResizeObserver(() => this.chart?.setSize({ width: this.clientWidth, height: this.height() }));
    this.paint();
    this.sized.observe(this);
  }

  disconnectedCallback() {
    document.removeEventListener("theme", this.draw);
    this.sized.disconnect();
    this.chart?.destroy();
  }

  paint() {
    this.chart?.destroy();
    const { data, series, scales, axes, said, cursor } = this.plan();
    const axis = {
      stroke: this.color("--k-quiet"),
      grid: { stroke: this.color("--k-line-soft"), width: 1 },
      ticks: { show: false },
      font: `12px ${getComputedStyle(this).fontFamily}`,
    };
    const full = this.words({ dateStyle: "medium", timeStyle: "short" });
    const time = { value: (_chart, at) => (at === null ? "" : full(at)), label: said };
    this.chart = new uPlot(
      {
        width: this.clientWidth,
        height: this.height(),
        scales,
        axes: axes.map((own) => ({ ...axis, ...own })),
        cursor: { drag: { x: false, y: false }, ...cursor },
        series: [time, ...series],
      },
      data,
      this,
    );
  }

  color(name) {
    return getComputedStyle(this).getPropertyValue(name).trim();
  }

  // A function from seconds to text in the page's language and time zone.
  words(options) {
    const timeZone = document.documentElement.dataset.zone || undefined;
    const format = new Intl.DateTimeFormat(document.documentElement.lang, { timeZone, ...options });
    return (at) => format.format(at * 1000);
  }
}
