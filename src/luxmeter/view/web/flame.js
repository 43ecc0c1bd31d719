// The flame graph: who called what, width is time. Colours are kinds of calls, and the legend says which.

import { choose, dataOf, make, onChoose, onWidth, plain } from "./dom.js";
import { count, duration, share, shortName } from "./format.js";

/** @typedef {[name: string, ns: number, calls: number, kind: number, children: Node[]]} Node `calls` is 0 of time that is no call's. */

const ROW = 20, THINNEST = 0.04, LETTER = 6.9, HINT = "Width is time. Select a bar to look into it; arrows move, Escape leads back.";

/**
 * The bars of a node and all below it, in percent of the width: what is too thin to be seen is left out.
 * @param {Node} node
 * @returns {{ node: Node, left: number, width: number, depth: number, above: Node[] }[]}
 */
export function barsOf(node) {
  /** @type {{ node: Node, left: number, width: number, depth: number, above: Node[] }[]} */
  const bars = [];
  /**
   * @param {Node} at
   * @param {number} left
   * @param {number} width
   * @param {number} depth
   * @param {Node[]} above
   */
  const put = (at, left, width, depth, above) => {
    if (width < THINNEST) return;
    bars.push({ node: at, left, width, depth, above });
    const here = [...above, at];
    let x = left;
    for (const child of at[4]) {
      const w = (width * child[1]) / Math.max(at[1], 1);
      put(child, x, w, depth + 1, here);
      x += w;
    }
  };
  put(node, 0, 100, 0, []);
  return bars;
}

/**
 * A node as if the time of a kind that is no call's had not been.
 * @param {Node} node
 * @param {number} kind
 * @returns {Node}
 */
export function without(node, kind) {
  const kept = node[4].filter((child) => child[2] > 0 || child[3] !== kind).map((child) => without(child, kind));
  const gone = node[4].reduce((sum, child) => sum + child[1], 0) - kept.reduce((sum, child) => sum + child[1], 0);
  return [node[0], node[1] - gone, node[2], node[3], kept];
}

/**
 * "Linear (encoder.0)" -> its name and its place in the model.
 * @param {string} title
 */
export const namesOf = (title) => title.split(/ \((.*)\)$/).filter(Boolean);

/**
 * The longest way to write a name that fits: whole, without its package, without its place.
 * @param {string} title
 * @param {number} letters
 */
export function fitting(title, letters) {
  const [name = title, place] = namesOf(title), words = name.split(".");
  const last = words[words.length - 1] || name, two = words.slice(-2).join("."), known = /^[a-z]/.test(last) ? two : last; // Conv2d, but Adam.step
  const found = [shortName(title), place ? `${known} (${place})` : "", place ? `${known} (${place.replace(/^.*\./, "")})` : "", known, last].find((text) => text !== "" && text.length <= letters);
  return found ?? (letters < 3 ? "" : `${last.slice(0, letters - 1)}…`);
}

/**
 * @param {string[]} kinds
 * @param {Set<number>} used
 */
export function legend(kinds, used) {
  const list = make("ul", { class: "lux-legend" });
  kinds.forEach((kind, i) => {
    if (!used.has(i)) return;
    const entry = make("li");
    entry.append(make("i", { class: `lux-k${i}` }), kind);
    list.append(entry);
  });
  return list;
}

/** @param {HTMLElement} box */
export function flame(box) {
  /** @type {{ root: Node, kinds: string[], ground?: number | null, groundSaid?: string }} */
  const { root: whole, kinds, ground, groundSaid } = dataOf(box);
  // The time that no call had is drawn beside the calls; where it is most of all, it is left out until it is asked for.
  const inside = without(whole, ground ?? -1), outside = whole[1] - inside[1];
  let root = outside > whole[1] / 2 ? inside : whole;
  const where = make("nav", { class: "lux-crumbs", "aria-label": "Where in the graph" });
  const field = make("div", { class: "lux-flames" });
  const said = make("p", { class: "lux-said lux-quiet", role: "status" });
  /** @type {Set<number>} */
  const used = new Set();
  for (const { node } of barsOf(whole)) if (node !== whole) used.add(node[3]);
  box.append(legend(kinds, used));
  /** @type {Node[]} */
  let path = [root];
  if (outside) {
    const label = make("label", { class: "lux-quiet" }), choice = make("input", { type: "checkbox" });
    choice.checked = root === whole;
    choice.onchange = () => { root = choice.checked ? whole : inside; path = [root]; redraw(false); };
    label.append(choice, ` with the time ${groundSaid || `outside the calls: ${duration(outside)}`}`);
    box.append(label);
  }
  box.append(where, field, said);
  /** @type {Set<string>} */
  let lit = new Set();

  /** @param {Node} node */
  const say = (node) => {
    const calls = node[2] > 0 ? ` in ${count(node[2])} calls` : "";
    said.textContent = `${plain(node[0])}: ${duration(node[1])}${calls}${node === root ? "" : `, ${share(node[1] / Math.max(root[1], 1))} of all`}${node === root ? `. ${HINT}` : ""}`;
  };
  const light = () => {
    const bars = /** @type {HTMLElement[]} */ ([...field.children]), is = bars.map((bar) => namesOf(bar.title).some((name) => lit.has(name)));
    bars.forEach((bar, i) => bar.classList.toggle("lux-dim", is.includes(true) && !is[i])); // what is not in this graph dims nothing
  };
  /** @param {boolean} focus */
  const redraw = (focus) => {
    const at = /** @type {Node} */ (path[path.length - 1]), above = path.slice(0, -1);
    const bars = barsOf(at), depths = 1 + bars.reduce((most, bar) => Math.max(most, bar.depth), 0);
    const all = document.createDocumentFragment();
    for (const { node, left, width, depth, above: between } of bars) {
      const pixels = (width / 100) * field.clientWidth, kind = node === root ? "lux-all" : `lux-k${node[3]}`;
      const bar = make("button", { type: "button", class: `lux-f ${kind}${pixels < 8 ? " thin" : ""}`, title: node[0] }, fitting(node[0], Math.floor((pixels - 7) / LETTER)));
      bar.tabIndex = depth === 0 ? 0 : -1;
      Object.assign(bar.style, { left: `${left}%`, width: `${width}%`, top: `${depth * ROW}px` });
      bar.onmouseenter = () => say(node);
      bar.onfocus = () => say(node);
      bar.onclick = () => {
        path = [...above, ...between, node];
        lit = new Set();
        choose(node === root ? [] : namesOf(node[0]), box);
        redraw(true);
      };
      all.append(bar);
    }
    field.replaceChildren(all);
    field.style.height = `${depths * ROW}px`;
    where.replaceChildren();
    if (path.length > 1) {
      path.forEach((node, i) => {
        const step = make("button", { type: "button" }, i === 0 ? "whole" : shortName(node[0]));
        step.onclick = () => { path = path.slice(0, i + 1); redraw(true); };
        where.append(step);
      });
    }
    say(at);
    light();
    if (focus) /** @type {HTMLElement | null} */ (field.firstElementChild)?.focus();
  };
  field.addEventListener("keydown", (event) => {
    const bars = /** @type {HTMLElement[]} */ ([...field.children]);
    const at = bars.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 0;
    if (step && at >= 0) {
      event.preventDefault();
      bars[Math.min(bars.length - 1, Math.max(0, at + step))]?.focus();
    } else if (event.key === "Escape" && path.length > 1) {
      path = path.slice(0, -1);
      redraw(true);
    }
  });
  onChoose(box, (names) => { lit = names; light(); });
  onWidth(box, () => redraw(false));
}
