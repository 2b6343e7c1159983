// The fleet map: every node a tile, every GPU a cell, in groups by pool, rack, leaf switch or NVLink domain.
//
// One canvas as large as the view draws what is in view of a fleet of any size. State is told by colour, by a sign on
// the tile and, for the one under the pointer or the keys, in words. The same is on the page as a table. The grouping,
// the filter and the zoom are in the address.

import { Painter } from "./map_paint.js";
import { marks, Places } from "./map_places.js";

const ZOOMS = [0, 3, 4, 7, 9, 12]; // pixels of a GPU's side; 0: a node is one mark
const HIGH = 0.72; // of the window, before the map scrolls by itself
const COARSE = 9; // pixels of a GPU from which a finger meets the node that it means
const SLICE = 4; // milliseconds of a frame in which an answer is read

class FleetMap extends HTMLElement {
  connectedCallback() {
    this.said = document.getElementById("map-said");
    this.controls = document.getElementById("map-controls");
    this.twin = document.getElementById("map-twin");
    this.by = this.controls.elements.by.value;
    this.states = new Set(this.dataset.state.split(",").filter(Boolean));
    this.zoomed = this.dataset.zoom === "" ? null : Number(this.dataset.zoom);
    this.build();
    this.places = new Places();
    this.painter = new Painter(this, this.canvas);
    this.at = -1;
    this.listen();
    this.fetch();
  }

  build() {
    const make = (tag, name, parent) => {
      const made = document.createElement(tag);
      made.className = name;
      parent.append(made);
      return made;
    };
    this.view = make("div", "map-view", this);
    this.space = make("div", "map-space", this.view);
    this.canvas = make("canvas", "", this.space);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", this.dataset.sayMap);
    this.canvas.setAttribute("aria-describedby", "map-said");
    this.ring = make("div", "map-ring", this.space);
    this.tip = make("div", "map-tip", this.space);
    this.tip.setAttribute("aria-hidden", "true");
    this.ring.hidden = this.tip.hidden = true;
  }

