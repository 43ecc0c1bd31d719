// The treemap: what a model is made of, areas are what is chosen (FLOPs, parameters, memory, time).

import { choose, dataOf, make, onChoose, onWidth, plain } from "./dom.js";
import { WRITTEN, share } from "./format.js";
import { legend } from "./flame.js";

/** @typedef {{ name: string, path: string, kind: number, values: number[], children: Part[] }} Part */
/** @typedef {{ root: Part, measures: { name: string, kind: string }[], kinds: string[] }} Parts */
/** @typedef {{ x: number, y: number, w: number, h: number }} Box */

const HEIGHT = 360, HEAD = 18, SMALLEST = 3;

/**
 * Rectangles of these sizes that fill a box, as square as can be (Bruls, Huizing and van Wijk, 2000).
 * @param {number[]} sizes the largest first, all above zero
 * @param {Box} box
 * @returns {Box[]}
 */
export function squarified(sizes, box) {
  const total = sizes.reduce((sum, v) => sum + v, 0), unit = total > 0 ? (box.w * box.h) / total : 0;
  /** @type {Box[]} */
  const placed = [];
  let { x, y, w, h } = box, next = 0;
  while (next < sizes.length) {
    const side = Math.min(w, h);
    let row = 0, sum = 0, worst = Infinity;
    while (next + row < sizes.length) {
      const area = /** @type {number} */ (sizes[next + row]) * unit, first = /** @type {number} */ (sizes[next]) * unit;
      const grown = sum + area;
      const ratio = Math.max((side * side * first) / (grown * grown), (grown * grown) / (side * side * area));
      if (ratio > worst) break;
      worst = ratio;
      sum = grown;
      row += 1;
    }
    const thick = side > 0 ? sum / side : 0;
    let along = 0;
    for (const size of sizes.slice(next, next + row)) {
      const length = thick > 0 ? (size * unit) / thick : 0;
      placed.push(w <= h ? { x: x + along, y, w: length, h: thick } : { x, y: y + along, w: thick, h: length });
      along += length;
    }
    if (w <= h) { y += thick; h -= thick; } else { x += thick; w -= thick; }
    next += row;
  }
  return placed;
}

