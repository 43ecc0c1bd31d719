// Parallel coordinates: each run a line across its parameters and metrics; ranges are chosen by dragging along an axis.

import { dataOf, draw, make, onPress, onWidth, plain } from "./dom.js";
import { mark, number, scale, ticks } from "./format.js";

/** @typedef {{ name: string, log: boolean, numeric: boolean, values: (number | string | null)[] }} Axis */
/** @typedef {{ title: string, names: string[], links?: string[], axes: Axis[] }} Lines */

const HEIGHT = 340, TOP = 40, BOTTOM = 44, NONE = HEIGHT - 14; // NONE: where a run passes that has no value

/**
 * Where a value lies on its axis, and the marks beside it.
 * @param {Axis} axis
 * @returns {{ at: (v: number | string) => number, marks: [number, string][] }}
 */
function axisScale(axis) {
  if (axis.numeric) {
    const known = /** @type {number[]} */ (axis.values.filter((v) => v !== null));
    const low = Math.min(...known), high = Math.max(...known);
    const place = scale(low, high === low ? low + (axis.log ? low : 1) : high, HEIGHT - BOTTOM, TOP, axis.log);
    const few = [...new Set(known)], shown = few.length <= 7 ? few : ticks(low, high, axis.log);
    return { at: (v) => place.at(Number(v)), marks: shown.map((v) => [place.at(v), mark(v)]) };
  }
  const words = [...new Set(axis.values.filter((v) => v !== null).map(String))].sort();
  const at = (/** @type {number | string} */ w) =>
    words.length < 2 ? (TOP + HEIGHT - BOTTOM) / 2 : HEIGHT - BOTTOM - (words.indexOf(String(w)) / (words.length - 1)) * (HEIGHT - BOTTOM - TOP);
  return { at, marks: words.slice(0, 24).map((w) => [at(w), w.length > 20 ? `${w.slice(0, 19)}…` : w]) };
}

/** @param {HTMLElement} box */
export function parallel(box) {
  /** @type {Lines} */
  const { title, names, axes } = dataOf(box);
  const frame = make("div", { class: "lux-scroll" });
  const said = make("p", { class: "lux-said lux-quiet", role: "status" }, "Drag along an axis to choose a range; select an axis' name to colour by it, a line to see its values.");
  box.append(frame, said);
  const scales = axes.map(axisScale);
  /** @type {Map<number, [number, number]>} */
  const ranges = new Map();
  let chosen = axes.length - 1, on = -1;

  /** @param {number} row */
  const shade = (row) => {
    const v = axes[chosen]?.values[row], place = scales[chosen];
    if (v === null || v === undefined || place === undefined) return "var(--lux-quiet)";
    const part = 1 - (place.at(v) - TOP) / (HEIGHT - BOTTOM - TOP);
    return `hsl(${(260 - 215 * part).toFixed(0)} 65% calc(var(--lux-light) + ${(8 * part).toFixed(0)}%))`;
  };
  const redraw = () => {
    const width = Math.max(box.clientWidth - 4, 110 * axes.length), gap = (width - 130) / Math.max(1, axes.length - 1);
    const svg = draw("svg", { height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": title, class: "lux-svg" });
    svg.style.width = `${width}px`;
    const at = (/** @type {number} */ i) => 40 + i * gap;
    names.forEach((name, row) => {
      let d = "", pen = "M", off = false;
      axes.forEach((axis, i) => {
        const v = axis.values[row], y = v === null || v === undefined ? null : scales[i]?.at(v) ?? null, range = ranges.get(i);
        if (range && (y === null || y < range[0] || y > range[1])) off = true;
        d += `${pen}${at(i).toFixed(1)} ${(y ?? NONE).toFixed(1)}`;
        pen = "L";
      });
      const line = draw("path", { class: `row${off ? " off" : ""}${row === on ? " on" : ""}`, d, stroke: shade(row), tabindex: off ? -1 : 0 });
      const tell = () => {
        on = row;
        for (const other of svg.querySelectorAll(".row.on")) other.classList.remove("on");
        line.classList.add("on");
        const values = axes.map((axis) => `${axis.name} ${axis.numeric ? number(/** @type {number | null} */ (axis.values[row])) : axis.values[row] ?? "-"}`);
        said.textContent = plain(`${name}: ${values.join(", ")}`);
      };
      line.addEventListener("click", tell);
      line.addEventListener("focus", tell);
      svg.append(line);
    });
    axes.forEach((axis, i) => {
      svg.append(draw("line", { class: "edge", x1: at(i), x2: at(i), y1: TOP, y2: HEIGHT - BOTTOM }));
      if (axis.values.includes(null)) svg.append(draw("text", { class: "halo", x: at(i) + 5, y: NONE + 4 }, "none"));
      let above = Infinity;
      for (const [y, words] of (scales[i]?.marks ?? []).toSorted((a, b) => b[0] - a[0])) {
        if (above - y < 11) continue; // no word on another
        above = y;
        svg.append(draw("text", { class: "halo", x: at(i) + 5, y: y + 4 }, words));
      }
      const name = draw("text", { class: `axis-name${i === chosen ? " chosen" : ""}`, x: at(i), y: i % 2 && gap < 120 ? 30 : 14, "text-anchor": i === 0 ? "start" : "middle", tabindex: 0 }, axis.name.length > 26 ? `…${axis.name.slice(-25)}` : axis.name);
      onPress(name, () => { chosen = i; redraw(); });
      svg.append(name);
      const range = ranges.get(i);
      if (range) svg.append(draw("rect", { class: "brush", x: at(i) - 7, width: 14, y: range[0], height: range[1] - range[0] }));
      const grab = draw("rect", { class: "grab", x: at(i) - 9, width: 18, y: TOP - 6, height: HEIGHT - BOTTOM - TOP + 12 });
      grab.addEventListener("pointerdown", (down) => {
        const place = svg.getBoundingClientRect();
        const y = (/** @type {PointerEvent} */ event) => Math.min(HEIGHT - BOTTOM + 6, Math.max(TOP - 6, event.clientY - place.top));
        const from = y(down);
        const move = (/** @type {PointerEvent} */ event) => { ranges.set(i, [Math.min(from, y(event)), Math.max(from, y(event))]); redraw(); };
        const up = (/** @type {PointerEvent} */ event) => {
          removeEventListener("pointermove", move);
          removeEventListener("pointerup", up);
          if (Math.abs(y(event) - from) < 4) { ranges.delete(i); redraw(); }
        };
        addEventListener("pointermove", move);
        addEventListener("pointerup", up);
        down.preventDefault();
      });
      svg.append(grab);
    });
    frame.replaceChildren(svg);
  };
  onWidth(box, redraw);
}
