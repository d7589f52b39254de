// Charts of bytes over time and of idle ages.

export const HEATS = ["hot", "warm", "cold", "unknown", "saved"];

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; Math.abs(n) >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toPrecision(3)} ${units[i]}`;
}

export function duration(ms) {
  const units = [[172800e3, 86400e3, "d"], [7200e3, 3600e3, "h"], [120e3, 60e3, "min"], [1e3, 1e3, "s"]];
  const [, size, name] = units.find(([from]) => Math.abs(ms) >= from) ?? [0, 1, "ms"];
  return `${Number((ms / size).toPrecision(3))} ${name}`;
}

/** A time since the start, with as many digits as `step` ms need. */
export function clock(ms, step = 1000) {
  const digits = step >= 1000 ? 0 : Math.min(3, Math.ceil(-Math.log10(step / 1000)));
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(digits)} s`;
  const rest = (seconds % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${rest}`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

/** A canvas as wide as its place, and its context in CSS pixels. */
export function fit(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "12px system-ui, sans-serif";
  return { c, width, height };
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Round times between two: about `count` of them. */
export function timeTicks(from, to, count) {
  const nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 30e3, 60e3, 120e3, 300e3, 600e3, 1800e3,
    3600e3, 7200e3, 21600e3, 86400e3];
  const rough = (to - from) / Math.max(1, count);
  const step = nice.find((s) => s >= rough) ?? 86400e3 * Math.ceil(rough / 86400e3);
  const found = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) found.push(i * step);
  return { step, found };
}

/** Stacked bytes over the whole time, the visible part of it, and what schemes did. */
export function overview(canvas, series, span, view, marks) {
  const { c, width, height } = fit(canvas);
  const [left, bottom] = [64, 18];
  const [w, h] = [width - left, height - bottom];
  const total = Math.max(span, 1);
  const x = (ms) => left + (ms / total) * w;
  const sums = series.parts.map((p) => (p ? p.reduce((a, b) => a + b, 0) : 0));
  const most = Math.max(1, ...sums);
  const y = (n) => h - (n / most) * (h - 8);
  const base = new Float64Array(series.parts.length);
  HEATS.forEach((heat, k) => {
    c.fillStyle = color(heat);
    series.parts.forEach((part, i) => {
      if (!part || !part[k]) return;
      // Whole pixels, so that there are no seams.
      const at = (n) => Math.round(x(Math.min(total, n * series.every_ms)));
      c.fillRect(at(i), y(base[i] + part[k]), Math.max(at(i + 1) - at(i), 1), y(base[i]) - y(base[i] + part[k]));
      base[i] += part[k];
    });
  });
  c.fillStyle = color("quiet");
  c.textAlign = "right";
  c.fillText(bytes(most), left - 6, 14);
  c.fillText("0", left - 6, h);
  c.textAlign = "center";
  const { step, found } = timeTicks(0, total, w / 90);
  for (const t of found) c.fillText(clock(t, step), Math.min(x(t), width - 24), height - 4);
  c.fillStyle = color("ink");
  for (const mark of marks) {
    c.beginPath();
    c.moveTo(x(mark.ms) - 4, 0);
    c.lineTo(x(mark.ms) + 4, 0);
    c.lineTo(x(mark.ms), 9);
    c.fill();
  }
  if (view) {
    c.strokeStyle = color("accent");
    c.lineWidth = 2;
    const [from, to] = [Math.max(left, x(view.from)), Math.min(width, x(view.to))];
    c.strokeRect(from + 1, 1, Math.max(2, to - from - 2), h - 2);
  }
  return { at: (px) => ((px - left) / w) * total };
}

/** Idle memory by its age, and memory in swap. */
export function ages(canvas, figures) {
  const { c, width, height } = fit(canvas);
  const [left, bottom] = [64, 32];
  const [w, h] = [width - left, height - bottom];
  const page = 4096;
  const rows = figures.lowest_ms.map((ms, i) => ({ ms, idle: figures.idle[i] * page, saved: figures.swapped[i] * page }));
  const last = rows.findLastIndex((r) => r.idle || r.saved);
  const shown = rows.slice(0, Math.max(last + 2, 12));
  const most = Math.max(1, ...shown.map((r) => r.idle + r.saved));
  const each = w / shown.length;
  shown.forEach((r, i) => {
    const tall = (n) => (n / most) * (h - 8);
    c.fillStyle = color(r.ms < 5000 ? "warm" : "cold");
    c.fillRect(left + i * each + 1, h - tall(r.idle), each - 2, tall(r.idle));
    c.fillStyle = color("saved");
    c.fillRect(left + i * each + 1, h - tall(r.idle) - tall(r.saved), each - 2, tall(r.saved));
  });
  c.fillStyle = color("quiet");
  c.textAlign = "right";
  c.fillText(bytes(most), left - 6, 14);
  c.fillText("0", left - 6, h);
  c.textAlign = "center";
  const every = Math.ceil(70 / each / 3) * 3;
  shown.forEach((r, i) => {
    if ((i - 1) % every === 0) c.fillText(duration(r.ms), left + i * each, h + 14);
  });
  c.fillText("untouched for this long", left + w / 2, h + 29);
  const cold = rows.filter((r) => r.ms >= 5000).reduce((sum, r) => sum + r.idle, 0);
  const all = rows.reduce((sum, r) => sum + r.idle, 0);
  return `${bytes(cold)} of ${bytes(all)} were untouched for 5 s or longer`;
}