/** @param {HTMLElement} box */
export function treemap(box) {
  /** @type {Parts} */
  const { root, measures, kinds } = dataOf(box);
  const bar = make("div", { class: "lux-bar" }), label = make("label"), choice = make("select", { "aria-label": "What areas are" });
  measures.forEach((measure, i) => choice.append(make("option", { value: String(i) }, measure.name)));
  label.append("areas are ", choice);
  const where = make("nav", { class: "lux-crumbs", "aria-label": "Where in the model" });
  bar.append(label, where);
  const field = make("div", { class: "lux-treemap" });
  const said = make("p", { class: "lux-said lux-quiet", role: "status" }, "Select a module to look into it; Escape leads back.");
  /** @type {Set<number>} */
  const used = new Set();
  /** @param {Part} part */
  const visit = (part) => { if (part.children.length === 0) used.add(part.kind); part.children.forEach(visit); };
  visit(root);
  box.append(legend(kinds, used), bar, field, said);
  /** @type {Part[]} */
  let path = [root];
  /** @type {Set<string>} */
  let lit = new Set();

  /** @param {Part} part */
  const value = (part) => part.values[Number(choice.value)] ?? 0;
  /** @param {Part} part */
  const written = (part) => (WRITTEN[measures[Number(choice.value)]?.kind ?? ""] ?? String)(value(part));
  /** @param {Part} part */
  const say = (part) => {
    const facts = measures.map((m, i) => `${m.name} ${(WRITTEN[m.kind] ?? String)(part.values[i] ?? 0)}`);
    said.textContent = plain(`${part.path ? `${part.path} (${part.name})` : part.name}: ${facts.join(", ")}; ${share(value(part) / (value(root) || 1))} of all`);
  };
  const redraw = (focus = false) => {
    const width = Math.max(240, field.clientWidth), all = document.createDocumentFragment();
    const from = /** @type {Part} */ (path[path.length - 1]);
    /**
     * @param {Part} part
     * @param {Box} place
     * @param {Part[]} above
     */
    const put = (part, place, above) => {
      if (place.w < SMALLEST || place.h < SMALLEST) return;
      const inner = part.children.filter((child) => value(child) > 0).sort((a, b) => value(b) - value(a));
      const short = part.path.split(".").pop() || part.name;
      const roomy = place.w > 34 && place.h > 15;
      const cell = make("button", { type: "button", class: `lux-cell ${inner.length ? "lux-inner" : `lux-k${part.kind}`}`, title: part.path || part.name }, roomy ? short : "");
      if (roomy && place.w > 7 * (short.length + written(part).length) + 16) cell.append(make("span", { class: "lux-worth" }, written(part)));
      Object.assign(cell.style, { left: `${(100 * place.x) / width}%`, top: `${place.y}px`, width: `${(100 * place.w) / width}%`, height: `${place.h}px` });
      cell.dataset.name = part.path;
      cell.tabIndex = part === from ? 0 : -1;
      cell.onmouseenter = () => say(part);
      cell.onfocus = () => say(part);
      cell.onclick = () => {
        if (inner.length && part !== from) { path = [...above, part]; redraw(true); }
        say(part);
        choose(part === root ? [] : [part.path], box);
      };
      all.append(cell);
      const head = place.h > 3 * HEAD && roomy ? HEAD : 2;
      const rest = { x: place.x + 2, y: place.y + head, w: place.w - 4, h: place.h - head - 2 };
      if (rest.w < 2 * SMALLEST || rest.h < 2 * SMALLEST) return;
      // A module's own part (what no module inside has) keeps its area empty.
      const covered = inner.reduce((sum, child) => sum + value(child), 0), own = Math.max(0, value(part) - covered);
      const sizes = own > 0 ? [...inner.map(value), own].sort((a, b) => b - a) : inner.map(value);
      const places = squarified(sizes, rest), skip = own > 0 ? sizes.indexOf(own) : -1;
      let next = 0;
      places.forEach((at, i) => {
        const child = i === skip ? undefined : inner[next++];
        if (child) put(child, at, [...above, part]);
      });
    };
    put(from, { x: 0, y: 0, w: width, h: HEIGHT }, path.slice(0, -1));
    field.style.height = `${HEIGHT}px`;
    field.replaceChildren(all);
    const leaves = /** @type {HTMLElement[]} */ ([...field.querySelectorAll(":not(.lux-inner)")]);
    const is = leaves.map(({ dataset: { name: path = "" } }) => [...lit].some((name) => path === name || path.startsWith(`${name}.`)));
    leaves.forEach((cell, i) => cell.classList.toggle("lux-dim", is.includes(true) && !is[i])); // what is not in this model dims nothing
    if (focus) /** @type {HTMLElement | null} */ (field.firstElementChild)?.focus();
    where.replaceChildren();
    if (path.length > 1) {
      path.forEach((part, i) => {
        const step = make("button", { type: "button" }, i === 0 ? "whole" : part.path.split(".").pop() || part.name);
        step.onclick = () => { path = path.slice(0, i + 1); redraw(true); };
        where.append(step);
      });
    }
  };
  choice.onchange = () => {
    redraw();
    document.dispatchEvent(new CustomEvent("lux-measure", { detail: measures[Number(choice.value)]?.name }));
  };
  // What stands side by side is compared by the same measure.
  const follow = (/** @type {Event} */ event) => {
    if (!box.isConnected) return document.removeEventListener("lux-measure", follow);
    const to = String(measures.findIndex(({ name }) => name === /** @type {CustomEvent} */ (event).detail));
    if (to === "-1" || to === choice.value) return undefined;
    choice.value = to;
    return redraw();
  };
  document.addEventListener("lux-measure", follow);
  field.addEventListener("keydown", (event) => {
    const cells = /** @type {HTMLElement[]} */ ([...field.children]);
    const at = cells.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 0;
    if (step && at >= 0) { event.preventDefault(); cells[Math.min(cells.length - 1, Math.max(0, at + step))]?.focus(); }
    else if (event.key === "Escape" && path.length > 1) { path = path.slice(0, -1); redraw(true); }
  });
  onChoose(box, (names) => { lit = names; redraw(); });
  onWidth(box, () => redraw());
}
