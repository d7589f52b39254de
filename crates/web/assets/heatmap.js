// The heat map: tiles of cells from the server, drawn in a canvas that pans and zooms.

import { bytes, clock, color, timeTicks } from "./charts.js";

/** Columns and rows of a tile: most views are a tile high, so that an update is one request. */
const COLUMNS = 256;
const ROWS = 512;
const PAGE = 4096;
const LEFT = 70;
const BOTTOM = 22;
/** Tiles in memory. */
const MAX_TILES = 200;
const MAX_REQUESTS = 4;
const NO_DATA = 3;
/** Columns that are read again, because their ends were not known yet; and columns beyond those that are known. */
const COLUMNS_AGAIN = 4;
const COLUMNS_AHEAD = 2;

export class Heatmap {
  /** `ask(path, query)` fetches from the source. `on` has the callbacks `view`, `point`, `chosen`, `follow` and `all`. */
  constructor(canvas, palette, ask, on) {
    Object.assign(this, { canvas, palette, ask, on });
    this.tiles = new Map();
    this.wanted = [];
    this.running = 0;
    this.span = 0;
    this.areas = [];
    this.height = 0;
    this.target = null;
    this.view = { from: 0, to: 60e3, low: 0, high: 1 };
    this.cross = null;
    this.marks = [];
    /** how often everything has changed */
    this.age = 0;
    canvas.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    canvas.addEventListener("pointerdown", (e) => this.down(e));
    canvas.addEventListener("pointermove", (e) => this.move(e));
    canvas.addEventListener("pointerup", (e) => this.up(e));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** Shows another target. */
  async show(target) {
    if (target === this.target) return;
    this.target = target;
    this.clear();
    this.axis = null;
    await this.readAxis(true);
  }

  /** Forgets all that was drawn. */
  clear() {
    this.tiles.clear();
    this.last = null;
  }

  async readAxis(whole) {
    if (this.target === null || this.readingAxis) return;
    this.readingAxis = true;
    const target = this.target;
    const axis = await this.ask("axis", { target });
    this.readingAxis = false;
    if (target !== this.target) return this.readAxis(true);
    if (!axis) return;
    if (axis.version !== this.axis?.version) {
      const all = this.view.low <= 0 && this.view.high >= this.height;
      this.axis = axis;
      this.clear();
      let at = 0;
      this.areas = axis.areas.map((a) => {
        const area = { ...a, at };
        at += a.bytes;
        return area;
      });
      this.height = Math.max(at, PAGE);
      if (whole || all) Object.assign(this.view, { low: 0, high: this.height });
    }
    this.draw();
  }

  /** More is known: `span` ms in all. `anew`: all that is drawn may be outdated. */
  grown(span, anew) {
    this.span = span;
    for (const tile of this.tiles.values()) {
      if (anew || tile.until < tile.end) tile.stale = true;
      if (anew) tile.until = tile.start;
    }
    if (anew) {
      this.age++;
      this.readAxis(false);
    }
    this.draw();
  }

  size() {
    return [Math.max(1, this.canvas.clientWidth - LEFT), Math.max(1, this.canvas.clientHeight - BOTTOM)];
  }

  /** Levels of the tiles for the present view: powers of two of ms and of pages. */
  levels() {
    const [w, h] = this.size();
    const v = this.view;
    const time = Math.max(0, Math.ceil(Math.log2((v.to - v.from) / w)));
    const rows = Math.max(0, Math.ceil(Math.log2((v.high - v.low) / h / PAGE)));
    return { time, rows, pixel: 2 ** time, row: PAGE * 2 ** rows };
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [cw, ch] = [canvas.clientWidth, canvas.clientHeight];
    if (!cw || !ch) return;
    if (canvas.width !== Math.round(cw * ratio) || canvas.height !== Math.round(ch * ratio)) {
      canvas.width = Math.round(cw * ratio);
      canvas.height = Math.round(ch * ratio);
    }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, cw, ch);
    const [w, h] = this.size();
    if (this.axis && this.areas.length) this.cells(c, w, h);
    this.frame(c, w, h);
  }

