"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const time = (ns) => ns >= 1e9 ? (ns / 1e9).toFixed(3) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(2) + " µs";
  const colour = (name) => {
    let h = 0;
    for (const c of name.split(/[ (]/)[0]) h = (h * 31 + c.codePointAt(0)) >>> 0;
    return `hsl(${h % 360} 55% ${72 + h % 9}%)`;
  };

  // "pack.age.Class (a.b)" -> "Class (a.b)": the beginning of long names says the least. torch's own are known by theirs.
  const short = (name) => /^(torch|Tensor)\./.test(name) ? name : name.replace(/^[\w.]*\.(?=\w+( \(|$))/, "");

  // Tables
  let shown = 0, sorted = null, down = true;
  const table = () => data.tables[shown];
  const isText = (i) => table().rows.some((row) => typeof row[i] === "string");
  const decimals = (value) => Math.min(3, (String(value).split(".")[1] ?? "").length);  // alike in a column: they line up
  function rows() {
    const wanted = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => row.filter((v) => typeof v === "string").join(" ").toLowerCase();
    const kept = table().rows.filter((row) => { const t = text(row); return wanted.every((w) => t.includes(w)); });
    if (sorted === null) return kept;
    const order = (a, b) => a === b ? 0 : a === null ? -1 : b === null ? 1 : a < b ? -1 : 1;
    return kept.sort((a, b) => (down ? -1 : 1) * order(a[sorted], b[sorted]));
  }
  function drawTable() {
    const head = $("table").tHead, body = $("table").tBodies[0], columns = table().columns;
    const texts = columns.map((_, i) => isText(i));
    const paths = columns.map((_, i) => texts[i] && (i === 0 || table().rows.every((row) => !/[\[,=]/.test(row[i] ?? ""))));  // names, not arguments
    const digits = columns.map((_, i) => Math.max(0, ...table().rows.map((row) => typeof row[i] === "number" ? decimals(row[i]) : 0)));
    head.replaceChildren(make("tr"));
    columns.forEach((column, i) => {
      const th = make("th", { tabindex: "0", scope: "col", class: texts[i] ? "text" : "" }, column);
      if (sorted === i) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sort = () => { down = sorted === i ? !down : !texts[i]; sorted = i; drawTable(); };
      th.onclick = sort;
      th.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } };
      head.rows[0].append(th);
    });
    const found = rows(), lines = document.createDocumentFragment();
    for (const row of found) {
      const tr = make("tr");
      row.forEach((value, i) => {
        const td = make("td", {}, value === null ? "-" : typeof value === "number" ? value.toLocaleString("en-US", { minimumFractionDigits: digits[i], maximumFractionDigits: digits[i] }) : value);
        if (texts[i]) {
          td.className = paths[i] ? "text path" : "text"; td.title = value ?? "";
          td.replaceChildren(make("bdi", { dir: "ltr" }, value ?? "-"));
        }
        if (columns[i] === "share %") { td.className = "share"; td.style.setProperty("--part", Math.min(100, value) + "%"); }
        tr.append(td);
      });
      lines.append(tr);
    }
    body.replaceChildren(lines);
    const more = table().leftOut ? `; ${table().leftOut} more are in the trace` : "";
    $("counted").textContent = `${found.length} of ${table().rows.length} rows${more}`;
    for (const [i, tab] of [...$("tabs").children].entries()) tab.setAttribute("aria-selected", String(i === shown));
  }
  data.tables.forEach((t, i) => {
    const tab = make("button", { type: "button", role: "tab" }, t.name);
    tab.onclick = () => { shown = i; sorted = null; drawTable(); };
    $("tabs").append(tab);
  });
  $("filter").oninput = drawTable;
  if (data.tables.length) drawTable();

  // Flame graph: a node is [name, ns, calls, children]
  const ROW = 20;
  function drawFlame(path) {
    const at = path[path.length - 1], box = $("flames"), bars = document.createDocumentFragment();
    let deepest = 0;
    const put = (node, left, width, depth, above) => {
      if (width < 0.05) return;
      deepest = Math.max(deepest, depth);
      const bar = make("button", { type: "button", class: width < 1 ? "f thin" : "f", title: node[0] }, width > 2 ? short(node[0]) : "");
      Object.assign(bar.style, { left: left + "%", width: width + "%", top: depth * ROW + "px", background: colour(node[0]) });
      const here = [...above, node];
      const say = () => { $("flame-said").textContent = `${node[0]}: ${time(node[1])} in ${node[2].toLocaleString("en-US")} calls, ${(100 * node[1] / data.flame[1]).toFixed(1)} % of all`; };
      bar.onmouseenter = say;
      bar.onfocus = say;
      bar.onclick = () => { say(); drawFlame(here); };
      bars.append(bar);
      let x = left;
      for (const child of node[3]) {
        const w = width * child[1] / Math.max(node[1], 1);
        put(child, x, w, depth + 1, here);
        x += w;
      }
    };
    put(at, 0, 100, 0, path.slice(0, -1));
    box.replaceChildren(bars);
    box.style.height = (deepest + 1) * ROW + "px";
    $("flame-at").textContent = path.slice(1).map((node) => short(node[0])).join(" › ");
    $("flame-up").hidden = path.length === 1;
  }
  if (data.flame) {
    $("flame").hidden = false;
    $("flame-up").onclick = () => drawFlame([data.flame]);
    drawFlame([data.flame]);
  }

  // Timeline: a bar is [name, detail, start, duration, depth]
  function drawTimeline() {
    const t = data.timeline, factor = 2 ** Number($("zoom").value);
    const end = Math.max(1, ...t.lanes.map((lane) => lane.bars.reduce((m, b) => Math.max(m, b[2] + b[3]), 0)));
    const width = Math.max(200, $("timeline").clientWidth - 30) * factor;
    const all = document.createDocumentFragment();
    for (const lane of t.lanes) {
      const row = make("div", { class: "lane" }), bars = make("div", { class: "bars" });
      row.style.width = width + "px";
      row.append(make("span", { class: "lane-name" }, lane.name), bars);
      let deepest = 0;
      for (const [name, detail, start, duration, depth] of lane.bars) {
        const w = duration / end * width;
        const bar = make("button", { type: "button", class: w < 8 ? "b thin" : "b", title: t.words[name], tabindex: "-1" }, w > 28 ? short(t.words[name]) : "");
        Object.assign(bar.style, { left: start / end * width + "px", width: Math.max(1, w) + "px", top: depth * ROW + "px", background: colour(t.words[name]) });
        const say = () => { $("timeline-said").textContent = `${t.words[name]}(${t.words[detail]}): ${time(duration)}, ${time(start)} after the first`; };
        bar.onmouseenter = say;
        bar.onclick = say;
        bars.append(bar);
        deepest = Math.max(deepest, depth);
      }
      bars.style.height = (deepest + 1) * ROW + "px";
      all.append(row);
    }
    $("lanes").replaceChildren(all);
  }
  if (data.timeline) {
    $("timeline").hidden = false;
    $("timeline-title").textContent = data.timeline.title + (data.timeline.leftOut ? `; ${data.timeline.leftOut} calls are not shown` : "");
    $("zoom").oninput = drawTimeline;
    addEventListener("resize", drawTimeline);
    drawTimeline();
  }
})();
