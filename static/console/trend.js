// <xid-trend data-starts data-series>: faults, or another number, by time as stacked bars. The table beside it says the same in words.

import { DAY, TimeChart } from "./time_chart.js";

const STEPS = [-1, 0, 1, 2, 3, 4, 5].flatMap((power) => [1, 2, 5].map((first) => first * 10 ** power));

class XidTrend extends TimeChart {
  read() {
    this.starts = JSON.parse(this.dataset.starts);
    this.series = JSON.parse(this.dataset.series); // [[name, [count, ...]], ...], the most frequent first
  }

  height() {
    return this.clientWidth < 600 ? 170 : 210;
  }

  plan() {
    // Bars are drawn over each other, the highest pile first, so that each shows its own share.
    const piles = [];
    const sums = this.starts.map(() => 0);
    for (const [, counts] of this.series) {
      counts.forEach((count, index) => (sums[index] += count));
      piles.push([...sums]);
    }
    const short = this.starts.at(-1) - this.starts[0] < 2 * DAY;
    const mark = this.words(short ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { month: "short", day: "numeric" });
    const step = (this.starts[1] ?? this.starts[0] + DAY) - this.starts[0];
    const least = sums.every(Number.isInteger) ? 4 : 0.1; // the least that the scale shows
    const bars = uPlot.paths.bars({ size: [0.8, 40] });
    const series = this.series.map(([name, counts], index) => ({
      label: name,
      stroke: this.color(`--chart-${index + 1}`),
      fill: this.color(`--chart-${index + 1}`),
      width: 0,
      paths: bars,
      points: { show: false },
      value: (_chart, _value, _series, at) => (at === null ? "" : `${counts[at]}`),
    }));
    return {
      data: [this.starts, ...piles.toReversed()],
      series: series.toReversed(),
      said: this.dataset.sayFrom,
      cursor: { points: { show: false } },
      scales: {
        x: { time: true, range: () => [this.starts[0] - step / 2, this.starts.at(-1) + step / 2] },
        y: { range: (_chart, _low, high) => [0, Math.max(least, high)] },
      },
      axes: [
        {
          size: 28, // one line of dates
          values: (_chart, marks) => marks.map(mark),
          incrs: (short ? [1 / 24, 1 / 8, 1 / 4] : [1, 2, 7, 14, 30, 61, 122, 365]).map((days) => days * DAY),
        },
        { size: Math.max(...sums) < 1000 ? 36 : 56, incrs: STEPS },
      ],
    };
  }
}

customElements.define("xid-trend", XidTrend);
