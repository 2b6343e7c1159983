// The wallboard fetches itself every 10 s, in the background too: nobody is there to press a key.
// Without an answer it says so at once, and looks stale after 30 s. It goes on asking until the portal answers again.

const POLL = 10_000;
const STALE = 30_000;
const RELOAD = 6 * 3600_000; // styles and scripts of an upgraded portal

const { body } = document;
const region = document.getElementById("live");
const word = document.querySelector(".live-word");
const since = document.querySelector(".wall-since");
const stale = document.querySelector(".wall-stale");
const clock = document.getElementById("clock");
const { lang, dataset } = document.documentElement;
const ago = new Intl.RelativeTimeFormat(lang, { style: "narrow", numeric: "always" });
const time = new Intl.DateTimeFormat(lang, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
  timeZone: dataset.zone || undefined,
});
const openedAt = Date.now();
let fetchedAt = Date.now();

function show(state) {
  if (body.dataset.live === state) return;
  body.dataset.live = state;
  word.textContent = state === "live" ? body.dataset.sayLive : body.dataset.sayLost;
}

function tick() {
  const seconds = Math.max(0, Math.round((Date.now() - fetchedAt) / 1000));
  since.textContent = body.dataset.sayUpdated.replace("{ago}", ago.format(-seconds, "second"));
  clock.textContent = time.format(new Date());
  const old = Date.now() - fetchedAt > STALE;
  body.classList.toggle("stale", old);
  stale.hidden = !old;
}

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.target !== region) return;
  if (!detail.successful) {
    show("lost");
    return;
  }
  fetchedAt = Date.now();
  show("live");
  if (fetchedAt - openedAt > RELOAD) location.reload();
});

tick();
setInterval(tick, 1000);
setInterval(() => htmx.trigger(region, "refresh"), POLL);
