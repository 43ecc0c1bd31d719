// The app: links and forms change only the main part of the page, and a run that goes on sends what is new.
// What is shown stands in the address, so that it can be shared and the back button works.

import { make } from "./dom.js";
import { enhance } from "./main.js";

const main = () => /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {EventSource | null} */
let stream = null;
let asked = 0;

/**
 * Show another address. `remember`: as a new step of the history, else in place of the one at hand.
 * @param {string} address
 * @param {boolean} remember
 * @param {number} [scroll] where to, in the page
 */
async function go(address, remember, scroll) {
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
    if (remember) {
      history.replaceState({ scroll: scrollY }, "");
      history.pushState(null, "", answer.url);
    }
    main().replaceWith(found);
    document.title = `${found.dataset.title ?? ""} - luxmeter`;
    enhance(found);
    follow();
    if (scroll !== undefined) scrollTo(0, scroll);
    else if (remember) scrollTo(0, 0);
  } catch (error) {
    if (number !== asked) return;
    main().removeAttribute("aria-busy");
    say(`The server does not answer: ${error instanceof Error ? error.message : error}. Is luxmeter ui still running?`);
  }
}

/** The page at hand as it is now, if it says that it goes stale, while it is looked at and nobody is at work on it. */
let seen = "", timer = 0;
function keepFresh() {
  clearTimeout(timer);
  const box = /** @type {HTMLElement | null} */ (document.querySelector("[data-again]"));
  if (box === null || document.hidden) return;
  timer = setTimeout(async () => {
    const at = location.href;
    try {
      const answer = await fetch(at, { headers: { accept: "text/html" } }), text = await answer.text();
      if (location.href !== at || !box.isConnected) return; // another page by now
      const found = new DOMParser().parseFromString(text, "text/html").getElementById("main");
      const busy = main().contains(document.activeElement) || !(getSelection()?.isCollapsed ?? true);
      say(answer.ok ? "" : found?.querySelector("[role=alert]")?.textContent ?? "The server could not answer.");
      if (answer.ok && found !== null && text !== seen && !busy) {
        seen = text;
        main().replaceWith(found);
        enhance(found);
      }
    } catch {
      say("The server does not answer: this page shows what it knew. It goes on when the server is back.");
    }
    keepFresh();
  }, 1000 * Number(box.dataset.again));
}

/** A sentence above the page; none takes it away. @param {string} text */
function say(text) {
  document.getElementById("said")?.remove();
  if (text) main().prepend(make("p", { id: "said", class: "lux-error", role: "alert" }, text));
}

/** One stream a page, closed while nobody looks. */
function follow() {
  stream?.close();
  stream = null;
  keepFresh();
  const box = /** @type {HTMLElement | null} */ (document.querySelector("[data-live]")), log = document.querySelector("pre[data-end]");
  if (log !== null) log.scrollTop = log.scrollHeight;
  if (box === null || document.hidden) return;
  const opened = new EventSource(box.dataset.live ?? "");
  stream = opened;
  opened.onopen = () => say("");
  opened.onerror = () => { if (stream === opened) say("The server does not answer: this page shows what it knew. It goes on when the server is back."); };
  opened.addEventListener("news", (event) => {
    const { data, lastEventId } = /** @type {MessageEvent} */ (event), news = JSON.parse(data);
    const at = new URL(box.dataset.live ?? "", location.href);
    at.searchParams.set("after", lastEventId); // from there it goes on, when it was closed meanwhile
    box.dataset.live = at.pathname + at.search;
    if (news.output) output(news.output);
    if (news.metrics) numbers(news.metrics);
    const progress = document.getElementById("progress");
    if (news.progress !== undefined && progress) progress.textContent = news.progress;
    if (news.trouble !== undefined) say(news.trouble);
    if (news.state) {
      opened.close();
      go(location.href, false, scrollY);
    } else if (news.points) points(box, news.points);
  });
  opened.addEventListener("gone", (event) => {
    opened.close();
    const { said, state } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    say(said);
    document.getElementById("progress")?.replaceChildren();
    if (state) document.getElementById("state")?.replaceChildren(state);
  });
}

/**
 * New points to the charts that show them. A metric that was not there when the page was made makes it anew, once.
 * @param {HTMLElement} box
 * @param {Record<string, [number, number | null][]>} found
 */
function points(box, found) {
  for (const chart of document.querySelectorAll('[data-lux="chart"]')) chart.dispatchEvent(new CustomEvent("lux-points", { detail: found }));
  const known = new Set((box.dataset.known ?? "").split(" ").map(decodeURIComponent));
  const isNew = Object.keys(found).some((key) => !known.has(key)), words = new URL(location.href).searchParams.get("metrics");
  if (isNew && !words) go(location.href, false, scrollY);
}

/** The rows of the table of metrics as they are now, each in its place. @param {string} table */
function numbers(table) {
  for (const row of new DOMParser().parseFromString(table, "text/html").querySelectorAll("tr[data-name]")) {
    const name = CSS.escape(row.getAttribute("data-name") ?? "");
    document.querySelector(`[data-metrics] tr[data-name="${name}"]`)?.replaceChildren(...row.children);
  }
}

/** @param {string} text */
function output(text) {
  const log = document.querySelector("pre[data-end]");
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
  if (link.origin !== location.origin || link.hasAttribute("download") || /\/files\/|\/output\.txt$/.test(link.pathname) || link.hash !== "") return;
  event.preventDefault();
  go(link.href, true, link.pathname === location.pathname ? scrollY : 0); // another order or part of the same page: it stays where it is
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
// A choice is made by choosing: its form needs no button.
document.addEventListener("change", (event) => {
  if (event.target instanceof HTMLSelectElement && event.target.form?.method === "get") event.target.form.requestSubmit();
});
// The part of a timeline that is looked at stands in the address.
document.addEventListener("lux-window", (event) => {
  const window = /** @type {CustomEvent} */ (event).detail, at = new URL(location.href);
  for (const [i, name] of ["start", "end"].entries()) {
    if (window === null) at.searchParams.delete(name);
    else at.searchParams.set(name, String(window[i]));
  }
  history.replaceState(history.state, "", at);
});
// Of a curve that is looked at closer, more points are got.
document.addEventListener("lux-look", async (event) => {
  const chart = /** @type {HTMLElement} */ (event.target), to = /** @type {CustomEvent} */ (event).detail;
  const source = /** @type {HTMLElement | null} */ (chart.closest("[data-points]"));
  if (source === null || document.querySelector("[data-live]") !== null) return; // one that grows has its points from the stream
  const at = new URL(source.dataset.points ?? "", location.href);
  at.searchParams.set("metric", chart.dataset.key ?? "");
  if (to !== null) ["start", "end"].forEach((name, i) => at.searchParams.set(name, String(to[i])));
  try {
    const answer = await fetch(at);
    if (answer.ok) chart.dispatchEvent(new CustomEvent("lux-part", { detail: await answer.json() }));
  } catch {
    say("The server does not answer: the curve is as it was. Is luxmeter ui still running?");
  }
});
addEventListener("popstate", (event) => { go(location.href, false, event.state?.scroll ?? 0); });
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => {
  stream?.close();
  history.replaceState({ scroll: scrollY }, "");
});
history.scrollRestoration = "manual";
if (history.state?.scroll) scrollTo(0, history.state.scroll);
follow();
