// Every box that says what it is (`data-lux`) becomes that: once when the page is there, and whenever a part of it is new.

import { chart, chartControls } from "./curves.js";
import { flame } from "./flame.js";
import { parallel } from "./parallel.js";
import { table, tabs, tree } from "./table.js";
import { timeline } from "./timeline.js";
import { treemap } from "./treemap.js";

/** @type {Record<string, (box: HTMLElement) => void>} */
const COMPONENTS = { chart, chartControls, flame, parallel, table, tabs, timeline, tree, treemap };

/** @param {ParentNode} within */
export function enhance(within) {
  for (const box of /** @type {NodeListOf<HTMLElement>} */ (within.querySelectorAll("[data-lux]"))) {
    if (box.dataset.ready !== undefined) continue;
    box.dataset.ready = "";
    for (const name of (box.dataset.lux ?? "").split(" ")) {
      try {
        COMPONENTS[name]?.(box);
      } catch (error) {
        box.append(`This could not be drawn: ${error instanceof Error ? error.message : error}`);
        console.error(error);
      }
    }
  }
}

enhance(document);
