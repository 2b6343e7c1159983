// The fleet map: every node a tile, every GPU a cell, drawn on one canvas from packed JSON.
//
// State is told by colour, by a sign on the tile and, for the one under the pointer or the keys, in words. The same is
// on the page as a table.

const GAP = 3;
const SIDE = 2; // tile's inner margin

class FleetMap extends HTMLElement {
  connectedCallback() {
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", this.dataset.sayMap);
    this.canvas.setAttribute("aria-describedby", "map-said");
    this.said = document.getElementById("map-said");
    this.append(this.canvas);
    this.tip = document.createElement("div");
    this.tip.className = "map-tip";
    this.tip.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
    this.append(this.tip);
    this.at = -1;
    this.tiles = [];
    new ResizeObserver(() => this.layout()).observe(this);
    document.addEventListener("theme", () => requestAnimationFrame(() => this.draw()));
    for (const topic of ["node", "incident", "rescue", "resync"]) {
      document.body.addEventListener(`live:${topic}`, () => this.soon());
    }
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.point(-1));
    this.canvas.addEventListener("click", () => this.open());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.point(this.at < 0 ? 0 : this.at, true));
    this.canvas.addEventListener("blur", () => this.point(-1));
    this.fetch();
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
    const answer = await fetch(this.dataset.src, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) return;
    const text = await answer.text();
    if (text === this.text) return;
    this.text = text;
    this.data = JSON.parse(text);
    this.legend();
    this.layout();
  }

  legend() {
    const found = new Map();
    for (const group of this.data.groups) for (const [, state] of group.nodes) found.set(state, (found.get(state) ?? 0) + 1);
    document.getElementById("map-legend").replaceChildren(
      ...this.data.states
        .map((state, index) => [state, found.get(index)])
        .filter(([, count]) => count)
        .map(([state, count]) => {
          const item = document.createElement("li");
          item.className = `tone-${state.tone}`;
          const sign = document.createElement("i");
          sign.textContent = state.sign;
          item.append(sign, `${state.label} ${count}`);
          return item;
        }),
    );
  }

  layout() {
    if (!this.data || !this.clientWidth) return;
    const total = this.data.groups.reduce((sum, group) => sum + group.nodes.length, 0);
    this.cell = total <= 60 ? 9 : total <= 320 ? 7 : total <= 1500 ? 4 : 3;
    const here = this.tiles[this.at];
    this.tiles = [];
    const healthy = this.data.states.findIndex((state) => state.name === "healthy");
    this.titles = [];
    let y = 0;
    for (const group of this.data.groups) {
      const fine = group.nodes.filter(([, state]) => state === healthy).length;
      const said = this.dataset.sayHealthy.replace("{n}", fine).replace("{total}", group.nodes.length);
      this.titles.push([`${group.cluster} / ${group.pool || this.dataset.sayNopool}`, said, y]);
      y += 24;
      let x = 0;
      let row = 0;
      for (const [name, state, gpus] of group.nodes) {
        const marks = typeof gpus === "string" ? gpus : ".".repeat(gpus);
        const wide = Math.max(2, Math.min(8, Math.ceil((marks.length || 8) / 2)));
        const high = Math.max(1, Math.ceil((marks.length || 8) / wide));
        const w = wide * (this.cell + 1) - 1 + SIDE * 2;
        const h = high * (this.cell + 1) - 1 + SIDE * 2;
        if (x + w > this.clientWidth && x > 0) {
          x = 0;
          y += row + GAP;
          row = 0;
        }
        this.tiles.push({ name, state, marks, wide, cluster: group.cluster, x, y, w, h });
        x += w + GAP;
        row = Math.max(row, h);
      }
      y += row + 14;
    }
    this.height = y;
    this.stay(here);
  }

  // The tile that was pointed at stays so when the order changes; one that got the focus before the data came is said.
  stay(here) {
    const found = here ? this.tiles.findIndex((tile) => tile.name === here.name && tile.cluster === here.cluster) : -1;
    if (document.activeElement !== this.canvas) return this.point(found);
    this.point(Math.max(found, 0), found < 0 || this.words(this.tiles[found]) !== this.said.textContent);
  }

  draw() {
    if (!this.height) return;
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    canvas.width = this.clientWidth * scale;
    canvas.height = this.height * scale;
    canvas.style.height = `${this.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(this);
    const ink = (name) => style.getPropertyValue(name).trim();
    const tones = Object.fromEntries(
      ["bad", "ask", "heal", "hold", "ok", "off"].map((tone) => [
        tone,
        { line: ink(`--map-${tone}`), fill: ink(`--map-${tone}-fill`) },
      ]),
    );
    pen.font = `600 12px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    for (const [name, said, y] of this.titles) {
      pen.fillStyle = ink("--k-ink");
      pen.textAlign = "left";
      pen.font = `600 12px ${style.fontFamily}`;
      pen.fillText(name, 0, y + 11);
      const width = pen.measureText(name).width;
      pen.font = `400 12px ${style.fontFamily}`;
      pen.fillStyle = ink("--k-quiet");
      pen.fillText(said, width + 10, y + 11);
    }
    for (const tile of this.tiles) this.tile(pen, tile, tones, ink);
    const chosen = this.tiles[this.at];
    if (chosen) {
      pen.strokeStyle = ink("--k-ink");
      pen.lineWidth = 2;
      pen.strokeRect(chosen.x - 1, chosen.y - 1, chosen.w + 2, chosen.h + 2);
    }
  }

  tile(pen, tile, tones, ink) {
    const look = this.data.states[tile.state];
    const tone = tones[look.tone];
    const calm = look.name === "healthy";
    pen.fillStyle = tone.fill;
    pen.beginPath();
    pen.roundRect(tile.x, tile.y, tile.w, tile.h, 2);
    pen.fill();
    if (!calm) {
      pen.strokeStyle = tone.line;
      pen.lineWidth = 1.5;
      pen.stroke();
    }
    const step = this.cell + 1;
    for (let gpu = 0; gpu < tile.marks.length; gpu += 1) {
      const x = tile.x + SIDE + (gpu % tile.wide) * step;
      const y = tile.y + SIDE + Math.floor(gpu / tile.wide) * step;
      const bad = tile.marks[gpu] === "x";
      pen.globalAlpha = calm || bad ? 1 : 0.45;
      pen.fillStyle = bad ? tones.bad.line : tone.line;
      pen.fillRect(x, y, this.cell, this.cell);
      pen.globalAlpha = 1;
      if (bad && this.cell > 3) {
        pen.strokeStyle = ink("--k-paper");
        pen.lineWidth = 1.2;
        pen.beginPath();
        pen.moveTo(x + 1, y + 1);
        pen.lineTo(x + this.cell - 1, y + this.cell - 1);
        pen.moveTo(x + this.cell - 1, y + 1);
        pen.lineTo(x + 1, y + this.cell - 1);
        pen.stroke();
      }
    }
    if (look.sign && this.cell >= 4) {
      const size = Math.min(14, tile.h - 3);
      pen.font = `700 ${size}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.lineWidth = 3;
      pen.strokeStyle = ink("--k-paper");
      pen.fillStyle = tone.line;
      pen.strokeText(look.sign, tile.x + tile.w / 2, tile.y + tile.h / 2 + 0.5);
      pen.fillText(look.sign, tile.x + tile.w / 2, tile.y + tile.h / 2 + 0.5);
    }
  }

  words(tile) {
    const bad = tile.marks.split("x").length - 1;
    const gpus = (bad ? this.dataset.sayBad : this.dataset.sayGpus).replace("{n}", tile.marks.length).replace("{bad}", bad);
    return `${tile.name}: ${this.data.states[tile.state].label}, ${gpus}`;
  }

  point(index, aloud = false) {
    this.at = index;
    const tile = this.tiles[index];
    this.tip.hidden = !tile;
    this.canvas.style.cursor = tile ? "pointer" : "";
    if (tile) {
      const words = this.words(tile);
      this.tip.textContent = words;
      const left = Math.max(0, Math.min(tile.x, this.clientWidth - this.tip.offsetWidth));
      this.tip.style.transform = `translate(${left}px, ${tile.y + tile.h + 6}px)`;
      if (aloud) this.said.textContent = words;
    }
    this.draw();
  }

  hover(event) {
    const { offsetX: x, offsetY: y } = event;
    const index = this.tiles.findIndex((t) => x >= t.x && x <= t.x + t.w && y >= t.y && y <= t.y + t.h);
    if (index !== this.at) this.point(index);
  }

  key(event) {
    const here = this.tiles[Math.max(0, this.at)];
    if (!here) return;
    const steps = {
      ArrowRight: () => this.at + 1,
      ArrowLeft: () => this.at - 1,
      ArrowDown: () => this.beside(here, 1),
      ArrowUp: () => this.beside(here, -1),
      Home: () => 0,
      End: () => this.tiles.length - 1,
    };
    if (event.key === "Enter") return this.open();
    if (!steps[event.key]) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(this.tiles.length - 1, steps[event.key]())), true);
  }

  // The nearest tile in the next row down (or up).
  beside(here, by) {
    const rows = this.tiles.filter((tile) => (by > 0 ? tile.y > here.y : tile.y < here.y));
    if (!rows.length) return this.at;
    const y = by > 0 ? Math.min(...rows.map((tile) => tile.y)) : Math.max(...rows.map((tile) => tile.y));
    const row = rows.filter((tile) => tile.y === y);
    row.sort((one, other) => Math.abs(one.x - here.x) - Math.abs(other.x - here.x));
    return this.tiles.indexOf(row[0]);
  }

  open() {
    const tile = this.tiles[this.at];
    if (!tile) return;
    const part = encodeURIComponent;
    location.href = this.dataset.node.replace("CLUSTER", part(tile.cluster)).replace("NODE", part(tile.name));
  }
}

customElements.define("fleet-map", FleetMap);
