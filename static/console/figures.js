// <line-chart data-times data-lines>: values over time as lines. The table beside it says the same in words.

import { DAY, TimeChart } from "./time_chart.js";

const DASHES = [[], [6, 3], [2, 3]]; // with the colours, so that each of eighteen GPUs has its own look
const COLOURS = 6;

class LineChart extends TimeChart {
  read() {
    this.times = JSON.parse(this.dataset.times);
    this.lines = JSON.parse(this.dataset.lines); // [[name, [value or null, ...]], ...]
  }

  height() {
    return 170;
  }

  plan() {
    const [first, last] = [this.times[0], this.times.at(-1)];
    const long = last - first > DAY;
    const mark = this.words(long ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" });
    const values = this.lines.flatMap(([, own]) => own.filter((value) => value !== null));
    const [low, high] = [Math.min(0, ...values), Math.max(1, ...values)];
    const series = this.lines.map(([name], index) => ({
      label: name,
      stroke: this.color(`--chart-${(index % COLOURS) + 1}`),
      dash: DASHES[Math.floor(index / COLOURS) % DASHES.length],
      width: 1.5,
      spanGaps: true,
      points: { show: this.times.length < 3 },
      value: (_chart, value) => (value === null ? "–" : `${value}`),
    }));
    return {
      data: [this.times, ...this.lines.map(([, own]) => own)],
      series,
      said: this.dataset.sayAt,
      scales: { x: { time: true, range: () => [first - 900, last + 900] }, y: { range: () => [low, high * 1.05] } },
      axes: [
        { values: (_chart, marks) => marks.map(mark), incrs: (long ? [24, 48] : [0.25, 1, 3, 6, 12]).map((hours) => hours * 3600) },
        { size: high < 1000 ? 40 : 60 },
      ],
    };
  }
}

customElements.define("line-chart", LineChart);
