// Times in the reader's zone: <time data-time="ago|until|at|day" datetime="...">; the absolute time is shown on hover.
// A browser whose time zones are older than the server's shows its own time. Sentences write theirs in UTC (``reasons.moment``), for messages and REST too: on a page each becomes such a time.

const root = document.documentElement;
const language = root.lang;
const zone = known(root.dataset.zone);
const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
const full = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "long", timeZone: zone });
const clock = new Intl.DateTimeFormat(language, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZone: zone,
});
const day = new Intl.DateTimeFormat(language, { month: "short", day: "numeric", timeZone: zone });
const year = new Intl.DateTimeFormat(language, { year: "numeric", month: "short", day: "numeric", timeZone: zone });

const STAMP = /(?<!\d)(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC(?!\w)/;
const VERBATIM = "time, pre, code, textarea, .mono, [contenteditable]"; // logs, YAML, evidence: as they were written

function known(name) {
  try {
    new Intl.DateTimeFormat(language, { timeZone: name || undefined });
    return name || undefined;
  } catch {
    return undefined;
  }
}

// Forms ask for times in this zone too: the server learns it for those who chose none.
const seen = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (seen) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `kcover_zone=${seen}; path=/; max-age=31536000; samesite=lax${secure}`;
}

const HALF_A_YEAR = 183 * 86400;
const UNITS = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

// A unit is used from so many of it on: a countdown of two hours says its minutes.
function ago(seconds, from = 1) {
  if (Math.abs(seconds) < 1) return relative.format(0, "second");
  const [unit, size] = UNITS.find(([, size]) => size === 1 || Math.abs(seconds) >= size * from);
  return relative.format(Math.trunc(seconds / size), unit);
}

function draw(one) {
  const moment = new Date(one.dateTime);
  if (Number.isNaN(moment.valueOf())) return;
  one.title ||= full.format(moment);
  const seconds = (moment - Date.now()) / 1000;
  let text;
  if (one.dataset.time === "at" || one.dataset.time === "said") {
    const far = Math.abs(seconds) > HALF_A_YEAR; // without its year a date would be taken for one of this year
    const today = year.format(moment) === year.format(new Date());
    const said = one.dataset.time === "said" ? ` ${clock.format(moment)}` : ""; // a sentence keeps its time of day
    if (today) text = clock.format(moment);
    else text = far ? year.format(moment) + said : `${day.format(moment)} ${clock.format(moment)}`;
  } else if (one.dataset.time === "day") {
    text = day.format(moment);
  } else if (one.dataset.time === "until") {
    text = ago(Math.max(0, seconds), 3); // a due date that has passed is due now, never overdue by a clock's error
  } else {
    text = ago(Math.min(0, seconds));
  }
  if (one.textContent !== text) one.textContent = text;
}

function mark(within) {
  const texts = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) if (STAMP.test(texts.currentNode.data)) found.push(texts.currentNode);
  for (let text of found.filter((one) => !one.parentElement.closest(VERBATIM))) {
    for (let match; (match = STAMP.exec(text.data)); ) {
      const stamp = text.splitText(match.index);
      text = stamp.splitText(match[0].length);
      const time = document.createElement("time");
      time.dateTime = `${match[1]}T${match[2]}Z`;
      time.dataset.time = "said";
      stamp.replaceWith(time);
    }
  }
}

function drawAll(within = document) {
  for (const one of within.querySelectorAll("time[data-time]")) draw(one);
}

function show(within) {
  mark(within);
  drawAll(within);
}

show(document.body);
setInterval(() => document.hidden || drawAll(), 1000);
for (const name of ["htmx:afterSwap", "htmx:oobAfterSwap"]) {
  document.addEventListener(name, (event) => show(event.detail.target));
}
document.addEventListener("visibilitychange", () => document.hidden || drawAll());
