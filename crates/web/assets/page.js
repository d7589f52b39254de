// The page: one pane for each recording. Everything that comes from outside is set as text, never as HTML.

import { ages, bytes, clock, color, duration, fit, overview, HEATS } from "./charts.js";
import { Heatmap } from "./heatmap.js";

const LIVE_WINDOW = 60e3;
const TABLE_EVERY = 1000;
/** A list of so many targets may lack others. */
const MAX_LISTED = 512;
/** What changes slowly is read in one of so many turns. */
const SLOW_TURNS = 5;
const COLUMNS = [["name", "process"], ["pid", "pid"], ["resident", "resident"], ["hot", "hot"], ["warm", "warm"],
  ["cold", "cold"], ["unknown", "unknown"], ["saved", "saved"], ["refaults", "refaults/s"]];

const panes = [];
let following = false;
let palette;

/** An element with properties and children. Children that are strings become text. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

async function get(path, query = {}, binary = false) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(known).toString();
  try {
    const answer = await fetch(`/api/${path}${text && "?"}${text}`);
    if (answer.status === 409) return "changed";
    if (answer.status === 401) say("The token is not valid any more: open the address that isotherm web printed.");
    if (!answer.ok) return null;
    return binary ? new Uint8Array(await answer.arrayBuffer()) : await answer.json();
  } catch {
    return null;
  }
}

function say(text) {
  const state = document.getElementById("state");
  if (state.textContent !== text) state.textContent = text;
}

class Pane {
  constructor(number, state) {
    this.number = number;
    this.state = state;
    this.by = "process";
    this.sort = ["resident", true];
    this.at = null;
    this.rows = [];
    this.target = null;
    this.series = { every_ms: 1, parts: [] };
    this.marks = [];
    this.turns = 0;
    this.build();
  }

  ask(path, query, binary) {
    return get(`source/${this.number}/${path}`, query, binary);
  }

  build() {
    const label = `Heat map of ${this.state.name}`;
    this.title = make("h2", { className: "name" }, this.state.name);
    this.note = make("p", { className: "note" });
    this.overview = make("canvas", { className: "overview", role: "img" });
    this.heat = make("canvas", { className: "heat byaddress", tabIndex: 0, role: "application" });
    this.heat.setAttribute("aria-label", `${label}: arrows move the crosshair, plus and minus zoom, the list of keys is above`);
    this.choice = make("select", { onchange: () => this.choose(Number(this.choice.value)) });
    const save = (text, path, format) => make("button", { type: "button", onclick: () => this.save(path, format) }, text);
    this.point = make("dl", { className: "point" });
    this.point.setAttribute("aria-live", "polite");
    this.ages = make("canvas", { className: "ages", role: "img" });
    this.agesText = make("p", { className: "note" });
    this.marksList = make("ol", { className: "marks" });
    this.marksBox = make("details", { hidden: true }, make("summary", {}, "What schemes did"), this.marksList);
    this.byButton = make("button", { type: "button", onclick: () => this.turn() }, "Show control groups");
    this.tableTime = make("span", { className: "note" });
    const heads = COLUMNS.map(([key, text]) => {
      const th = make("th", { scope: "col" }, make("button", { type: "button", onclick: () => this.order(key) }, text));
      th.dataset.key = key;
      return th;
    });
    this.head = make("tr", {}, ...heads);
    this.body = make("tbody", {});
    this.table = make("table", {}, make("thead", {}, this.head), this.body);
    const bar = make("canvas", { role: "img" });
    bar.setAttribute("aria-label", "Colours from rarely touched, dark, to often touched, light");
    this.legendBar = bar;
    const swatches = HEATS.map((heat) => make("span", {}, make("span", { className: `swatch ${heat}` }), heat));
    document.getElementById("panes").append(make("section", { className: "pane" },
      this.title, this.note,
      make("div", { className: "legend" }, ...swatches),
      this.overview, this.marksBox,
      make("div", { className: "bar byaddress" },
        make("label", {}, "Process ", this.choice), make("span", { className: "grow" }),
        save("PNG", "picture", "png"), save("SVG", "picture", "svg"), save("Record of this span", "record", null)),
      this.heat,
      make("div", { className: "legend byaddress" }, "touches of a page a second: 0", bar, "1000; pale: extended, striped: old or unknown"),
      make("div", { className: "below byaddress" },
        make("div", {}, make("h3", {}, "At the crosshair"), this.point),
        make("div", {}, make("h3", {}, "Idle memory by age"), this.ages, this.agesText)),
      make("div", { className: "bar" }, make("h3", {}, "Processes and control groups"), this.tableTime,
        make("span", { className: "grow" }), this.byButton),
      make("div", { className: "rows" }, this.table)));
    this.map = new Heatmap(this.heat, palette, (...args) => this.ask(...args), {
      view: (v) => viewed(this, v),
      point: (p) => this.showPoint(p),
      chosen: (ms) => this.choseTime(ms),
      follow: () => follow(!following),
      all: showAll,
    });
    const jump = (e) => {
      if (!this.scale || (e.type === "pointermove" && !e.buttons)) return;
      const at = this.scale.at(e.offsetX);
      const v = this.map.view;
      const half = (v.to - v.from) / 2;
      this.map.set({ from: at - half, to: at + half });
    };
    this.overview.addEventListener("pointerdown", jump);
    this.overview.addEventListener("pointermove", jump);
    this.drawLegend();
  }

  drawLegend() {
    const { c, width, height } = fit(this.legendBar);
    const n = palette.colors.length;
    palette.colors.forEach((rgb, i) => {
      c.fillStyle = `rgb(${rgb.join(",")})`;
      c.fillRect((i * width) / n, 0, width / n + 1, height);
    });
  }

  /** The state has changed. */
  async update(state, first) {
    // Another service has taken the place of the one that was shown.
    const restarted = this.state.generation !== state.generation;
    const anew = restarted || state.complete !== this.state.complete;
    const grew = state.snapshots !== this.state.snapshots || state.span_ms !== this.state.span_ms;
    this.state = state;
    const counts = `${state.snapshots} snapshots, ${state.regions} regions, ${duration(state.span_ms)}`;
    const reading = state.kind === "record" && !state.complete ? "; reading: this is a sample" : "";
    // A service whose memory the kernel watches reports it by process, not by address.
    const without = state.kind === "service" && !state.regions;
    for (const element of this.heat.parentElement.querySelectorAll(".byaddress")) element.hidden = without;
    const text = `${counts}${reading}${state.note && `; ${state.note}`}`;
    if (this.note.textContent !== text) this.note.textContent = text;
    if (restarted) {
      this.at = null;
      this.map.clear();
    }
    if (first || grew || anew) {
      this.map.grown(state.span_ms, anew);
      if (following && this.live) {
        const v = this.map.view;
        const wide = v.to - v.from;
        this.map.set({ from: Math.max(0, state.span_ms - wide), to: Math.max(wide, state.span_ms) }, true);
      }
      await this.refresh(first || anew);
    }
  }

  get live() {
    return this.state.kind !== "record";
  }

  /** Reads the table, at most once a second, and what changes slowly more rarely, unless `all` may have changed. */
  async refresh(all) {
    if (this.refreshing) {
      this.again ||= all;
      return;
    }
    if (!all && performance.now() - (this.refreshed ?? -1e9) < TABLE_EVERY) {
      this.later ??= setTimeout(() => {
        this.later = null;
        this.refresh(false);
      }, TABLE_EVERY);
      return;
    }
    this.refreshing = true;
    this.again = false;
    try {
      if (all || this.target === null || this.turns % SLOW_TURNS === 0) await this.refreshSlow();
      this.turns++;
      await this.readTable();
      this.drawOverview();
    } finally {
      this.refreshed = performance.now();
      this.refreshing = false;
    }
    // What it has read may have been replaced meanwhile, and no further event may come.
    if (this.again) await this.refresh(true);
  }

  async refreshSlow() {
    const [targets, series, marks] = await Promise.all([
      this.ask("targets"), this.ask("series"), this.state.kind === "live" ? null : this.ask("marks")]);
    if (targets) this.showTargets(targets);
    if (series) this.series = series;
    if (marks) this.showMarks(marks);
    if (this.live && this.at === null && this.target !== null) this.map.readAxis(false);
    await this.readAges();
  }

  drawOverview() {
    const v = this.map.view;
    this.scale = overview(this.overview, this.series, this.state.span_ms, v, this.marks);
    const last = this.series.parts.findLast((p) => p);
    this.overview.setAttribute("aria-label", `Memory over time. Last: ${HEATS.map((heat, i) => `${heat} ${bytes(last?.[i] ?? 0)}`).join(", ")}`);
  }

  showTargets(targets) {
    const text = JSON.stringify(targets.map((t) => [t.id, t.name, t.pid]));
    if (text !== this.targetsText) {
      this.targetsText = text;
      this.choice.replaceChildren(...targets.map((t) => {
        const option = make("option", {}, t.pid === null ? t.name : `${t.name} (pid ${t.pid})`);
        option.value = t.id;
        option.title = t.command;
        return option;
      }));
      if (this.target !== null) this.choice.value = this.target;
    }
    const gone = targets.length < MAX_LISTED && !targets.some((t) => t.id === this.target);
    if (targets.length && (this.target === null || gone)) this.choose(targets[0].id);
  }

  choose(target) {
    this.target = target;
    this.choice.value = target;
    this.map.show(target);
    this.readAges();
    this.mark();
  }

  async readTable() {
    const ms = this.at ?? this.state.span_ms;
    const rows = await this.ask("table", { ms, by: this.by });
    if (!rows || rows === "changed") return;
    this.rows = rows;
    const when = this.at === null ? (this.live ? "now" : "at the end") : `at ${clock(this.at, 100)}`;
    if (this.tableTime.textContent !== when) this.tableTime.textContent = when;
    this.showRows();
  }

  order(key) {
    this.sort = [key, this.sort[0] === key ? !this.sort[1] : key !== "name"];
    this.showRows();
  }

  turn() {
    this.by = this.by === "process" ? "cgroup" : "process";
    this.byButton.textContent = this.by === "process" ? "Show control groups" : "Show processes";
    this.readTable();
  }

  showRows() {
    const [key, down] = this.sort;
    const sign = down ? -1 : 1;
    const compare = (a, b) => (typeof a[key] === "string" ? a[key].localeCompare(b[key]) : (a[key] ?? -1) - (b[key] ?? -1));
    const rows = [...this.rows].sort((a, b) => sign * compare(a, b));
    for (const th of this.head.children) {
      if (th.dataset.key === key) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((row, i) => {
      const tr = this.body.rows[i] ?? this.newRow();
      const texts = COLUMNS.map(([name]) => {
        const value = row[name];
        if (value === null || value === undefined) return "";
        if (name === "refaults") return value ? value.toFixed(1) : "0";
        return typeof value === "string" || name === "pid" ? String(value) : bytes(value);
      });
      texts.forEach((text, k) => {
        if (tr.cells[k].textContent !== text) tr.cells[k].textContent = text;
      });
      tr.title = row.command;
      if (row.target === null) delete tr.dataset.target;
      else tr.dataset.target = row.target;
      tr.tabIndex = row.target === null ? -1 : 0;
    });
    this.mark();
  }

  newRow() {
    const tr = this.body.insertRow();
    for (const _ of COLUMNS) tr.insertCell();
    const open = () => tr.dataset.target !== undefined && this.choose(Number(tr.dataset.target));
    tr.addEventListener("click", open);
    tr.addEventListener("keydown", (e) => e.key === "Enter" && open());
    return tr;
  }

  mark() {
    for (const tr of this.body.rows) tr.setAttribute("aria-selected", String(tr.dataset.target === String(this.target)));
  }

  async readAges() {
    if (this.target === null) return;
    const figures = await this.ask("ages", { target: this.target, ms: this.at ?? this.state.span_ms });
    const text = figures ? `${ages(this.ages, figures)}, at ${clock(figures.ms, 100)}` : "no idle ages are known yet";
    if (!figures) fit(this.ages);
    if (this.agesText.textContent !== text) this.agesText.textContent = text;
    this.ages.setAttribute("aria-label", `Idle memory by age: ${text}`);
  }

  /** A time was chosen: the table and the ages are of that time. */
  choseTime(ms) {
    this.at = ms >= this.state.span_ms ? null : ms;
    if (this.live && this.at !== null) follow(false);
    this.readTable();
    this.readAges();
  }

  showMarks(marks) {
    this.marks = marks;
    this.map.marks = marks;
    this.marksBox.hidden = !marks.length;
    const items = marks.slice(-100).reverse();
    this.marksList.replaceChildren(...items.map((m) => make("li", {}, `${clock(m.ms)}: ${m.scheme} (${m.action}) ${bytes(m.bytes)}`)));
  }

  showPoint(p) {
    if (!p) return;
    const rows = [["time", `${clock(p.from_ms, 10)} to ${clock(p.to_ms, 10)}`], ["address", p.address],
      ["mapping", p.mapping === null ? "none" : p.mapping_path || p.mapping]];
    const r = p.region;
    if (r) {
      const high = r.high_hz === null ? "no upper bound" : `${Number(r.high_hz.toPrecision(3))} Hz`;
      const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
      rows.push(["range", `${r.start} to ${r.end}, ${bytes(r.bytes)}`], ["heat", r.heat],
        ["rate", `${Number(r.hz.toPrecision(3))} Hz, 95 % interval ${Number(r.low_hz.toPrecision(3))} Hz to ${high}`],
        ["age", `has kept its heat for ${r.age_ms === null ? "at least " : ""}${duration(r.age_low_ms)}`],
        ["pages", `${percent(r.touched)} touched, ${r.resident === null ? "unknown part" : percent(r.resident)} resident`]);
      if (r.unknown > 0) rows.push(["unknown", `${percent(r.unknown)}: ${r.unknown_by.join(", ")}`]);
      if (r.measured !== null) rows.push(["basis", `${percent(r.measured)} measured, ${percent(r.extended)} extended`]);
    } else {
      rows.push(["range", "no region"]);
    }
    this.point.replaceChildren(...rows.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  }

  save(path, format) {
    const v = this.map.view;
    const query = { from_ms: Math.max(0, v.from), to_ms: Math.min(v.to, this.state.span_ms) };
    if (format) query.format = format;
    if (this.target !== null) query.target = this.target;
    const link = make("a", { href: `/api/source/${this.number}/${path}?${new URLSearchParams(query)}`, download: "" });
    document.body.append(link);
    link.click();
    link.remove();
  }
}

/** The view of a pane has changed: the others show the same time. */
function viewed(pane, v) {
  for (const other of panes) {
    if (other !== pane) other.map.set({ from: v.from, to: v.to }, true);
    other.drawOverview();
  }
  if (pane.live && following && v.to < pane.state.span_ms) follow(false);
}

function follow(on) {
  following = on && panes.some((pane) => pane.live);
  document.getElementById("follow").setAttribute("aria-pressed", String(following));
  if (!following) return;
  for (const pane of panes) {
    const { from, to } = pane.map.view;
    const wide = Math.min(to - from, LIVE_WINDOW * 10);
    pane.at = null;
    pane.map.set({ from: Math.max(0, pane.state.span_ms - wide), to: Math.max(wide, pane.state.span_ms) });
  }
}

/** The time of the longest recording, which all panes show. */
function longest(states) {
  return Math.max(1000, ...states.map((s) => s.span_ms));
}

function showAll() {
  follow(false);
  const to = longest(panes.map((pane) => pane.state));
  for (const pane of panes) pane.map.set({ from: 0, to, low: 0, high: pane.map.height });
}

async function update(state) {
  const refused = Object.values(state.refused).reduce((a, b) => a + b, 0);
  const kinds = { live: "live", record: "record", service: "service" };
  const what = state.sources.map((s) => kinds[s.kind]).join(" and ");
  say(`${what}; ${state.connections} connections${refused ? `; ${refused} requests refused` : ""}`);
  const first = !panes.length;
  const before = longest(panes.map((pane) => pane.state));
  const span = longest(state.sources);
  if (first) {
    state.sources.forEach((source, i) => panes.push(new Pane(i, source)));
    document.getElementById("panes").classList.toggle("two", panes.length > 1);
    document.getElementById("follow").hidden = !panes.some((pane) => pane.live);
    following = panes.some((pane) => pane.live);
    for (const pane of panes) {
      pane.map.set({ from: 0, to: pane.live ? LIVE_WINDOW : span }, true);
    }
  }
  await Promise.all(state.sources.map((source, i) => {
    const pane = panes[i];
    // A record that was empty at first shows all that has been read.
    if (!pane.live && before < span && pane.map.view.to <= before) pane.map.set({ from: 0, to: span }, true);
    return pane.update(source, first);
  }));
}

function listen() {
  const events = new EventSource("/api/events");
  let newest = null;
  let busy = false;
  events.onmessage = async (e) => {
    newest = JSON.parse(e.data);
    if (busy) return;
    busy = true;
    try {
      while (newest) {
        const state = newest;
        newest = null;
        await update(state);
      }
    } finally {
      busy = false;
    }
  };
  events.onerror = () => say(events.readyState === EventSource.CLOSED
    ? "The server no longer accepts this page: isotherm web was started again. Open the address that it has printed."
    : "The connection is lost: isotherm web has ended, or is busy. Trying again.");
}

function redraw() {
  for (const pane of panes) {
    pane.map.lut = null;
    pane.map.last = null;
    pane.map.draw();
    pane.drawOverview();
    pane.drawLegend();
    pane.readAges();
  }
}

function buttons() {
  const on = (id, act) => document.getElementById(id).addEventListener("click", act);
  on("follow", () => follow(!following));
  on("all", showAll);
  on("theme", () => {
    const dark = parseInt(color("paper").slice(1, 3), 16) < 128;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    redraw();
  });
  on("help", (e) => {
    const keys = document.getElementById("keys");
    keys.hidden = !keys.hidden;
    e.target.setAttribute("aria-expanded", String(!keys.hidden));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
}

palette = await get("palette");
buttons();
const state = await get("state");
if (state) await update(state);
listen();
