// A table that Python wrote: sorted by its columns, filtered by words, and in step with the graph beside it.

import { choose, make, onChoose, onPress } from "./dom.js";
import { count } from "./format.js";

const FEW = 12; // rows that need no filter

/** @type {Record<string, number>} */
const UNITS = {
  "": 1, "%": 0.01, x: 1, ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400,
  B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
};

/**
 * The amount that a text says: `0.25`, `1,024`, `97.5 MiB`, `1 h 6 min`, the mean of `0.86 ± 0.05`; null if it is none.
 * @param {string} text
 */
export function amountIn(text) {
  const said = text.replace(/ ±.*$/, "").replaceAll(",", "");
  if (!/^[+-]?\d[\d.]*(e[+-]?\d+)?( ?[A-Za-z%]+( \d+ [a-z]+)*)?$/.test(said)) return null;
  let sum = 0;
  for (const [, value, unit] of said.matchAll(/([+-]?\d[\d.]*(?:e[+-]?\d+)?) ?([A-Za-z%]*)/g)) sum += Number(value) * (UNITS[unit ?? ""] ?? NaN);
  return Number.isFinite(sum) ? sum : null;
}

/**
 * What a cell is sorted by: its raw number where there is one, else its text. Nothing comes last.
 * @param {HTMLTableCellElement | undefined} cell
 * @returns {number | string | null}
 */
export function sortValue(cell) {
  if (cell === undefined) return null;
  const raw = cell.dataset.v;
  if (raw !== undefined) return raw === "" ? null : Number(raw);
  const text = (cell.textContent ?? "").trim();
  return text === "" || text === "-" ? null : amountIn(text) ?? text;
}

/**
 * @param {number | string | null} a
 * @param {number | string | null} b
 * @param {boolean} down
 */
export function inOrder(a, b, down) {
  if (a === b) return 0;
  if (a === null || Number.isNaN(a)) return 1;
  if (b === null || Number.isNaN(b)) return -1;
  if (typeof a === "string" && typeof b === "string") return (down ? -1 : 1) * a.localeCompare(b, "en", { numeric: true });
  const before = typeof a === typeof b ? a < b : typeof a === "number"; // numbers before words
  return (down ? -1 : 1) * (before ? -1 : 1);
}

/**
 * Whether a row has every word; `-word` must not be there.
 * @param {string} text in lower case
 * @param {string[]} words
 */
export function hasWords(text, words) {
  return words.every((word) => (word.length > 1 && word[0] === "-" ? !text.includes(word.slice(1)) : text.includes(word)));
}

/** @param {HTMLElement} box */
export function table(box) {
  const grid = box.querySelector("table"), head = grid?.tHead?.rows[0], body = grid?.tBodies[0];
  if (!grid || !head || !body || box.dataset.server !== undefined) return;
  const all = [...body.rows];
  const texts = all.map((row) => (row.textContent ?? "").toLowerCase());
  const place = new Map(all.map((row, i) => [row, i]));

  [...head.cells].forEach((cell, column) => {
    const press = make("button", { type: "button", class: "lux-sort" }, cell.textContent ?? "");
    cell.replaceChildren(press);
    press.onclick = () => {
      const numeric = cell.classList.contains("n"), was = cell.getAttribute("aria-sort");
      const down = was === null ? numeric : was === "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = all.map((row) => ({ row, key: sortValue(row.cells[column]) }));
      keyed.sort((a, b) => inOrder(a.key, b.key, down) || (place.get(a.row) ?? 0) - (place.get(b.row) ?? 0));
      body.append(...keyed.map(({ row }) => row));
    };
  });

  const said = make("p", { class: "lux-quiet lux-counted", role: "status" });
  if (all.length > FEW) {
    const bar = make("div", { class: "lux-bar" });
    const filter = make("input", { type: "search", class: "lux-filter", placeholder: "filter: words in a row, -word without it", "aria-label": "Filter rows" });
    filter.oninput = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      all.forEach((row, i) => {
        const is = hasWords(texts[i] ?? "", words);
        row.hidden = !is;
        shown += is ? 1 : 0;
      });
      const first = all.find((row) => !row.hidden && row.dataset.name !== undefined);
      if (first !== undefined) for (const row of all) if (row.dataset.name !== undefined) row.tabIndex = row === first ? 0 : -1;
      said.textContent = words.length ? `${count(shown)} of ${count(all.length)} rows` : "";
    };
    bar.append(filter);
    box.prepend(bar);
    (box.querySelector(".lux-scroll") ?? grid).after(said);
  }

  if (all.some((row) => row.dataset.name !== undefined)) rowsAlike(box, all);
}

