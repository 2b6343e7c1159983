// Draws the part of the fleet map that is in view. Tiles that look alike are drawn once; their pixels are then copied,
// because a canvas takes several times as long for ten thousand shapes.

import { grid, INSET, marks, NAMED } from "./map_places.js";

const FAINT = 0.22; // nodes that the filter leaves out
const LONG = 24; // pixels that are faster to copy as a block

export class Painter {
  constructor(element, canvas) {
    this.element = element;
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.forget();
  }

  // After a change of theme, size or zoom.
  forget() {
    this.looks = []; // how tiles look, as pixels: by state and whether the filter keeps them, then by GPUs
    this.widths = new Map();
    this.colours = null;
    this.frame = null;
  }

  // Draws what is between `top` and `top + height`.
  draw(places, states, { top, width, height, wanted, title }) {
    const scale = devicePixelRatio || 1;
    const { canvas, pen } = this;
    const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
      canvas.style.height = `${height}px`;
      this.frame = null;
    }
    this.colours ??= this.inks();
    this.frame ??= new ImageData(across, down);
    this.pixels = new Uint32Array(this.frame.data.buffer).fill(0);
    const boxes = places.between(top, top + height);
    const step = places.slotH + places.gap;
    const edge = places.cell ? 1 : 0;
    for (const box of boxes) {
      const first = Math.max(0, Math.floor((top - box.top) / step)) * box.columns;
      const last = Math.min(box.count, Math.ceil((top + height - box.top) / step) * box.columns);
      for (let index = box.from + first; index < box.from + last; index += 1) {
        const tile = places.tiles[index];
        if (tile.state < 0) continue;
        const look = this.look(tile, states[tile.state], places, scale, wanted(tile));
        this.copy(look, Math.round((tile.x - edge) * scale), Math.round((tile.y - edge - top) * scale), across, down);
      }
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.putImageData(this.frame, 0, 0);
    pen.setTransform(scale, 0, 0, scale, 0, -top * scale);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    this.titles(boxes, title);
    if (places.cell >= NAMED) for (const box of boxes) this.names(box, places, top, height, wanted);
  }

  // Copies a look to a place of the frame, without what is outside.
  copy(look, x, y, across, down) {
    const { pixels } = this;
    const from = Math.max(0, -x);
    const to = Math.min(look.width, across - x);
    if (from >= to) return;
    const last = Math.min(look.height, down - y);
    for (let row = Math.max(0, -y); row < last; row += 1) {
      const at = (y + row) * across + x;
      const source = row * look.width;
      if (to - from > LONG) pixels.set(look.pixels.subarray(source + from, source + to), at + from);
      else for (let dot = from; dot < to; dot += 1) pixels[at + dot] = look.pixels[source + dot];
    }
  }

  inks() {
    const style = getComputedStyle(this.element);
    const ink = (name) => style.getPropertyValue(name).trim();
    const tones = ["bad", "ask", "heal", "hold", "ok", "off"].map((tone) => [
      tone,
      { line: ink(`--map-${tone}`), fill: ink(`--map-${tone}-fill`) },
    ]);
    return {
      tones: Object.fromEntries(tones),
      ink: ink("--k-ink"),
      quiet: ink("--k-quiet"),
      paper: ink("--k-paper"),
      font: style.fontFamily,
    };
  }

  titles(boxes, title) {
    const { pen, colours } = this;
    const shown = boxes.map((box) => [box, ...title(box)]);
    pen.font = `600 12px ${colours.font}`;
    pen.fillStyle = colours.ink;
    for (const [box, name] of shown) pen.fillText(this.short(name, box.w), box.x, box.y + 11);
    const after = shown.map(([box, name]) => Math.min(this.width(name), box.w) + 8);
    pen.font = `400 12px ${colours.font}`;
    pen.fillStyle = colours.quiet;
    shown.forEach(([box, , said], index) => {
      if (after[index] + this.width(said) <= box.w) pen.fillText(said, box.x + after[index], box.y + 11);
    });
  }

  // The width of a text in the pen's font.
  width(text) {
    const key = this.pen.font + text;
    let found = this.widths.get(key);
    if (found === undefined) this.widths.set(key, (found = this.pen.measureText(text).width));
    return found;
  }

