// Charts: curves over steps with bands, smoothing, zoom by dragging, and new points while a training runs.

import { dataOf, draw, make, onWidth } from "./dom.js";
import { mark, number, scale, ticks } from "./format.js";

/** @typedef {{ name: string, key?: string, n: number, x: number[], y: (number | null)[], raw?: (number | null)[] | null, low?: (number | null)[] | null, high?: (number | null)[] | null }} Line */
/** @typedef {{ title: string, x: string, y?: string, logX: boolean, logY: boolean, note: string, lines: Line[], numbers?: number[], marks?: boolean, smoothing?: number }} Chart */

const HEIGHT = 260, LEFT = 54, RIGHT = 12, TOP = 8, BOTTOM = 34, COLOURS = 10, MOST = 3000;

/**
 * As TensorBoard smooths: an exponential average, divided by the weight it has so far.
 * @param {(number | null)[]} values
 * @param {number} weight
 */
export function smoothed(values, weight) {
  const known = values.filter((v) => v !== null);
  if (!weight || !known.length || known.every((v) => v === known[0])) return values;
  let last = 0, seen = 0;
  return values.map((v) => {
    if (v === null) return null;
    last = last * weight + (1 - weight) * v;
    seen += 1;
    return last / (1 - weight ** seen);
  });
}

/**
 * Of each stretch the lowest and the highest point, so that no peak is lost.
 * @param {Line} line
 * @param {number} most
 */
export function thinned(line, most) {
  if (line.x.length <= most) return;
  const stretch = Math.ceil(line.x.length / (most / 2));
  /** @type {number[]} */
  const kept = [];
  for (let from = 0; from < line.x.length; from += stretch) {
    let low = -1, high = -1;
    for (let i = from; i < Math.min(from + stretch, line.x.length); i++) {
      const v = line.y[i];
      if (v === null || v === undefined) continue;
      if (low < 0 || v < /** @type {number} */ (line.y[low])) low = i;
      if (high < 0 || v > /** @type {number} */ (line.y[high])) high = i;
    }
    for (const i of [...new Set([low, high])].sort((a, b) => a - b)) if (i >= 0) kept.push(i);
  }
  const last = line.x.length - 1;
  if (kept[kept.length - 1] !== last) kept.push(last);
  line.x = kept.map((i) => /** @type {number} */ (line.x[i]));
  line.y = kept.map((i) => line.y[i] ?? null);
}

/**
 * @param {number[]} xs
 * @param {(number | null)[]} ys
 * @param {(v: number) => number} px
 * @param {(v: number) => number} py
 * @param {(v: number | null | undefined) => boolean} usable
 */
function pathOf(xs, ys, px, py, usable) {
  let text = "", on = false;
  for (let i = 0; i < xs.length; i++) {
    const v = ys[i];
    if (!usable(v)) { on = false; continue; }
    text += `${on ? "L" : "M"}${px(/** @type {number} */ (xs[i])).toFixed(1)} ${py(/** @type {number} */ (v)).toFixed(1)}`;
    on = true;
  }
  return text;
}

/** @type {Map<HTMLElement, { smoothing: (weight: number) => void, log: (on: boolean) => void }>} */
const drawnCharts = new Map();

/** Those of the page at hand; the app's pages come and go. */
function* chartsHere() {
  for (const [box, one] of drawnCharts) {
    if (box.isConnected) yield one;
    else drawnCharts.delete(box);
  }
}

