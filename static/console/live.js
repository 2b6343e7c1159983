// The page's live link: the socket says which records changed, regions fetch themselves again.
//
// A signal {t: topic, id} becomes an event `live:<topic>` on the body, and a "refresh" of every region whose
// data-topics names the topic: at once, then at most once a second, the last signal never lost (htmx's own throttle
// drops it). Without a socket: polling. After a gap, and every half minute: everything (live:resync).
// A server that hangs closes no socket: "Live" means that the socket was heard and that no refresh has failed since.

const GATHER = 1000;
const HELD = 3000;
const RESYNC = 30_000;
const POLL = 5_000;
const POLL_AFTER = 10_000;
const SILENCE = 12_000; // the server sends a beat every 5 s
const CONNECTS = 10_000;
const SIGNED_OUT = 4401;
const LEAVES = 10_000;

const body = document.body;
const dot = document.getElementById("live-dot");
const word = dot?.querySelector(".live-word");
const since = dot?.querySelector(".live-since");

let fetchedAt = Date.now();
let lastMessageAt = Date.now();
let failed = false; // the last refresh
let lostAt = 0;
let wait = 500;
let dirty = new Set();
let timer = 0;
let polling = 0;

function show(state) {
  if (body.dataset.live === state) return;
  body.dataset.live = state;
  word.textContent = body.dataset[`say${state[0].toUpperCase()}${state.slice(1)}`];
}

function signal(topic, id = 0) {
  body.dispatchEvent(new CustomEvent(`live:${topic}`, { detail: { id } }));
  dirty.add(topic);
  if (timer) return;
  flush();
  timer = setTimeout(again, GATHER);
}

function again() {
  timer = 0;
  if (!dirty.size) return;
  flush();
  timer = setTimeout(again, GATHER);
}

function flush() {
  if (pressed) return; // tried again once the press is over
  const topics = dirty;
  dirty = new Set();
  if (document.hidden && !topics.has("resync")) {
    missed = true;
    return;
  }
  // A page with a region that lives gets the frame with its answer.
  const carried = document.querySelector("#live[data-topics]")?.dataset.topics.trim();
  for (const region of document.querySelectorAll("[data-topics]")) {
    if (region.id === "frame-now" && carried) continue;
    const wanted = region.dataset.topics.split(" ").filter(Boolean);
    if (wanted.length && region.id === "live") wanted.push("cluster"); // the mode in the frame comes with its answer
    if (wanted.length && (topics.has("resync") || wanted.some((topic) => topics.has(topic)))) {
      htmx.trigger(region, "refresh");
    }
  }
}

// What is being pressed stays where it is until the press is over: a click on a button that was replaced between
// "down" and "up" is nobody's click. What came meanwhile is fetched afterwards. Not every press is seen to end
// (a native menu, a drag out of the window): none lasts longer than HELD.
let pressed = 0;
addEventListener("pointerdown", () => {
  clearTimeout(pressed);
  pressed = setTimeout(released, HELD);
});
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(released)); // after its click
function released() {
  clearTimeout(pressed);
  pressed = 0;
  if (dirty.size && !timer) again();
}
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { topics } = detail.target.dataset;
  if (!pressed || !topics || detail.elt !== detail.target) return;
  detail.shouldSwap = false;
  for (const topic of topics.split(" ")) dirty.add(topic);
});

let missed = false;
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !missed) return;
  missed = false;
  signal("resync");
});

// A person who signs out is on the way to the answer, perhaps at the identity provider: a reload would cancel it. A
// download also starts to leave and stays, so the page is patient for LEAVES only.
let leavingUntil = 0;
addEventListener("beforeunload", () => (leavingUntil = Date.now() + LEAVES));

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}${body.dataset.ws}`);
  const patience = setTimeout(() => socket.readyState === WebSocket.CONNECTING && socket.close(), CONNECTS);
  const silence = setInterval(() => Date.now() - lastMessageAt > SILENCE && lost(), 1000);
  let over = false;
  socket.onopen = () => {
    clearTimeout(patience);
    lastMessageAt = Date.now();
    wait = 500;
    show(failed ? "lost" : "live");
    clearInterval(polling);
    polling = 0;
    lostAt = 0; // the server's first word is a resync
  };
  socket.onmessage = (event) => {
    lastMessageAt = Date.now();
    const { t, id } = JSON.parse(event.data);
    if (t !== "beat") signal(t, id);
  };
  socket.onclose = (event) => {
    if (event.code === SIGNED_OUT) setTimeout(() => location.reload(), Math.max(0, leavingUntil - Date.now()));
    else lost();
  };
  function lost() {
    if (over) return; // a hung server ends the closing handshake late or never
    over = true;
    clearTimeout(patience);
    clearInterval(silence);
    socket.onopen = socket.onmessage = null;
    socket.close();
    lastMessageAt = Date.now(); // the next socket has its own time to answer
    lostAt ||= Date.now();
    show(polling && !failed ? "polling" : "lost");
    if (!polling) setTimeout(poll, POLL_AFTER);
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, 30_000);
  }
}

function poll() {
  if (!lostAt || polling) return;
  polling = setInterval(() => signal("resync"), POLL);
}

// A refresh that failed makes the page stale, whatever the socket says.
function refreshed(well) {
  failed = !well;
  if (well) fetchedAt = Date.now();
  if (failed) show("lost");
  else if (lostAt) show(polling ? "polling" : "lost");
  else show("live");
}

function tick() {
  const ago = Math.max(0, Math.round((Date.now() - fetchedAt) / 1000));
  const text = new Intl.RelativeTimeFormat(document.documentElement.lang, { style: "narrow", numeric: "always" });
  since.textContent = body.dataset.sayUpdated.replace("{ago}", text.format(-ago, "second"));
  body.classList.toggle("stale", (lostAt > 0 || failed) && ago > 20);
}

if (dot && body.dataset.live) {
  connect();
  setInterval(tick, 1000);
  setInterval(() => lostAt || document.hidden || signal("resync"), RESYNC);
  document.addEventListener("htmx:afterRequest", (event) => {
    if (["live", "frame-now"].includes(event.detail.target?.id) && event.detail.elt === event.detail.target) {
      refreshed(event.detail.successful);
    }
  });
}

// What a reader opened or shut stays so when its region is fetched again.
const chosen = new Map();
document.addEventListener("click", (event) => {
  const details = event.target.closest("#live summary")?.parentElement;
  if (details?.id) chosen.set(details.id, !details.open);
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id !== "live") return;
  for (const [id, open] of chosen) {
    const details = document.getElementById(id);
    if (details) details.open = open;
  }
});
