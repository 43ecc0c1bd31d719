// The timeline: calls as they went, in lanes, with zoom. What is thinner than a pixel is drawn together, so that a view is
// a few thousand bars however many calls there are; a server that has more sends the view that is looked at.

import { choose, dataOf, make, onChoose, onWidth, plain } from "./dom.js";
import { count, duration, ticks } from "./format.js";
import { fitting, legend } from "./flame.js";

/** @typedef {[name: number, detail: number, start: number, ns: number, depth: number, kind: number, calls: number]} Bar */
/** @typedef {{ name: string, depths: number, bars: Bar[] }} Lane */
/** @typedef {{ title: string, start: number, end: number, lanes: Lane[], words: string[], kinds: string[], leftOut: number, ground?: number | null, src?: string, window?: [number, number] }} View */

const ROW = 18, HEAD = 22, LANE = 18;

/**
 * The window after a zoom by `factor` around a moment, held inside the whole and no narrower than a microsecond.
 * @param {[number, number]} window
 * @param {number} factor
 * @param {number} around
 * @param {[number, number]} whole
 * @returns {[number, number]}
 */
export function zoomed(window, factor, around, whole) {
  const span = Math.min(whole[1] - whole[0], Math.max(1000, (window[1] - window[0]) * factor));
  const part = (around - window[0]) / Math.max(window[1] - window[0], 1);
  const start = Math.min(Math.max(whole[0], around - part * span), whole[1] - span);
  return [start, start + span];
}