  cells(c, w, h) {
    const v = this.view;
    if (this.last) {
      const l = this.last;
      const sx = w / (v.to - v.from);
      const sy = h / (v.high - v.low);
      c.save();
      c.beginPath();
      c.rect(LEFT, 0, w, h);
      c.clip();
      c.imageSmoothingEnabled = false;
      c.drawImage(l.image, LEFT + (l.from - v.from) * sx, (v.high - l.high) * sy, (l.to - l.from) * sx, (l.high - l.low) * sy);
      c.restore();
    }
    const { time, rows, pixel, row } = this.levels();
    const image = new ImageData(w, h);
    const out = new Uint32Array(image.data.buffer);
    const lut = this.colors();
    const last = Math.min(v.to, this.span);
    this.wanted = [];
    let whole = true;
    let known = Infinity;
    // Each tile covers a rectangle of the picture.
    const [i0, i1] = [Math.floor(v.from / pixel / COLUMNS), Math.floor(Math.max(v.from, last - 1e-6) / pixel / COLUMNS)];
    const [j0, j1] = [Math.floor(v.low / row / ROWS), Math.floor((Math.min(v.high, this.height) - 1) / row / ROWS)];
    const px = (v.to - v.from) / w;
    const py = (v.high - v.low) / h;
    for (let i = Math.max(0, i0); i <= i1; i++) {
      for (let j = Math.max(0, j0); j <= j1; j++) {
        const tile = this.tile({ time, rows, i, j, pixel, row });
        if (!tile.cells) {
          whole = false;
          continue;
        }
        if (tile.until < tile.end) known = Math.min(known, tile.until);
        const x0 = Math.max(0, Math.ceil((i * COLUMNS * pixel - v.from) / px - 0.5));
        const x1 = Math.min(w, Math.ceil(((i + 1) * COLUMNS * pixel - v.from) / px - 0.5));
        const y0 = Math.max(0, Math.ceil((v.high - (j + 1) * ROWS * row) / py - 0.5));
        const y1 = Math.min(h, Math.ceil((v.high - j * ROWS * row) / py - 0.5));
        for (let x = x0; x < x1; x++) {
          const column = Math.min(COLUMNS - 1, Math.max(0, Math.floor((v.from + (x + 0.5) * px) / pixel - i * COLUMNS)));
          for (let y = y0; y < y1; y++) {
            const line = Math.min(ROWS - 1, Math.max(0, Math.floor((v.high - (y + 0.5) * py) / row - j * ROWS)));
            const byte = tile.cells[column * ROWS + line];
            out[y * w + x] = lut[((x + y) % 8 < 3 ? 256 : 0) + ((x + 3 * y) % 4 < 2 ? 512 : 0) + byte];
          }
        }
      }
    }
    const made = this.made ?? (this.made = document.createElement("canvas"));
    made.width = w;
    made.height = h;
    made.getContext("2d").putImageData(image, 0, 0);
    c.drawImage(made, LEFT, 0);
    if (whole) {
      const copy = document.createElement("canvas");
      copy.width = w;
      copy.height = h;
      copy.getContext("2d").drawImage(made, 0, 0);
      this.last = { image: copy, ...v };
    }
    report(this.canvas, whole, known, v);
    this.pump();
  }

  /** Colours by byte and by place: unknown memory has stripes, old rates have crossing ones. */
  colors() {
    const theme = color("paper");
    if (this.lut?.theme === theme) return this.lut.table;
    const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
    const paper = rgb(theme);
    const [line, quiet] = [rgb(color("line")), rgb(color("unknown"))];
    const absent = paper.map((p, k) => Math.round(p + (line[k] - p) * 0.4));
    const mix = (a, part) => a.map((n, k) => Math.round(n + (paper[k] - n) * part));
    const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    const table = new Uint32Array(1024);
    for (let place = 0; place < 4; place++) {
      for (let byte = 0; byte < 256; byte++) {
        const striped = place & 1;
        const crossed = place & 2;
        let at;
        if (byte === 0 || byte === NO_DATA) at = paper;
        else if (byte === 1) at = absent;
        else if (byte === 2) at = striped ? quiet : line;
        else if (byte < 88) at = this.palette.colors[byte - 4];
        else if (byte < 172) at = mix(this.palette.colors[byte - 88], 0.35);
        else at = mix(this.palette.colors[byte - 172], crossed ? 0.85 : 0.25);
        table[256 * place + byte] = byte === NO_DATA ? 0 : pack(at);
      }
    }
    this.lut = { theme, table };
    return table;
  }

  tile(t) {
    const key = `${t.time}.${t.rows}.${t.i}.${t.j}`;
    let tile = this.tiles.get(key);
    if (!tile) {
      const start = t.i * COLUMNS * t.pixel;
      tile = { ...t, key, start, end: start + COLUMNS * t.pixel, until: start, stale: true, cells: null };
      this.tiles.set(key, tile);
    } else {
      this.tiles.delete(key);
      this.tiles.set(key, tile);
    }
    if (tile.stale && !tile.running) this.wanted.push(tile);
    return tile;
  }

  /** Requests tiles that the last picture lacked. */
  pump() {
    while (this.running < MAX_REQUESTS && this.wanted.length) this.load(this.wanted.shift());
    for (const key of this.tiles.keys()) {
      if (this.tiles.size <= MAX_TILES) break;
      this.tiles.delete(key);
    }
  }

