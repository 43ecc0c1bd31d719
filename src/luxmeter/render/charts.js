"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const draw = (tag, attributes = {}, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== "") element.textContent = text;
    return element;
  };
  const number = (v) => v === null || v === undefined ? "-" : v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(2) : String(Number(v.toPrecision(4)));
  const colour = (i) => data.colours[i % data.colours.length];
  const dash = (i) => ["", "7 4", "2 3", "7 3 2 3"][Math.floor(i / data.colours.length) % 4];

  // As TensorBoard smooths: an exponential average, divided by the weight it has so far.
  function smoothed(values, weight) {
    const known = values.filter((v) => v !== null);
    if (!weight || !known.length || known.every((v) => v === known[0])) return values;
    let last = 0, count = 0;
    return values.map((v) => {
      if (v === null) return null;
      last = last * weight + (1 - weight) * v;
      count += 1;
      return last / (1 - weight ** count);
    });
  }

  function ticks(low, high, log) {
    if (log) {
      const found = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
      const parts = to - from > 3 ? [1] : to - from > 1 ? [1, 3] : [1, 2, 5];
      for (let e = from; e <= to; e++) for (const p of parts) { const v = p * 10 ** e; if (v >= low * 0.999 && v <= high * 1.001) found.push(v); }
      return found.length > 1 ? found : [low, high];
    }
    const rough = (high - low) / 6 || 1, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= rough);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(Number(v.toPrecision(12)));
    return found;
  }

  function scale(low, high, from, to, log) {
    const at = log ? Math.log10 : (v) => v;
    const a = at(low), span = at(high) - a || 1;
    const place = (v) => from + (at(v) - a) / span * (to - from);
    place.back = (p) => { const v = a + (p - from) / (to - from) * span; return log ? 10 ** v : v; };
    return place;
  }

  function path(xs, ys, px, py, usable) {
    let text = "", on = false;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || !usable(ys[i])) { on = false; continue; }
      text += (on ? "L" : "M") + px(xs[i]).toFixed(1) + " " + py(ys[i]).toFixed(1);
      on = true;
    }
    return text;
  }

  const plots = [];
  const HEIGHT = 280, LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 34;
  function chartOf(chart) {
    const section = make("section", { "aria-label": chart.title });
    const bar = make("div", { class: "bar" });
    bar.append(make("h2", {}, chart.title), make("span", { class: "quiet" }, chart.note));
    const svg = draw("svg", { height: HEIGHT, role: "img", "aria-label": chart.title }), legend = make("div", { class: "legend" });
    section.append(bar, svg, legend);
    const hidden = new Set();
    const entries = chart.lines.map((line, i) => {
      const entry = make("button", { type: "button", "aria-pressed": "true" }), mark = make("i"), value = make("b");
      mark.style.background = colour(i);
      entry.append(mark, make("span", {}, line.name + (line.n > 1 ? ` (n=${line.n})` : "")), value);
      entry.onclick = () => { hidden.has(i) ? hidden.delete(i) : hidden.add(i); entry.setAttribute("aria-pressed", String(!hidden.has(i))); redraw(); };
      legend.append(entry);
      return value;
    });
    let px, py, shown = [];
    function redraw() {
      const width = Math.max(240, svg.clientWidth), weight = Number($("smooth").value), log = $("logy").checked || chart.logY;
      const usable = (v) => v !== null && (!log || v > 0);
      shown = chart.lines.map((line, i) => ({ line, i })).filter(({ i }) => !hidden.has(i)).map(({ line, i }) => {
        if (line.low !== null) return { line, i, y: line.y, raw: null };
        const ground = line.raw ?? line.y;
        return { line, i, y: smoothed(ground, weight), raw: weight ? ground : null };
      });
      let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
      for (const { line, y, raw } of shown) {
        for (const x of line.x) { if (x < x0) x0 = x; if (x > x1) x1 = x; }
        for (const part of [y, raw, line.low, line.high]) for (const v of part ?? []) if (usable(v)) { if (v < y0) y0 = v; if (v > y1) y1 = v; }
      }
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      if (!(x0 <= x1) || !(y0 <= y1)) { svg.replaceChildren(draw("text", { x: LEFT, y: HEIGHT / 2 }, "nothing to show")); px = null; return; }
      if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
      if (y0 === y1) { const d = Math.abs(y0) * 0.05 || 1; y1 += d; y0 = log ? y0 / 1.1 : y0 - d; }
      else if (!log) { const d = (y1 - y0) * 0.04; y0 -= d; y1 += d; }
      px = scale(x0, x1, LEFT, width - RIGHT, false);
      py = scale(y0, y1, HEIGHT - BOTTOM, TOP, log);
      const all = document.createDocumentFragment();
      for (const v of ticks(y0, y1, log)) {
        all.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(v), y2: py(v) }));
        all.append(draw("text", { x: LEFT - 6, y: py(v) + 4, "text-anchor": "end" }, number(v)));
      }
      for (const v of ticks(x0, x1, false)) {
        all.append(draw("line", { class: "grid", x1: px(v), x2: px(v), y1: TOP, y2: HEIGHT - BOTTOM }));
        all.append(draw("text", { x: Math.min(px(v), width - 16), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle" }, number(v)));
      }
      all.append(draw("line", { class: "edge", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
      all.append(draw("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, chart.x));
      for (const { line, i, y, raw } of shown) {
        if (line.low) {
          const good = line.x.map((_, k) => k).filter((k) => usable(line.low[k]) && usable(line.high[k]));
          const there = good.map((k) => `${px(line.x[k]).toFixed(1)} ${py(line.high[k]).toFixed(1)}`);
          const back = good.map((k) => `${px(line.x[k]).toFixed(1)} ${py(line.low[k]).toFixed(1)}`).reverse();
          if (good.length > 1) all.append(draw("path", { class: "band", fill: colour(i), d: `M${there.join("L")}L${back.join("L")}Z` }));
        }
        if (raw) all.append(draw("path", { class: "raw", stroke: colour(i), d: path(line.x, raw, px, py, usable) }));
        all.append(draw("path", { class: "curve", stroke: colour(i), "stroke-dasharray": dash(i), d: path(line.x, y, px, py, usable) }));
        const points = y.map((v, k) => k).filter((k) => usable(y[k]));
        if (points.length === 1) all.append(draw("circle", { cx: px(line.x[points[0]]), cy: py(y[points[0]]), r: 3, fill: colour(i) }));
      }
      svg.replaceChildren(all);
      tell(null);
    }
    const cursor = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    function tell(x) {
      cursor.remove();
      for (const value of entries) value.textContent = "";
      if (x === null || !px) return;
      cursor.setAttribute("x1", px(x));
      cursor.setAttribute("x2", px(x));
      svg.append(cursor);
      for (const { line, i, y } of shown) {
        let best = -1;
        for (let k = 0; k < line.x.length; k++) if (y[k] !== null && (best < 0 || Math.abs(line.x[k] - x) < Math.abs(line.x[best] - x))) best = k;
        if (best < 0) continue;
        const band = line.low && line.low[best] !== null ? ` (${number(line.low[best])} to ${number(line.high[best])})` : "";
        entries[i].textContent = `${number(y[best])}${band} at ${number(line.x[best])}`;
      }
    }
    svg.addEventListener("pointermove", (event) => {
      if (!px) return;
      const box = svg.getBoundingClientRect(), at = event.clientX - box.left;
      if (at >= LEFT && at <= box.width - RIGHT) tell(px.back(at));
    });
    svg.addEventListener("pointerleave", () => tell(null));
    plots.push(redraw);
    return section;
  }
  for (const chart of data.charts) $("charts").append(chartOf(chart));
  const all = () => { $("smooth-said").textContent = $("smooth").value; plots.forEach((redraw) => redraw()); };
  $("smooth").value = data.smoothing;
  $("smooth").oninput = all;
  $("logy").onchange = all;
  $("controls").hidden = !data.charts.length;
  if (data.charts.some((chart) => chart.lines.some((line) => line.low))) $("smooth-note").textContent = "bands are drawn as they were computed";
  $("smooth").parentElement.hidden = data.charts.every((chart) => chart.lines.every((line) => line.low));

  // Parallel coordinates
  const p = data.parallel;
  if (p) {
    $("parallel").hidden = false;
    $("parallel-title").textContent = p.title;
    const height = 340, top = 40, bottom = 24, ranges = new Map();
    let chosen = p.axes.length - 1, on = -1;
    const scales = p.axes.map((axis) => {
      const known = axis.values.filter((v) => v !== null);
      if (axis.numeric) {
        const low = Math.min(...known), high = Math.max(...known);
        const place = scale(low, high === low ? low + (axis.log ? low : 1) : high, height - bottom, top, axis.log);
        const few = [...new Set(known)];
        const marks = few.length <= 7 ? few.map((v) => [place(v), number(v)]) : ticks(low, high, axis.log).map((v) => [place(v), number(v)]);
        return { place, marks };
      }
      const words = [...new Set(known)].sort();
      const place = (w) => words.length < 2 ? (top + height - bottom) / 2 : height - bottom - words.indexOf(w) / (words.length - 1) * (height - bottom - top);
      return { place, marks: words.slice(0, 24).map((w) => [place(w), w.length > 20 ? w.slice(0, 19) + "…" : w]) };
    });
    const shade = (row) => {
      const v = p.axes[chosen].values[row];
      if (v === null) return "var(--quiet)";
      const share = 1 - (scales[chosen].place(v) - top) / (height - bottom - top);
      return `hsl(${(260 - 215 * share).toFixed(0)} 65% ${(48 + 8 * share).toFixed(0)}%)`;
    };
    const drawParallel = () => {
      const width = Math.max($("parallel-box").clientWidth, 110 * p.axes.length), gap = (width - 130) / Math.max(1, p.axes.length - 1);
      const svg = draw("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": p.title });
      svg.style.width = width + "px";
      const at = (i) => 40 + i * gap;
      p.names.forEach((name, row) => {
        let d = "", pen = "M", off = false;
        p.axes.forEach((axis, i) => {
          const v = axis.values[row];
          const range = ranges.get(i);
          if (range && (v === null || scales[i].place(v) < range[0] || scales[i].place(v) > range[1])) off = true;
          if (v === null) return;
          d += `${pen}${at(i).toFixed(1)} ${scales[i].place(v).toFixed(1)}`;
          pen = "L";
        });
        const line = draw("path", { class: `row${off ? " off" : ""}${row === on ? " on" : ""}`, d, stroke: shade(row), tabindex: off ? "-1" : "0" });
        const tell = () => {
          on = row;
          for (const other of svg.querySelectorAll(".row.on")) other.classList.remove("on");
          line.classList.add("on");
          $("parallel-said").textContent = `${name}: ` + p.axes.map((axis) => `${axis.name} ${axis.numeric ? number(axis.values[row]) : axis.values[row] ?? "-"}`).join(", ");
        };
        line.onclick = tell;
        line.onfocus = tell;
        svg.append(line);
      });
      p.axes.forEach((axis, i) => {
        svg.append(draw("line", { class: "edge", x1: at(i), x2: at(i), y1: top, y2: height - bottom }));
        for (const [y, label] of scales[i].marks) svg.append(draw("text", { class: "halo", x: at(i) + 5, y: y + 4 }, label));
        const name = draw("text", { class: `axis-name${i === chosen ? " chosen" : ""}`, x: at(i), y: i % 2 && gap < 120 ? 30 : 14, "text-anchor": i === 0 ? "start" : "middle", tabindex: "0" }, axis.name.length > 26 ? "…" + axis.name.slice(-25) : axis.name);
        name.onclick = () => { chosen = i; drawParallel(); };
        name.onkeydown = (event) => { if (event.key === "Enter") { chosen = i; drawParallel(); } };
        svg.append(name);
        if (ranges.has(i)) svg.append(draw("rect", { class: "brush", x: at(i) - 7, width: 14, y: ranges.get(i)[0], height: ranges.get(i)[1] - ranges.get(i)[0] }));
        const grab = draw("rect", { class: "grab", x: at(i) - 9, width: 18, y: top - 6, height: height - bottom - top + 12 });
        grab.onpointerdown = (down) => {
          const box = svg.getBoundingClientRect(), y = (event) => Math.min(height - bottom + 6, Math.max(top - 6, event.clientY - box.top)), from = y(down);
          const move = (event) => { ranges.set(i, [Math.min(from, y(event)), Math.max(from, y(event))]); drawParallel(); };
          const up = (event) => {
            removeEventListener("pointermove", move);
            removeEventListener("pointerup", up);
            if (Math.abs(y(event) - from) < 4) { ranges.delete(i); drawParallel(); }
          };
          addEventListener("pointermove", move);
          addEventListener("pointerup", up);
          down.preventDefault();
        };
        svg.append(grab);
      });
      $("parallel-box").replaceChildren(svg);
    };
    plots.push(drawParallel);
  }
  addEventListener("resize", all);
  all();
})();
