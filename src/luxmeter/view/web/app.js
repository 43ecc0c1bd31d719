// The app: links and forms change only the main part of the page, and a run that goes on sends what is new.

import { make } from "./dom.js";
import { enhance } from "./main.js";

const main = () => /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {EventSource | null} */
let stream = null;
let asked = 0;

/**
 * Show another address; without history when the browser went there itself.
 * @param {string} address
 * @param {boolean} remember
 */
async function go(address, remember) {
  const number = ++asked;
  main().setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" } });
    if (!(answer.headers.get("content-type") ?? "").startsWith("text/html")) {
      location.href = address;
      return;
    }
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (number !== asked) return;
    if (found === null) {
      location.href = address;
      return;
    }
    if (remember) history.pushState(null, "", answer.url);
    main().replaceWith(found);
    document.title = `${found.dataset.title ?? ""} - luxmeter`;
    if (remember) scrollTo(0, 0);
    begin();
  } catch (error) {
    main().removeAttribute("aria-busy");
    say(`The server does not answer: ${error instanceof Error ? error.message : error}`);
  }
}

/** @param {string} text */
function say(text) {
  document.getElementById("said")?.remove();
  main().prepend(make("p", { id: "said", class: "lux-error", role: "alert" }, text));
}

/** Make the main part alive. */
function begin() {
  enhance(document);
  follow();
}

/** One stream a page, closed while nobody looks. */
function follow() {
  stream?.close();
  stream = null;
  const box = /** @type {HTMLElement | null} */ (document.querySelector("[data-live]"));
  if (box === null || document.hidden) return;
  const opened = new EventSource(box.dataset.live ?? "");
  stream = opened;
  opened.addEventListener("news", (event) => {
    const news = JSON.parse(/** @type {MessageEvent} */ (event).data);
    const at = new URL(box.dataset.live ?? "", location.href);
    at.searchParams.set("after", /** @type {MessageEvent} */ (event).lastEventId);
    box.dataset.live = at.pathname + at.search;
    if (news.points) points(news.points);
    if (news.output) output(news.output);
    if (news.state) {
      opened.close();
      go(location.href, false);
    }
  });
  opened.addEventListener("gone", (event) => {
    opened.close();
    say(JSON.parse(/** @type {MessageEvent} */ (event).data).said);
  });
}

/** @param {Record<string, [number, number | null][]>} found */
function points(found) {
  const charts = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-lux="chart"]'));
  const known = new Set([...charts].map((chart) => chart.dataset.key));
  for (const chart of charts) chart.dispatchEvent(new CustomEvent("lux-points", { detail: found }));
  if (Object.keys(found).some((key) => !known.has(key))) go(location.href, false); // a metric that is new
}

/** @param {string} text */
function output(text) {
  const log = document.querySelector('[aria-label="Output"] pre');
  if (!(log instanceof HTMLElement)) return;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(text);
  const whole = log.textContent ?? "";
  if (whole.length > 200000) log.textContent = whole.slice(-100000);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (link === null || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.pathname.includes("/files/") || link.hash !== "") return;
  event.preventDefault();
  go(link.href, true);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.method !== "get") return;
  event.preventDefault();
  const at = new URL(form.action);
  const values = [...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
  at.search = new URLSearchParams(values).toString();
  go(at.href, true);
});
addEventListener("popstate", () => { go(location.href, false); });
document.addEventListener("visibilitychange", follow);
follow();
