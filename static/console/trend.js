// <xid-trend data-starts data-series>: faults by time as stacked bars. The table beside it says the same in words.

const DAY = 86400;

class XidTrend extends HTMLElement {
  connectedCallback() {
    this.starts = JSON.parse(this.dataset.starts);
    this.series = JSON.parse(this.dataset.series); // [[name, [count, ...]], ...], the most frequent first
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

  height() {
    return this.clientWidth < 600 ? 170 : 210;
  }

  paint() {
    this.chart?.destroy();
    const style = getComputedStyle(this);
    const color = (name) => style.getPropertyValue(name).trim();
    const language = document.documentElement.lang;
    const zone = document.documentElement.dataset.zone || undefined;
    const day = new Intl.DateTimeFormat(language, { month: "short", day: "numeric", timeZone: zone });
    const full = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short", timeZone: zone });
    // Bars are drawn over each other, the highest pile first, so that each shows its own share.
    const piles = [];
    const sums = this.starts.map(() => 0);
    for (const [, counts] of this.series) {
      counts.forEach((count, index) => (sums[index] += count));
      piles.push([...sums]);
    }
    const step = this.starts[1] - this.starts[0];
    const bars = uPlot.paths.bars({ size: [0.8, 40] });
    const series = this.series.map(([name, counts], index) => ({
      label: name,
      stroke: color(`--chart-${index + 1}`),
      fill: color(`--chart-${index + 1}`),
      width: 0,
      paths: bars,
      points: { show: false },
      value: (_chart, _value, _series, at) => (at === null ? "" : `${counts[at]}`),
    }));
    const axis = { stroke: color("--k-quiet"), grid: { stroke: color("--k-line-soft"), width: 1 }, ticks: { show: false } };
    const font = `12px ${style.fontFamily}`;
    this.chart = new uPlot(
      {
        width: this.clientWidth,
        height: this.height(),
        scales: { x: { time: true, range: () => [this.starts[0] - step / 2, this.starts.at(-1) + step / 2] }, y: { range: (_c, _low, high) => [0, Math.max(4, high)] } },
        axes: [
          { ...axis, font, values: (_chart, marks) => marks.map((mark) => day.format(mark * 1000)), incrs: [DAY, 2 * DAY] },
          { ...axis, font, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000] },
        ],
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        series: [{ value: (_chart, start) => (start === null ? "" : full.format(start * 1000)), label: this.dataset.sayFrom }, ...series.toReversed()],
      },
      [this.starts, ...piles.toReversed()],
      this,
    );
  }
}

customElements.define("xid-trend", XidTrend);