  // A text of the pen's font that fits; names differ at their end.
  short(text, width) {
    if (this.width(text) <= width) return text;
    let from = 1;
    while (from < text.length && this.pen.measureText(`…${text.slice(from)}`).width > width) from += 1;
    return `…${text.slice(from)}`;
  }

  names(box, places, top, height, wanted) {
    const { pen, colours } = this;
    pen.font = `400 10px ${colours.font}`;
    pen.fillStyle = colours.ink;
    for (let index = box.from; index < box.from + box.count; index += 1) {
      const tile = places.tiles[index];
      if (tile.state < 0 || tile.y > top + height || tile.y + tile.h + 12 < top) continue;
      pen.globalAlpha = wanted(tile) ? 1 : FAINT * 2;
      tile.short ??= this.short(tile.name, tile.w);
      pen.fillText(tile.short, tile.x, tile.y + tile.h + 7);
    }
    pen.globalAlpha = 1;
  }

  // How a tile looks: {width, height, pixels}.
  look(tile, state, places, scale, wanted) {
    const number = tile.state * 2 + (wanted ? 1 : 0);
    const found = (this.looks[number] ??= new Map());
    const gpus = places.cell ? tile.gpus : 0;
    let look = found.get(gpus);
    if (!look) found.set(gpus, (look = this.made(tile, state, places, scale, wanted)));
    return look;
  }

  made(tile, state, places, scale, wanted) {
    const edge = places.cell ? 1 : 0; // outside of a tile, for its line
    const width = Math.ceil((places.slotW + edge * 2) * scale);
    const height = Math.ceil((places.tileH + edge * 2) * scale);
    const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    pen.scale(scale, scale);
    pen.translate(edge, edge);
    if (places.cell) this.node(pen, marks(tile), state, places);
    else this.mark(pen, state, places);
    const image = pen.getImageData(0, 0, width, height).data;
    if (!wanted) for (let at = 3; at < image.length; at += 4) image[at] *= FAINT;
    return { width, height, pixels: new Uint32Array(image.buffer) };
  }

  // A node as one mark: with an edge if it is not healthy.
  mark(pen, state, { slotW, tileH }) {
    pen.fillStyle = this.colours.tones[state.tone].line;
    pen.fillRect(0, 0, slotW, tileH);
    if (state.name === "healthy") return;
    pen.strokeStyle = this.colours.ink;
    pen.strokeRect(0.5, 0.5, slotW - 1, tileH - 1);
  }

  node(pen, marks, look, { cell, slotW, tileH }) {
    const { tones, paper } = this.colours;
    const tone = tones[look.tone];
    const calm = look.name === "healthy";
    pen.fillStyle = tone.fill;
    pen.beginPath();
    pen.roundRect(0, 0, slotW, tileH, 2);
    pen.fill();
    if (!calm) {
      pen.strokeStyle = tone.line;
      pen.lineWidth = 1.5;
      pen.stroke();
    }
    const [wide] = grid(marks.length);
    for (let gpu = 0; gpu < marks.length; gpu += 1) {
      const x = INSET + (gpu % wide) * (cell + 1);
      const y = INSET + Math.floor(gpu / wide) * (cell + 1);
      if (y + cell > tileH) break; // more GPUs than a slot shows
      const bad = marks[gpu] === "x";
      pen.globalAlpha = calm || bad ? 1 : 0.45;
      pen.fillStyle = bad ? tones.bad.line : tone.line;
      pen.fillRect(x, y, cell, cell);
      pen.globalAlpha = 1;
      if (bad && cell > 3) this.cross(pen, x, y, cell, paper);
    }
    if (look.sign && cell >= 4) this.sign(pen, look.sign, tone.line, paper, slotW, tileH);
  }

  cross(pen, x, y, cell, paper) {
    pen.strokeStyle = paper;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.moveTo(x + 1, y + 1);
    pen.lineTo(x + cell - 1, y + cell - 1);
    pen.moveTo(x + cell - 1, y + 1);
    pen.lineTo(x + 1, y + cell - 1);
    pen.stroke();
  }

  sign(pen, sign, line, paper, w, h) {
    pen.font = `700 ${Math.min(14, h - 3)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 3;
    pen.strokeStyle = paper;
    pen.fillStyle = line;
    pen.strokeText(sign, w / 2, h / 2 + 0.5);
    pen.fillText(sign, w / 2, h / 2 + 0.5);
  }
}
