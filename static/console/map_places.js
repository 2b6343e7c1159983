// Where each node of the fleet map is.
//
// All nodes have slots of one size, and all groups of a map boxes of one width. So a node that changes its state or
// loses GPUs moves nobody. While the page is open, nodes that leave keep an empty slot, and new ones come last.

export const GAP = 3;
const TITLE = 22;
const NAME = 13; // a node's name, where the zoom has room for one
const BETWEEN = 14; // groups
const NARROWEST = 130; // a box has room for a title
export const INSET = 2; // tile's inner margin
export const NAMED = 12; // pixels of a GPU from which nodes have their names
const LARGEST = 16; // GPUs of a node that has its own slot size

// The columns and rows of a node's GPUs.
export function grid(gpus) {
  const wide = Math.max(2, Math.min(8, Math.ceil((gpus || 8) / 2)));
  return [wide, Math.max(1, Math.ceil((gpus || 8) / wide))];
}

// A character for each GPU of a tile: x for one with a fault.
export const marks = (tile) => (typeof tile.gpus === "string" ? tile.gpus : ".".repeat(tile.gpus));

const power = (number) => 2 ** Math.ceil(Math.log2(Math.max(1, number)));

export class Places {
  constructor() {
    this.forget();
  }

  forget() {
    this.gpus = 1; // of the largest node so far
    this.members = 1; // of the largest group so far
    this.order = new Map(); // group -> the names that had a slot, in order
    this.boxes = null; // until they are laid out
    this.tiles = [];
  }

  // Takes the groups of an answer; returns whether the layout has to be made again.
  take(groups) {
    const { gpus, members } = this;
    let added = false;
    let most = 1;
    this.found = new Map();
    for (const group of groups) {
      const key = JSON.stringify([group.cluster, group.name]);
      let names = this.order.get(key);
      if (!names) this.order.set(key, (names = []));
      for (const node of group.nodes) most = Math.max(most, typeof node[2] === "string" ? node[2].length : node[2]);
      const same = names.length === group.nodes.length && group.nodes.every((node, index) => node[0] === names[index]);
      if (same) {
        this.found.set(key, { group, nodes: group.nodes });
        continue;
      }
      const known = new Set(names);
      for (const [name] of group.nodes) if (!known.has(name)) added = Boolean(names.push(name));
      const nodes = new Map(group.nodes.map((node) => [node[0], node]));
      this.found.set(key, { group, nodes: names.map((name) => nodes.get(name)) });
    }
    this.gpus = Math.max(gpus, power(Math.min(most, LARGEST)));
    for (const names of this.order.values()) this.members = Math.max(this.members, power(names.length));
    return added || gpus !== this.gpus || members !== this.members;
  }

  // Makes boxes {key, x, y, w, h, top, columns, from, count} and tiles; `cell` is the side of a GPU, 0 for one mark.
  lay(width, cell) {
    const [wide, high] = grid(this.gpus);
    this.cell = cell;
    this.slotW = cell ? wide * (cell + 1) - 1 + INSET * 2 : 7;
    this.tileH = cell ? high * (cell + 1) - 1 + INSET * 2 : 5;
    this.slotH = this.tileH + (cell >= NAMED ? NAME : 0);
    this.gap = cell ? GAP : 2;
    const fit = Math.max(1, Math.floor((width + this.gap) / (this.slotW + this.gap)));
    const least = Math.ceil((NARROWEST + this.gap) / (this.slotW + this.gap));
    let columns = Math.max(least, Math.ceil(Math.sqrt(this.members * 2)));
    if (columns * 2 > fit) columns = fit;
    const w = columns * (this.slotW + this.gap) - this.gap;
    const beside = Math.max(1, Math.floor((width + BETWEEN) / (w + BETWEEN)));
    this.boxes = [];
    this.tiles = [];
    let y = 0;
    let tallest = 0;
    for (const [key, names] of this.order) {
      const column = this.boxes.length % beside;
      if (!column && this.boxes.length) {
        y += tallest + BETWEEN;
        tallest = 0;
      }
      const h = TITLE + Math.ceil(names.length / columns) * (this.slotH + this.gap) - this.gap;
      const box = { key, x: column * (w + BETWEEN), y, w, h, top: y + TITLE, columns, from: this.tiles.length, count: names.length };
      names.forEach((name, index) => {
        const x = box.x + (index % columns) * (this.slotW + this.gap);
        this.tiles.push({ name, lower: name.toLowerCase(), box, x, y: box.top + Math.floor(index / columns) * (this.slotH + this.gap), w: this.slotW, h: this.tileH });
      });
      tallest = Math.max(tallest, h);
      this.boxes.push(box);
    }
    this.beside = beside;
    this.height = y + tallest + 4;
    this.fill();
  }

  // Gives each tile its node of now; a slot whose node has left has none.
  fill() {
    for (const box of this.boxes) {
      const here = this.found.get(box.key);
      box.group = here?.group ?? { cluster: box.group.cluster, name: box.group.name, nodes: [] };
      box.title = null;
      for (let index = 0; index < box.count; index += 1) {
        const tile = this.tiles[box.from + index];
        const node = here?.nodes[index];
        tile.state = node ? node[1] : -1;
        tile.gpus = node ? node[2] : 0; // their number, or a character each
      }
    }
  }

  // The boxes of which a part is between two heights.
  between(from, to) {
    return this.boxes.filter((box) => box.y <= to && box.y + box.h >= from);
  }

  // The index of the tile at a point; -1 for none.
  at(x, y) {
    const box = this.boxes.find((one) => x >= one.x && x <= one.x + one.w && y >= one.top && y <= one.y + one.h);
    if (!box) return -1;
    const column = Math.floor((x - box.x) / (this.slotW + this.gap));
    const index = Math.floor((y - box.top) / (this.slotH + this.gap)) * box.columns + column;
    return column < box.columns && index < box.count ? box.from + index : -1;
  }

  // The nearest wanted tile in the next row down (or up).
  beyond(here, by, wanted) {
    let best = -1;
    for (let index = 0; index < this.tiles.length; index += 1) {
      const tile = this.tiles[index];
      if ((by > 0 ? tile.y <= here.y : tile.y >= here.y) || !wanted(tile)) continue;
      const found = this.tiles[best];
      const nearer = !found || Math.abs(tile.y - here.y) - Math.abs(found.y - here.y);
      if (nearer === true || nearer < 0 || (nearer === 0 && Math.abs(tile.x - here.x) < Math.abs(found.x - here.x))) best = index;
    }
    return best;
  }
}