/**
 * Rows that have names are chosen with what is called so elsewhere on the page. They are one stop of Tab; arrows go on.
 * @param {HTMLElement} box
 * @param {HTMLTableRowElement[]} all
 */
function rowsAlike(box, all) {
  /** @param {Set<string>} names */
  const light = (names) => {
    let first = true;
    for (const row of all) {
      const is = names.has(row.dataset.name || " ");
      row.classList.toggle("lux-lit", is);
      if (is && first && row.offsetParent !== null) {
        const frame = box.querySelector(".lux-scroll");
        if (frame instanceof HTMLElement) frame.scrollTop = Math.max(0, row.offsetTop - frame.clientHeight / 3);
        first = false;
      }
    }
  };
  all.forEach((row, i) => {
    row.tabIndex = i === 0 ? 0 : -1;
    onPress(row, () => {
      const names = row.classList.contains("lux-lit") ? [] : [row.dataset.name ?? ""];
      light(new Set(names));
      choose(names, box);
    });
  });
  box.addEventListener("keydown", (event) => {
    const from = document.activeElement, step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0 || !(from instanceof HTMLTableRowElement)) return;
    event.preventDefault();
    const there = /** @type {HTMLTableRowElement[]} */ ([...from.parentElement?.children ?? []]).filter((row) => !row.hidden);
    const next = there[there.indexOf(from) + step];
    if (next === undefined) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  onChoose(box, light);
}

/**
 * Sections that are shown one at a time; without script one below the other.
 * @param {HTMLElement} box
 */
export function tabs(box) {
  const parts = /** @type {HTMLElement[]} */ ([...box.children].filter((part) => part instanceof HTMLElement && part.dataset.tab !== undefined));
  if (parts.length < 2) return;
  const list = make("div", { class: "lux-tabs", role: "tablist" });
  /** @param {number} chosen */
  const show = (chosen) => {
    parts.forEach((part, i) => { part.hidden = i !== chosen; });
    [...list.children].forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === chosen));
      /** @type {HTMLElement} */ (tab).tabIndex = i === chosen ? 0 : -1;
    });
  };
  parts.forEach((part, i) => {
    part.setAttribute("role", "tabpanel");
    const tab = make("button", { type: "button", role: "tab" }, part.dataset.tab ?? "");
    tab.onclick = () => show(i);
    tab.onkeydown = (event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (step) {
        const next = (i + step + parts.length) % parts.length;
        show(next);
        /** @type {HTMLElement} */ (list.children[next]).focus();
      }
    };
    list.append(tab);
  });
  box.prepend(list);
  show(0);
}

/**
 * A tree in a table: rows know their depth, and those with rows below them fold, by a click on their name or by arrows.
 * @param {HTMLElement} box
 */
export function tree(box) {
  const rows = [...(box.querySelector("table")?.tBodies[0]?.rows ?? [])];
  const open = Number(box.dataset.open ?? "2");
  /** @param {HTMLTableRowElement} row */
  const depth = (row) => Number(row.dataset.depth ?? "0");
  const redraw = () => {
    let shut = Infinity;
    for (const row of rows) {
      if (depth(row) <= shut) shut = Infinity;
      row.hidden = shut !== Infinity;
      if (shut === Infinity && row.getAttribute("aria-expanded") === "false") shut = depth(row);
    }
  };
  rows.forEach((row, i) => {
    const next = rows[i + 1], cell = row.cells[0];
    if (next === undefined || depth(next) <= depth(row) || cell === undefined) return;
    row.setAttribute("aria-expanded", String(depth(row) < open));
    cell.classList.add("lux-fold");
    const fold = (/** @type {boolean} */ to) => { row.setAttribute("aria-expanded", String(to)); redraw(); };
    cell.onclick = (event) => { event.stopPropagation(); fold(row.getAttribute("aria-expanded") !== "true"); };
    row.addEventListener("keydown", (event) => { if (event.key === "ArrowRight" || event.key === "ArrowLeft") { event.preventDefault(); fold(event.key === "ArrowRight"); } });
  });
  rowsAlike(box, rows);
  redraw();
}
