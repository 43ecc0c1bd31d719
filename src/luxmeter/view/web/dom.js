// What every component is made with: elements, the data that Python laid into the page, and how components talk.

const SVG = "http://www.w3.org/2000/svg";
const STEERING = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Text with the characters spelled out that would turn what stands beside them around, as luxmeter.plain_text does.
 * @param {string} text
 */
export const plain = (text) => text.replace(STEERING, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string>} [attributes]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, text = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== "") element.textContent = plain(text);
  return element;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {string} [text]
 * @returns {SVGElement}
 */
export function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== "") element.textContent = plain(text);
  return /** @type {SVGElement} */ (element);
}

/**
 * The data block of a component, right inside its box.
 * @param {Element} box
 * @returns {any}
 */
export function dataOf(box) {
  const block = box.querySelector(':scope > script[type="application/json"]');
  return block === null ? null : JSON.parse(block.textContent ?? "null");
}

/**
 * A click and its twin on the keyboard.
 * @param {HTMLElement | SVGElement} element
 * @param {() => void} act
 */
export function onPress(element, act) {
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => {
    const key = /** @type {KeyboardEvent} */ (event).key;
    if (key === "Enter" || key === " ") {
      event.preventDefault();
      act();
    }
  });
}

/**
 * Say to the other components of the page what was chosen: a name, and a module's place in its model; no name is none.
 * @param {string[]} names
 * @param {Element} from
 */
export function choose(names, from) {
  document.dispatchEvent(new CustomEvent("lux-choose", { detail: { names: new Set(names.filter(Boolean)), from } }));
}

/**
 * @param {Element} own
 * @param {(names: Set<string>) => void} heard
 */
export function onChoose(own, heard) {
  const hear = (/** @type {Event} */ event) => {
    const { names, from } = /** @type {CustomEvent} */ (event).detail;
    if (!own.isConnected) document.removeEventListener("lux-choose", hear); // its page is gone
    else if (from !== own) heard(names);
  };
  document.addEventListener("lux-choose", hear);
}

/**
 * Draw now and whenever the box gets another width.
 * @param {Element} box
 * @param {() => void} redraw
 */
export function onWidth(box, redraw) {
  let width = -1;
  new ResizeObserver(() => {
    const now = Math.round(box.clientWidth);
    if (now !== width && now > 0) {
      width = now;
      redraw();
    }
  }).observe(box);
}