  listen() {
    new ResizeObserver(() => this.layout()).observe(this);
    document.addEventListener("theme", () => this.repaint());
    for (const topic of ["node", "incident", "rescue", "resync"]) {
      document.body.addEventListener(`live:${topic}`, () => this.soon());
    }
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.point(-1));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.point(this.at < 0 ? this.next(-1, 1) : this.at, true));
    this.canvas.addEventListener("blur", () => this.point(-1));
    this.controls.addEventListener("submit", (event) => event.preventDefault());
    this.controls.elements.by.addEventListener("change", () => this.regroup());
    this.controls.elements.find.addEventListener("input", () => this.refilter());
    for (const button of this.controls.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.zoom(button.dataset.zoom));
    }
    this.twin.addEventListener("toggle", () => this.refill());
  }

  // At once, then at most once a second; the last signal is never lost.
  soon() {
    this.due = true;
    if (this.timer) return;
    this.fetch();
    this.timer = setInterval(() => {
      if (this.due) return this.fetch();
      clearInterval(this.timer);
      this.timer = 0;
    }, 1000);
  }

  async fetch() {
    this.due = false;
    const { by } = this;
    const answer = await fetch(`${this.dataset.src}?by=${by}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) return;
    const text = await answer.text();
    if (by === this.by && text !== this.text) this.take(text);
  }

  // Reads an answer, a slice in each frame; a newer answer ends this one.
  take(text) {
    this.text = text;
    this.reading = this.read(text);
    this.step ??= requestAnimationFrame(() => this.work());
  }

  work() {
    this.step = null;
    const end = performance.now() + SLICE;
    while (this.reading && performance.now() < end) if (this.reading.next().done) this.reading = null;
    if (this.reading) this.step = requestAnimationFrame(() => this.work());
  }

  // Each group of an answer is a line; a line as before is the group as before.
  *read(text) {
    const [head, ...lines] = text.split("\n");
    const { states } = JSON.parse(`${head}]}`);
    const known = this.lines ?? new Map();
    const read = new Map();
    for (const line of lines.slice(0, -1).filter(Boolean)) {
      read.set(line, known.get(line) ?? JSON.parse(line.replace(/,$/, "")));
      yield;
    }
    const groups = [...read.values()];
    const clusters = new Set(groups.map((group) => group.cluster)).size;
    yield;
    [this.lines, this.data, this.clusters] = [read, { states, groups }, clusters];
    this.healthy = states.findIndex((state) => state.name === "healthy");
    const moved = this.places.take(groups);
    if (moved || !this.places.boxes) this.layout();
    else this.places.fill();
    yield;
    this.count();
    this.legend();
    this.draw();
    yield;
    this.stay();
  }

  regroup() {
    this.by = this.controls.elements.by.value;
    this.places.forget();
    this.at = -1;
    this.text = "";
    this.lines = this.reading = null;
    this.view.scrollTop = 0;
    this.remember();
    this.refill();
    this.fetch();
  }

  refilter() {
    this.remember();
    this.refill();
    this.count();
    this.draw();
  }

  // The table shows the same grouping and filter; it is read while it is open.
  refill() {
    if (this.twin.open) htmx.trigger(this.twin.querySelector("[hx-get]"), "refill");
  }

  remember() {
    const address = new URL(location.href);
    const put = (name, value) => (value ? address.searchParams.set(name, value) : address.searchParams.delete(name));
    put("by", this.by === "pool" ? "" : this.by);
    put("state", [...this.states].join());
    put("find", this.controls.elements.find.value.trim());
    put("zoom", this.zoomed === null ? "" : String(this.zoomed));
    this.controls.elements.state.value = [...this.states].join();
    history.replaceState(history.state, "", address);
  }

  // How many nodes the filter keeps, and that no label names the groups.
  count() {
    const find = this.controls.elements.find.value.trim().toLowerCase();
    const names = this.data.states.map((state) => !this.states.size || this.states.has(state.name));
    this.wanted = find
      ? (tile) => tile.state >= 0 && names[tile.state] && tile.lower.includes(find)
      : (tile) => tile.state >= 0 && names[tile.state];
    let number = 0;
    if (find || this.states.size) for (const tile of this.places.tiles) number += this.wanted(tile);
    const total = this.data.groups.reduce((sum, group) => sum + group.nodes.length, 0);
    const said = this.dataset.sayMatch.replace("{n}", number).replace("{total}", total);
    document.getElementById("map-match").textContent = find || this.states.size ? said : "";
    document.getElementById("map-unlabelled").hidden = !total || this.data.groups.some((group) => group.name);
  }

  // The states that the fleet has, each a button that keeps only its nodes bright.
  legend() {
    const found = this.data.states.map(() => 0);
    for (const group of this.data.groups) for (const node of group.nodes) found[node[1]] += 1;
    const box = document.getElementById("map-legend");
    const shown = JSON.stringify([found, [...this.states]]);
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = box.contains(document.activeElement) ? document.activeElement.dataset.state : "";
    box.replaceChildren(
      ...this.data.states
        .map((state, index) => [state, found[index]])
        .filter(([state, count]) => count || this.states.has(state.name))
        .map(([state, count]) => {
          const item = document.createElement("li");
          const button = document.createElement("button");
          const sign = document.createElement("i");
          button.type = "button";
          button.className = `tone-${state.tone}`;
          button.dataset.state = state.name;
          button.setAttribute("aria-pressed", this.states.has(state.name));
          sign.textContent = state.sign;
          button.append(sign, `${state.label} ${count}`);
          button.addEventListener("click", () => this.toggle(state.name));
          item.append(button);
          return item;
        }),
    );
    if (focused) box.querySelector(`[data-state="${focused}"]`)?.focus();
  }

  toggle(state) {
    if (!this.states.delete(state)) this.states.add(state);
    this.legend();
    this.refilter();
  }

  cell() {
    if (this.zoomed !== null) return this.zoomed;
    const total = this.data.groups.reduce((sum, group) => sum + group.nodes.length, 0);
    return total <= 60 ? 9 : total <= 320 ? 7 : total <= 1500 ? 4 : total <= 4000 ? 3 : 0;
  }

  zoom(by) {
    if (!this.places.boxes) return;
    const now = ZOOMS.indexOf(this.cell());
    const next = Math.max(0, Math.min(ZOOMS.length - 1, now + (by === "in" ? 1 : -1)));
    this.zoomed = by === "fit" ? null : ZOOMS[next];
    const middle = this.view.scrollTop + this.view.clientHeight / 2;
    const box = this.places.tiles[this.at] ? null : this.places.between(middle, this.places.height)[0];
    this.layout();
    this.remember();
    const at = this.places.tiles[this.at] ?? (box && this.places.boxes.find((one) => one.key === box.key));
    if (at) this.view.scrollTop = at.y - this.view.clientHeight / 2;
    this.draw();
  }

  layout() {
    if (!this.data || !this.clientWidth) return;
    this.places.lay(this.clientWidth - 4, this.cell());
    this.space.style.height = `${this.places.height}px`;
    this.view.style.height = `${Math.min(this.places.height, Math.max(240, innerHeight * HIGH))}px`;
    this.count();
    this.repaint();
    this.point(this.at);
  }

  repaint() {
    this.painter.forget();
    this.draw();
  }

  // In the next frame; several changes are one.
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  paint() {
    if (!this.places.boxes || !this.clientWidth) return;
    this.painter.draw(this.places, this.data.states, {
      top: this.view.scrollTop,
      width: this.clientWidth,
      height: this.view.clientHeight,
      wanted: this.wanted,
      title: (box) => this.title(box),
    });
  }

  title(box) {
    return (box.title ??= this.titled(box));
  }

  titled(box) {
    const { cluster, name, nodes } = box.group;
    const place = name || (this.by === "pool" ? this.dataset.sayNopool : this.dataset.sayNone);
    const fine = nodes.filter(([, state]) => state === this.healthy).length;
    const said = this.dataset.sayHealthy.replace("{n}", fine).replace("{total}", nodes.length);
    return [this.clusters > 1 ? `${cluster} / ${place}` : place, said];
  }

  // The tile that was pointed at stays so; one that got the focus before the data came, or that changed, is said.
  stay() {
    if (document.activeElement !== this.canvas) return this.point(this.at);
    const tile = this.places.tiles[this.at];
    this.point(tile ? this.at : this.next(-1, 1), !tile || this.words(tile) !== this.saidWords);
  }

  words(tile) {
    const all = marks(tile);
    const bad = all.split("x").length - 1;
    const gpus = (bad ? this.dataset.sayBad : this.dataset.sayGpus).replace("{n}", all.length).replace("{bad}", bad);
    return `${tile.name}: ${this.data.states[tile.state].label}, ${gpus}`;
  }

  point(index, aloud = false) {
    const before = this.places.tiles[this.at];
    const tile = this.places.tiles[index];
    this.at = tile && tile.state >= 0 ? index : -1;
    this.tip.hidden = this.ring.hidden = this.at < 0;
    this.canvas.style.cursor = this.at < 0 ? "" : "pointer";
    if (this.at < 0) return;
    const words = this.words(tile);
    const [place] = this.title(tile.box);
    this.tip.textContent = `${words} · ${place}`;
    this.ring.style.transform = `translate(${tile.x - 2}px, ${tile.y - 2}px)`;
    this.ring.style.width = `${tile.w + 4}px`;
    this.ring.style.height = `${tile.h + 4}px`;
    if (aloud) {
      this.saidWords = words;
      this.said.textContent = before?.box === tile.box ? words : `${words} · ${place}`;
      this.reveal(tile);
    }
    const left = Math.max(0, Math.min(tile.x, this.clientWidth - this.tip.offsetWidth - 4));
    const below = tile.y + tile.h + 6;
    const above = below + this.tip.offsetHeight > this.view.scrollTop + this.view.clientHeight;
    this.tip.style.transform = `translate(${left}px, ${above ? tile.y - this.tip.offsetHeight - 6 : below}px)`;
  }

  reveal(tile) {
    const { scrollTop, clientHeight } = this.view;
    if (tile.y - 26 < scrollTop) this.view.scrollTop = tile.y - 26;
    else if (tile.y + tile.h + 32 > scrollTop + clientHeight) this.view.scrollTop = tile.y + tile.h + 32 - clientHeight;
  }

  index(event) {
    return this.places.boxes ? this.places.at(event.offsetX, event.offsetY + this.view.scrollTop) : -1;
  }

  hover(event) {
    const index = this.index(event);
    if (event.pointerType !== "touch" && index !== this.at) this.point(index);
  }

  // A finger first shows which node it met, where tiles are small.
  click(event) {
    const index = this.index(event);
    const shown = index === this.at;
    this.point(index, true);
    if (shown || event.pointerType !== "touch" || this.places.cell >= COARSE) this.open();
  }

  key(event) {
    const here = this.places.tiles[Math.max(0, this.at)];
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowRight: () => this.next(this.at, 1),
      ArrowLeft: () => this.next(this.at, -1),
      ArrowDown: () => this.places.beyond(here, 1, this.wanted),
      ArrowUp: () => this.places.beyond(here, -1, this.wanted),
      PageDown: () => this.next(here.box.from + here.box.count - 1, 1),
      PageUp: () => this.groupBefore(here.box),
      Home: () => this.next(-1, 1),
      End: () => this.next(this.places.tiles.length, -1),
    };
    const zooms = { "+": "in", "=": "in", "-": "out", 0: "fit" };
    if (event.key === "Enter") return this.open();
    if (!moves[event.key] && !zooms[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    if (zooms[event.key]) return this.zoom(zooms[event.key]);
    const index = moves[event.key]();
    if (index >= 0) this.point(index, true);
  }

  // The next wanted tile from an index; the same if there is none.
  next(index, by) {
    const { tiles } = this.places;
    for (let at = index + by; at >= 0 && at < tiles.length; at += by) if (this.wanted(tiles[at])) return at;
    return index >= 0 && index < tiles.length ? index : -1;
  }

  // The first wanted tile of the group before.
  groupBefore(box) {
    const last = this.next(box.from, -1);
    const before = this.places.tiles[last].box;
    return this.next(before.from - 1, 1);
  }

  open() {
    const tile = this.places.tiles[this.at];
    if (!tile) return;
    const part = encodeURIComponent;
    location.href = this.dataset.node.replace("CLUSTER", part(tile.box.group.cluster)).replace("NODE", part(tile.name));
  }
}

customElements.define("fleet-map", FleetMap);