/** @param {HTMLElement} box */
export function chart(box) {
  /** @type {Chart} */
  const data = dataOf(box);
  let weight = data.smoothing ?? 0, logY = data.logY;
  /** @type {[number, number] | null} */
  let zoom = null;
  /** Of which colour a line is: the same in every chart. @param {number} place */
  const numberOf = (place) => data.numbers?.[place] ?? place;
  /** @type {Set<Line>} */
  const hidden = new Set();
  box.querySelector(":scope > svg")?.remove();
  box.querySelector(":scope > .lux-legend")?.remove();
  const svg = draw("svg", { height: HEIGHT, role: "img", "aria-label": data.title, class: "lux-svg", tabindex: 0 });
  const keys = make("div", { class: "lux-keys" });
  box.append(svg, keys);
  /** @type {Map<Line, HTMLElement>} */
  const told = new Map();
  /** @type {ReturnType<typeof scale> | null} */
  let px = null;
  /** @type {{ line: Line, i: number, y: (number | null)[], raw: (number | null)[] | null }[]} */
  let shown = [];
  let at = -1;

  const listLines = () => {
    keys.replaceChildren();
    data.lines.forEach((line, place) => {
      const i = numberOf(place);
      const entry = make("button", { type: "button", "aria-pressed": String(!hidden.has(line)) }), value = make("b");
      entry.append(make("i", { class: `lux-c${i % COLOURS}` }), make("span", {}, line.name + (line.n > 1 ? ` (n=${line.n})` : "")), value);
      entry.onclick = () => {
        if (!hidden.delete(line)) hidden.add(line);
        entry.setAttribute("aria-pressed", String(!hidden.has(line)));
        redraw();
      };
      keys.append(entry);
      told.set(line, value);
    });
  };
  const redraw = () => {
    const width = Math.max(240, box.clientWidth);
    const usable = (/** @type {number | null | undefined} */ v) => v !== null && v !== undefined && (!logY || v > 0);
    const inside = (/** @type {number} */ x) => (zoom === null || (x >= zoom[0] && x <= zoom[1])) && (!data.logX || x > 0);
    shown = data.lines.map((line, place) => ({ line, i: numberOf(place) })).filter(({ line }) => !hidden.has(line)).map(({ line, i }) => {
      if (line.low) return { line, i, y: line.y, raw: null };
      const ground = line.raw ?? line.y;
      return { line, i, y: smoothed(ground, weight), raw: weight ? ground : null };
    });
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const { line, y, raw } of shown) {
      line.x.forEach((x, k) => {
        if (!inside(x)) return;
        if (x < x0) x0 = x;
        if (x > x1) x1 = x;
        for (const part of [y, raw, line.low, line.high]) {
          const v = part?.[k];
          if (v === null || v === undefined || !usable(v)) continue;
          if (v < y0) y0 = v;
          if (v > y1) y1 = v;
        }
      });
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    if (!(x0 <= x1) || !(y0 <= y1)) {
      svg.replaceChildren(draw("text", { x: LEFT, y: HEIGHT / 2 }, shown.length ? "no value that can be drawn" : "no line is chosen"));
      px = null;
      return;
    }
    if (zoom !== null) [x0, x1] = zoom;
    if (x0 === x1) { x0 -= data.logX ? x0 / 2 : 0.5; x1 += 0.5; }
    if (y0 === y1) { const d = Math.abs(y0) * 0.05 || 1; y1 += d; y0 = logY ? y0 / 1.1 : y0 - d; }
    else if (!logY) { const d = (y1 - y0) * 0.04; y0 -= d; y1 += d; }
    px = scale(x0, x1, LEFT, width - RIGHT, data.logX);
    const py = scale(y0, y1, HEIGHT - BOTTOM, TOP, logY), across = px.at;
    const all = document.createDocumentFragment(), clip = `lux-clip-${[...document.querySelectorAll(".lux-svg")].indexOf(svg)}`;
    const frame = draw("clipPath", { id: clip });
    frame.append(draw("rect", { x: LEFT - 4, y: 0, width: width - LEFT - RIGHT + 8, height: HEIGHT - BOTTOM + 4 })); // a dot at an edge is whole
    all.append(frame);
    for (const v of ticks(y0, y1, logY)) {
      all.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py.at(v), y2: py.at(v) }));
      all.append(draw("text", { x: LEFT - 6, y: py.at(v) + 4, "text-anchor": "end" }, mark(v)));
    }
    const sizes = data.marks ? [...new Set(shown.flatMap(({ line }) => line.x))].filter((x) => x >= x0 && x <= x1) : [];
    for (const v of sizes.length > 0 && sizes.length < 9 ? sizes : ticks(x0, x1, data.logX, Math.max(2, width / 80))) {
      all.append(draw("line", { class: "grid", x1: across(v), x2: across(v), y1: TOP, y2: HEIGHT - BOTTOM }));
      all.append(draw("text", { x: Math.min(across(v), width - 16), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, mark(v)));
    }
    all.append(draw("line", { class: "edge", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
    all.append(draw("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, data.x + (zoom ? " (double-click: the whole)" : "")));
    const lines = draw("g", { "clip-path": `url(#${clip})` });
    for (const { line, i, y, raw } of shown) {
      const low = line.low, high = line.high, colour = `lux-s${i % COLOURS}`, dashed = `lux-d${Math.floor(i / COLOURS) % 4}`;
      if (low && high) {
        const good = line.x.map((_, k) => k).filter((k) => usable(low[k]) && usable(high[k]));
        const edge = (/** @type {(number | null)[]} */ side) => good.map((k) => `${across(/** @type {number} */ (line.x[k])).toFixed(1)} ${py.at(/** @type {number} */ (side[k])).toFixed(1)}`);
        if (good.length > 1) lines.append(draw("path", { class: `band ${colour}`, d: `M${edge(high).join("L")}L${edge(low).reverse().join("L")}Z` }));
      }
      if (raw) lines.append(draw("path", { class: `raw ${colour}`, d: pathOf(line.x, raw, across, py.at, usable) }));
      lines.append(draw("path", { class: `curve ${colour} ${dashed}`, d: pathOf(line.x, y, across, py.at, usable) }));
      y.forEach((v, k) => {
        if (!usable(v) || (!data.marks && (usable(y[k - 1]) || usable(y[k + 1])))) return; // a point between gaps has no line
        lines.append(draw("circle", { class: `dot ${colour}`, cx: across(/** @type {number} */ (line.x[k])), cy: py.at(/** @type {number} */ (v)), r: data.marks ? 3 : 2 }));
      });
    }
    all.append(lines);
    svg.replaceChildren(all);
    tell(null);
  };
  const cursor = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  const range = draw("rect", { class: "range", y: TOP, height: HEIGHT - BOTTOM - TOP });
  /** Values where the pointer is; the last ones if it is nowhere. @param {number | null} x */
  const tell = (x) => {
    cursor.remove();
    for (const value of told.values()) value.textContent = "";
    if (px === null) return;
    if (x !== null) {
      cursor.setAttribute("x1", String(px.at(x)));
      cursor.setAttribute("x2", String(px.at(x)));
      svg.append(cursor);
    }
    for (const { line, y } of shown) {
      if (x === null && data.marks) continue;
      let best = -1;
      line.x.forEach((v, k) => {
        if (y[k] !== null && (best < 0 || x === null || Math.abs(v - x) < Math.abs(/** @type {number} */ (line.x[best]) - x))) best = k;
      });
      const value = told.get(line);
      if (best < 0 || value === undefined) continue;
      const band = line.low && line.high && line.low[best] !== null ? ` (${number(line.low[best])} to ${number(line.high[best])})` : "";
      value.textContent = `${number(y[best])}${band} at ${number(line.x[best])}`;
    }
  };
  /** @param {PointerEvent | MouseEvent} event */
  const value = (event) => {
    if (px === null) return null;
    const place = svg.getBoundingClientRect(), x = event.clientX - place.left;
    return x >= LEFT && x <= place.width - RIGHT ? px.back(x) : null;
  };
  /** @type {number | null} */
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    from = value(event);
    if (from !== null) svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const x = value(event);
    if (x === null || px === null) return;
    tell(x);
    if (from !== null && event.buttons) {
      range.setAttribute("x", String(Math.min(px.at(from), px.at(x))));
      range.setAttribute("width", String(Math.abs(px.at(x) - px.at(from))));
      svg.append(range);
    }
  });
  svg.addEventListener("pointerup", (event) => {
    const to = value(event), began = from;
    range.remove();
    from = null;
    if (began !== null && to !== null && px !== null && Math.abs(px.at(began) - px.at(to)) > 8) {
      look([Math.min(began, to), Math.max(began, to)]);
    }
  });
  svg.addEventListener("pointerleave", () => tell(null));
  svg.addEventListener("dblclick", () => look(null));
  svg.addEventListener("keydown", (event) => {
    const xs = shown[0]?.line.x ?? [];
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      at = Math.min(xs.length - 1, Math.max(0, at + (event.key === "ArrowRight" ? 1 : -1)));
      tell(xs[at] ?? null);
    } else if (event.key === "Escape") {
      look(null);
    }
  });
  /** A server that has more points of a part sends them: `lux-part` brings { x, y }. @param {[number, number] | null} to */
  const look = (to) => {
    zoom = to;
    redraw();
    box.dispatchEvent(new CustomEvent("lux-look", { bubbles: true, detail: zoom }));
  };
  box.addEventListener("lux-part", (event) => {
    const line = data.lines[0];
    if (line === undefined || data.lines.length > 1) return;
    Object.assign(line, /** @type {CustomEvent} */ (event).detail);
    redraw();
  });
  // A training that runs sends what is new: { key: [[x, y], ...] }.
  box.addEventListener("lux-points", (event) => {
    let changed = false;
    for (const line of data.lines) {
      const points = /** @type {CustomEvent} */ (event).detail[line.key ?? line.name];
      for (const [x, y] of points ?? []) {
        line.x.push(x);
        line.y.push(y);
        changed = true;
      }
      thinned(line, MOST);
    }
    if (changed) redraw();
  });
  drawnCharts.set(box, {
    smoothing: (to) => { weight = to; redraw(); },
    log: (on) => { logY = on || data.logY; redraw(); },
  });
  listLines();
  onWidth(box, redraw);
}

/**
 * What all charts of a page share: smoothing and a logarithmic axis.
 * @param {HTMLElement} box
 */
export function chartControls(box) {
  const smooth = make("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: box.dataset.smoothing ?? "0" });
  const said = make("output", {}, smooth.value), log = make("input", { type: "checkbox" });
  const left = make("label"), right = make("label");
  left.append("smoothing ", smooth, " ", said);
  right.append(log, " logarithmic");
  box.append(left, right, make("span", { class: "lux-quiet" }, "drag over a chart to look closer"));
  smooth.oninput = () => {
    said.textContent = smooth.value;
    for (const one of chartsHere()) one.smoothing(Number(smooth.value));
  };
  log.onchange = () => { for (const one of chartsHere()) one.log(log.checked); };
}