  /** Fetches the columns of a tile that have come since it was fetched last. */
  async load(tile) {
    const { axis, target, span, age } = this;
    const { start, pixel, until } = tile;
    const column = (ms) => Math.floor((ms - start) / pixel);
    const first = Math.min(COLUMNS - 1, Math.max(0, column(until) - COLUMNS_AGAIN));
    // A view may lie behind the end.
    const last = Math.max(first + 1, Math.min(COLUMNS, column(span) + 1 + COLUMNS_AHEAD));
    this.running++;
    tile.running = true;
    const answer = await this.ask("tile", {
      target, axis: axis.version, from_ms: start + first * pixel, pixel_ms: pixel,
      from_byte: tile.j * ROWS * tile.row, row_bytes: tile.row, width: last - first, height: ROWS,
    }, true);
    this.running--;
    tile.running = false;
    if (axis !== this.axis) return this.draw();
    if (answer === "changed") return this.readAxis(false);
    // A server that refuses or is gone must not be asked again at each frame.
    if (!answer) return setTimeout(() => this.draw(), 1000);
    if (until === start) tile.cells = new Uint8Array(COLUMNS * ROWS).fill(NO_DATA);
    tile.cells.set(answer, first * ROWS);
    if (age === this.age) Object.assign(tile, { stale: false, until: span });
    this.draw();
  }

  frame(c, w, h) {
    const v = this.view;
    const x = (ms) => LEFT + ((ms - v.from) / (v.to - v.from)) * w;
    const y = (at) => ((v.high - at) / (v.high - v.low)) * h;
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = color("quiet");
    c.strokeStyle = color("line");
    c.lineWidth = 1;
    c.textAlign = "center";
    const { step, found } = timeTicks(Math.max(0, v.from), v.to, w / 90);
    for (const t of found) c.fillText(clock(t, step), Math.min(x(t), LEFT + w - 20), h + 15);
    c.textAlign = "right";
    const unit = 2 ** Math.ceil(Math.log2(Math.max(1, (v.high - v.low) / Math.max(1, h / 40))));
    let labelled = Infinity;
    this.areas.forEach((area) => {
      const [top, bottom] = [y(area.at + area.bytes), y(area.at)];
      if (bottom < 0 || top > h) return;
      if (bottom < h - 1) {
        c.fillStyle = color("paper");
        c.fillRect(LEFT, bottom - 1, w, 2);
        c.strokeStyle = color("quiet");
        c.strokeRect(LEFT - 6, bottom, 6, 0.5);
      }
      const from = Math.max(0, v.low - area.at);
      c.fillStyle = color("quiet");
      for (let n = Math.ceil(from / unit); n * unit < Math.min(area.bytes, v.high - area.at); n++) {
        const line = y(area.at + n * unit);
        if (line < 10 || line > h - 2 || line > labelled - 13) continue;
        labelled = line;
        c.fillText(`+${bytes(n * unit)}`, LEFT - 6, line + 4);
      }
      if (Math.min(bottom, h) - Math.max(top, 0) > 16) {
        c.textAlign = "left";
        const text = `${area.name}, ${bytes(area.bytes)}, from ${area.start}`;
        const wide = c.measureText(text).width + 8;
        c.globalAlpha = 0.8;
        c.fillStyle = color("paper");
        c.fillRect(LEFT + 3, Math.max(top, 0) + 2, wide, 16);
        c.globalAlpha = 1;
        c.fillStyle = color("ink");
        c.fillText(text, LEFT + 7, Math.max(top, 0) + 14);
        c.textAlign = "right";
        c.fillStyle = color("quiet");
      }
    });
    c.fillStyle = color("ink");
    for (const mark of this.marks) {
      if (mark.ms < v.from || mark.ms > v.to) continue;
      c.fillRect(x(mark.ms) - 1, h - 8, 2, 8);
    }
    if (!this.areas.length) {
      c.textAlign = "center";
      c.fillText(this.target === null ? "choose a process in the table" : "no memory is known yet", LEFT + w / 2, h / 2);
    }
    if (this.cross) {
      c.strokeStyle = color("ink");
      c.setLineDash([4, 3]);
      c.beginPath();
      c.moveTo(x(this.cross.ms), 0);
      c.lineTo(x(this.cross.ms), h);
      c.moveTo(LEFT, y(this.cross.at));
      c.lineTo(LEFT + w, y(this.cross.at));
      c.stroke();
      c.setLineDash([]);
    }
  }

  place(e) {
    const box = this.canvas.getBoundingClientRect();
    const [w, h] = this.size();
    const v = this.view;
    return {
      ms: v.from + ((e.clientX - box.left - LEFT) / w) * (v.to - v.from),
      at: v.high - ((e.clientY - box.top) / h) * (v.high - v.low),
    };
  }