/** @param {HTMLElement} box */
export function timeline(box) {
  /** @type {View} */
  const first = dataOf(box);
  let view = first;
  /** @type {[number, number]} */
  const whole = [first.start, Math.max(first.end, first.start + 1)];
  /** @type {[number, number]} */
  let window = first.window ?? [...whole];
  /** @type {Set<string>} */
  let lit = new Set();
  let asked = 0, timer = 0;
  const bar = make("div", { class: "lux-bar" });
  const out = make("button", { type: "button", "aria-label": "Zoom out" }, "−"), closer = make("button", { type: "button", "aria-label": "Zoom in" }, "+");
  const reset = make("button", { type: "button" }, "whole"), span = make("span", { class: "lux-quiet" });
  bar.append(make("span", { class: "lux-quiet" }, first.title), out, closer, reset, span);
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline: ${first.title}. Plus and minus zoom, arrows move.` });
  const said = make("p", { class: "lux-said lux-quiet", role: "status" }, "Drag to move, Ctrl and wheel or + and - to zoom, double-click to look closer.");
  const ground = first.ground ?? -1; // the kind of the time in which a lane has no call
  box.append(legend(first.kinds, new Set([ground, ...first.lanes.flatMap((lane) => lane.bars.map((b) => b[5]))])), bar, canvas, said);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  /** @type {{ x: number, w: number, y: number, bar: Bar }[]} */
  let drawn = [];

  const colours = () => {
    const style = getComputedStyle(box);
    return {
      ink: style.getPropertyValue("--lux-ink"), quiet: style.getPropertyValue("--lux-quiet"), line: style.getPropertyValue("--lux-line"),
      card: style.getPropertyValue("--lux-card"), on: style.getPropertyValue("--lux-on"),
      kinds: first.kinds.map((_, i) => style.getPropertyValue(`--lux-k${i}`)),
    };
  };
  const redraw = () => {
    const width = Math.max(200, box.clientWidth - 2), depth = devicePixelRatio || 1;
    const height = HEAD + view.lanes.reduce((sum, lane) => sum + LANE + lane.depths * ROW + 6, 0);
    canvas.width = width * depth;
    canvas.height = height * depth;
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    context.setTransform(depth, 0, 0, depth, 0, 0);
    const dims = lit.size > 0 && view.lanes.some((lane) => lane.bars.some((one) => lit.has(view.words[one[0]] ?? "")));
    const look = colours(), per = width / (window[1] - window[0]);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const t of ticks(window[0] - whole[0], window[1] - whole[0], false, Math.max(2, width / 110))) {
      const x = (t + whole[0] - window[0]) * per;
      context.fillStyle = look.line;
      context.fillRect(x, HEAD - 4, 1, height);
      context.fillStyle = look.quiet;
      context.fillText(duration(t), Math.min(x + 3, width - 48), 9);
    }
    drawn = [];
    let top = HEAD;
    for (const lane of view.lanes) {
      context.fillStyle = look.quiet;
      context.fillText(plain(lane.name), 4, top + LANE / 2);
      top += LANE;
      if (ground >= 0) {
        context.fillStyle = look.kinds[ground] ?? look.line;
        const from = Math.max(0, (whole[0] - window[0]) * per), to = Math.min(width, (whole[1] - window[0]) * per);
        context.fillRect(from, top, to - from, ROW - 2);
      }
      /** @type {number[]} */
      const filled = [];
      for (const one of lane.bars) {
        const x0 = (one[2] - window[0]) * per, x1 = (one[2] + one[3] - window[0]) * per;
        if (x1 < 0 || x0 > width) continue;
        const x = Math.max(0, x0), w = Math.max(0.8, Math.min(width, x1) - x), y = top + one[4] * ROW;
        if (w < 1 && x1 < (filled[one[4]] ?? -1)) continue; // this pixel has its bar
        filled[one[4]] = Math.floor(x1) + 1;
        const name = view.words[one[0]] ?? "";
        if (dims && !lit.has(name)) {
          context.fillStyle = look.card;
          context.fillRect(x, y, w, ROW - 2);
          context.globalAlpha = 0.25;
        }
        context.fillStyle = look.kinds[one[5]] ?? look.quiet;
        context.fillRect(x, y, w > 3 ? w - 0.5 : w, ROW - 2);
        if (w > 34) {
          context.fillStyle = look.on;
          const most = Math.floor((w - 6) / 6.2);
          context.fillText(plain(fitting(one[6] > 1 ? `${count(one[6])} calls` : name, most)), x + 3, y + ROW / 2 - 1);
        }
        context.globalAlpha = 1;
        drawn.push({ x, w, y, bar: one });
      }
      top += lane.depths * ROW + 6;
    }
    const left = view.leftOut ? `; ${count(view.leftOut)} calls are not shown` : "";
    span.textContent = `${duration(window[1] - window[0])} shown${left}`;
  };
  /** More of what is looked at, from a server that has it. */
  const ask = () => {
    if (first.src === undefined) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++asked, at = new URL(first.src ?? "", location.href);
      at.searchParams.set("start", String(Math.round(window[0])));
      at.searchParams.set("end", String(Math.round(window[1])));
      at.searchParams.set("width", String(Math.round(canvas.clientWidth)));
      try {
        const answer = await fetch(at);
        if (!answer.ok) throw new Error(await answer.text());
        const found = await answer.json();
        if (number === asked) { view = found; redraw(); }
      } catch (error) {
        said.textContent = `This part could not be read: ${error instanceof Error ? error.message : error}`;
      }
    }, 80);
  };
  /** @param {[number, number]} to */
  const go = (to) => {
    window = to;
    redraw();
    ask();
    const all = window[0] === whole[0] && window[1] === whole[1];
    box.dispatchEvent(new CustomEvent("lux-window", { bubbles: true, detail: all ? null : window.map(Math.round) }));
  };
  /** @param {number} factor @param {number} [around] */
  const zoom = (factor, around = (window[0] + window[1]) / 2) => go(zoomed(window, factor, around, whole));
  /** @param {number} ns */
  const move = (ns) => {
    const length = window[1] - window[0], start = Math.min(Math.max(whole[0], window[0] + ns), whole[1] - length);
    go([start, start + length]);
  };
  /** @param {MouseEvent} event */
  const moment = (event) => window[0] + ((event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth) * (window[1] - window[0]);
  /** @param {MouseEvent} event */
  const under = (event) => {
    const place = canvas.getBoundingClientRect(), x = event.clientX - place.left, y = event.clientY - place.top;
    return drawn.findLast((d) => x >= d.x - 1 && x <= d.x + d.w + 1 && y >= d.y && y < d.y + ROW - 1);
  };
  out.onclick = () => zoom(2);
  closer.onclick = () => zoom(0.5);
  reset.onclick = () => go([...whole]);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, moment(event));
    else move((event.deltaX / canvas.clientWidth) * (window[1] - window[0]));
  }, { passive: false });
  canvas.ondblclick = (event) => zoom(0.25, moment(event));
  canvas.onkeydown = (event) => {
    const step = (window[1] - window[0]) / 5;
    /** @type {Record<string, () => void>} */
    const acts = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-step), ArrowRight: () => move(step), Home: () => go([...whole]), 0: () => go([...whole]) };
    const act = acts[event.key];
    if (act) { event.preventDefault(); act(); }
  };
  canvas.onpointerdown = (down) => {
    let last = down.clientX, moved = 0;
    canvas.setPointerCapture(down.pointerId);
    canvas.onpointermove = (event) => {
      moved += Math.abs(event.clientX - last);
      move(((last - event.clientX) / canvas.clientWidth) * (window[1] - window[0]));
      last = event.clientX;
    };
    canvas.onpointercancel = () => { canvas.onpointermove = hover; canvas.onpointerup = null; }; // a finger that scrolls the page
    canvas.onpointerup = (event) => {
      canvas.onpointermove = hover;
      canvas.onpointerup = null;
      const found = under(event);
      if (moved < 4 && found) {
        lit = new Set(found.bar[6] > 1 ? [] : [view.words[found.bar[0]] ?? ""]);
        choose([...lit], box);
        redraw();
      }
    };
  };
  /** @param {PointerEvent} event */
  const hover = (event) => {
    const found = under(event);
    canvas.style.cursor = found ? "pointer" : "grab";
    if (!found) return;
    const [name, detail, start, ns, , , calls] = found.bar;
    const words = `${view.words[name] ?? ""}${view.words[detail] ? `(${view.words[detail]})` : ""}`;
    said.textContent = plain(calls > 1
      ? `${count(calls)} calls in ${duration(ns)}, the longest ${words}, ${duration(start - whole[0])} after the first`
      : `${words}: ${duration(ns)}, ${duration(start - whole[0])} after the first`);
  };
  canvas.onpointermove = hover;
  onChoose(box, (names) => { lit = names; redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  onWidth(box, redraw);
}