  /** Changes the view, within limits, and says so. */
  set(view, quiet) {
    const v = { ...this.view, ...view };
    const wide = Math.max(v.to - v.from, 20);
    const tall = Math.min(Math.max(v.high - v.low, 16 * PAGE), Math.max(this.height, 16 * PAGE));
    v.low = Math.min(Math.max(0, v.low), Math.max(0, this.height - tall));
    v.high = v.low + tall;
    v.from = Math.max(0, v.from);
    v.to = v.from + wide;
    this.view = v;
    if (!quiet) this.on.view(v);
    this.draw();
  }

  zoom(factor, at, time = true, rows = true) {
    const v = this.view;
    const around = (from, to, middle) => [middle - (middle - from) * factor, middle + (to - middle) * factor];
    const change = {};
    if (time) [change.from, change.to] = around(v.from, v.to, at.ms);
    if (rows) [change.low, change.high] = around(v.low, v.high, at.at);
    this.set(change);
  }

  wheel(e) {
    e.preventDefault();
    this.zoom(2 ** ((e.deltaY || e.deltaX) / 300), this.place(e), !e.altKey, !e.shiftKey);
  }

  down(e) {
    this.drag = { x: e.clientX, y: e.clientY, view: { ...this.view }, moved: false };
    this.canvas.setPointerCapture(e.pointerId);
  }

  move(e) {
    if (this.drag) {
      const [w, h] = this.size();
      const d = this.drag;
      d.moved ||= Math.hypot(e.clientX - d.x, e.clientY - d.y) > 3;
      const dt = ((e.clientX - d.x) / w) * (d.view.to - d.view.from);
      const dy = ((e.clientY - d.y) / h) * (d.view.high - d.view.low);
      if (d.moved) this.set({ from: d.view.from - dt, to: d.view.to - dt, low: d.view.low + dy, high: d.view.high + dy });
    } else {
      this.pointTo(this.place(e));
    }
  }

  up(e) {
    const clicked = this.drag && !this.drag.moved;
    this.drag = null;
    if (!clicked) return;
    this.pointTo(this.place(e));
    if (this.cross) this.on.chosen(this.cross.ms);
  }

  key(e) {
    const v = this.view;
    const [w, h] = this.size();
    const middle = { ms: (v.from + v.to) / 2, at: (v.low + v.high) / 2 };
    const cross = this.cross ?? middle;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const arrow = arrows[e.key];
    if (arrow && e.shiftKey) {
      const [dt, dy] = [(arrow[0] * (v.to - v.from)) / 8, (arrow[1] * (v.high - v.low)) / 8];
      this.set({ from: v.from + dt, to: v.to + dt, low: v.low + dy, high: v.high + dy });
    } else if (arrow) {
      const [dt, dy] = [(arrow[0] * 8 * (v.to - v.from)) / w, (arrow[1] * 8 * (v.high - v.low)) / h];
      const within = (n, a, b) => Math.min(Math.max(n, a), b);
      this.pointTo({ ms: within(cross.ms + dt, v.from, v.to), at: within(cross.at + dy, v.low, v.high) });
    } else if (e.key === "+" || e.key === "=") {
      this.zoom(0.5, cross, !e.altKey, !e.ctrlKey);
    } else if (e.key === "-") {
      this.zoom(2, cross, !e.altKey, !e.ctrlKey);
    } else if (e.key === "0") {
      this.on.all();
    } else if (e.key === "Enter") {
      this.on.chosen(cross.ms);
    } else if (e.key === "f" || e.key === "F") {
      this.on.follow();
    } else {
      return;
    }
    e.preventDefault();
  }

  /** Moves the crosshair, and asks what is there: one question at a time, the newest next. */
  async pointTo(cross) {
    if (this.target === null || cross.at < 0 || cross.at >= this.height || cross.ms < 0) return;
    this.cross = cross;
    this.draw();
    this.question = cross;
    if (this.asking) return;
    this.asking = true;
    while (this.question) {
      const q = this.question;
      this.question = null;
      const answer = await this.ask("point", { target: this.target, axis: this.axis?.version, ms: q.ms, byte: Math.floor(q.at) });
      // Then the place is that of another address.
      if (answer === "changed") this.readAxis(false);
      else this.on.point(answer);
    }
    this.asking = false;
  }
}

/** What a test can wait for: how often all of the view was drawn, until when it was known, and the view. */
function report(canvas, whole, known, view) {
  if (!whole) return;
  canvas.dataset.drawn = Number(canvas.dataset.drawn ?? 0) + 1;
  canvas.dataset.known = known;
  canvas.dataset.view = JSON.stringify(view);
}
