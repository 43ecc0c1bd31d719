// What the components compute, without a page. Run by tools/check_web.py.
import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { querySelectorAll: () => [], addEventListener() {}, createElementNS() {} };
const web = "../../../src/luxmeter/view/web";
const { plain } = await import(`${web}/dom.js`);
const { amount, duration, mark, number, scale, share, shortName, size, ticks } = await import(`${web}/format.js`);
const { amountIn, hasWords, inOrder } = await import(`${web}/table.js`);
const { barsOf, fitting, namesOf, without } = await import(`${web}/flame.js`);
const { zoomed } = await import(`${web}/timeline.js`);
const { smoothed, thinned } = await import(`${web}/curves.js`);
const { squarified } = await import(`${web}/treemap.js`);

test("numbers are written as Python writes them", () => {
  assert.deepEqual([950, 1234567, 2.5e9].map(duration), ["950 ns", "1.23 ms", "2.50 s"]);
  assert.deepEqual([amount(4089184256), size(102228128), share(0.1234)], ["4.09 G", "97.5 MiB", "12.3%"]);
  assert.deepEqual([null, 0, 0.00001, 1234567, 0.25].map(number), ["-", "0", "1e-5", "1,234,567", "0.25"]);
  assert.equal(shortName("pack.age.Net (a.b)"), "Net (a.b)");
  assert.equal(shortName("torch.nn.Linear"), "torch.nn.Linear");
});

test("marks of axes are short, and names are as long as there is room", () => {
  assert.deepEqual([0, 0.5, 2e-5, 2500, 20000, 1e6, 999999, 1e28, -3e7].map(mark), ["0", "0.5", "2e-5", "2500", "20 K", "1 M", "1000 K", "1e28", "-30 M"]);
  const name = "torch.nn.Conv2d (Net.blocks.0.conv)";
  assert.deepEqual([40, 30, 16, 8, 5, 2].map((n) => fitting(name, n)), [name, "Conv2d (Net.blocks.0.conv)", "Conv2d (conv)", "Conv2d", "Conv…", ""]);
  assert.equal(fitting("torch.optim.Adam.step", 12), "Adam.step");
});

test("what would turn text around is spelled out", () => {
  assert.equal(plain("a\u202eb\x1bc\n学习"), "a\\u202eb\\u001bc\n学习");
});

test("axes have round marks, and scales lead back", () => {
  assert.deepEqual(ticks(0, 10, false), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(1, 1000, true), [1, 10, 100, 1000].flatMap((v) => (v < 1000 ? [v, 3 * v] : [v])));
  for (const log of [false, true]) {
    assert.deepEqual(ticks(35.3, 173, true), [50, 100]);
    assert.deepEqual(ticks(21, 24, true), [21, 22, 23, 24]);
    const place = scale(1, 100, 0, 500, log);
    assert.ok(Math.abs(place.back(place.at(42)) - 42) < 1e-9);
  }
});

test("rows are sorted with what is missing last, in both directions", () => {
  const sorted = (/** @type {any[]} */ values, /** @type {boolean} */ down) => [...values].sort((a, b) => inOrder(a, b, down));
  assert.deepEqual(sorted([3, null, 10, 2], true), [10, 3, 2, null]);
  assert.deepEqual(sorted([3, null, 10, 2], false), [2, 3, 10, null]);
  assert.deepEqual(sorted(["op10", "op9", null], false), ["op9", "op10", null]);
  assert.ok(hasWords("torch.add f32", ["add", "-mul"]) && !hasWords("torch.mul", ["-mul"]));
});

test("texts that say an amount are sorted by it", () => {
  const said = ["0.25", "1,024", "97.5 MiB", "330 ms", "1 h 6 min", "12.3%", "2.66x", "0.86 ± 0.05", "1e-05", "-3.5 K"];
  assert.deepEqual(said.map(amountIn), [0.25, 1024, 97.5 * 2 ** 20, 0.33, 3960, 12.3 * 0.01, 2.66, 0.86, 1e-5, -3500]);
  assert.deepEqual(["2.13.0", "batch=1", "2026-11-18 20:09:06", "96h46-20261118", "3 runs", "fp32", "-"].map(amountIn), Array(7).fill(null));
  assert.deepEqual(["8.3 s", "330 ms", "2 min 3 s"].sort((a, b) => inOrder(amountIn(a), amountIn(b), false)), ["330 ms", "8.3 s", "2 min 3 s"]);
  assert.deepEqual([0.5, "none", 2].sort((a, b) => inOrder(a, b, false)), [0.5, 2, "none"]);
});

test("the time outside goes from where it is drawn, and from all that it lies in", () => {
  const outside = 7;
  const node = ["all", 100, 3, outside, [["train", 60, 1, 6, [["add", 40, 2, 1, []], ["outside the calls", 20, 0, outside, []]]], ["outside the calls", 30, 0, outside, []], ["recording", 10, 0, 8, []]]];
  assert.deepEqual(without(node, outside), ["all", 50, 3, outside, [["train", 40, 1, 6, [["add", 40, 2, 1, []]]], ["recording", 10, 0, 8, []]]]);
  assert.deepEqual(without(node, -1), node);
});

test("a flame graph leaves out what cannot be seen, and children never leave their parent", () => {
  const bars = barsOf(["all", 1e6, 3, 0, [["a (m.x)", 6e5, 1, 0, [["b", 6e5, 1, 1, []]]], ["tiny", 1, 1, 1, []]]]);
  assert.deepEqual(bars.map((bar) => [bar.node[0], bar.depth]), [["all", 0], ["a (m.x)", 1], ["b", 2]]);
  assert.equal(bars[2].width, 60);
  assert.deepEqual(namesOf("a (m.x)"), ["a", "m.x"]);
});

test("a zoom stays inside the whole and no narrower than a microsecond", () => {
  assert.deepEqual(zoomed([0, 1e6], 2, 5e5, [0, 1e6]), [0, 1e6]);
  assert.deepEqual(zoomed([0, 1e6], 0.5, 0, [0, 1e6]), [0, 5e5]);
  const [start, end] = zoomed([0, 2000], 0.001, 1000, [0, 1e6]);
  assert.equal(end - start, 1000);
});

test("a curve keeps its peaks, and gaps stay gaps", () => {
  const n = 100000, y = Array.from({ length: n }, (_, i) => (i === 54321 ? 99 : i === 777 ? -99 : Math.sin(i)));
  const line = { name: "a", n: 1, x: y.map((_, i) => i), y };
  thinned(line, 1000);
  assert.ok(line.x.length <= 1001 && Math.max(...line.y) === 99 && Math.min(...line.y) === -99);
  assert.deepEqual(line.x, [...line.x].sort((a, b) => a - b));
  assert.deepEqual(smoothed([1, null, 3], 0.5), [1, null, (0.5 * 0.5 + 0.5 * 3) / 0.75]);
});

test("a treemap fills its box, each area as large as its value", () => {
  const sizes = [6, 6, 4, 3, 2, 2, 1], boxes = squarified(sizes, { x: 0, y: 0, w: 600, h: 400 });
  assert.equal(boxes.length, 7);
  boxes.forEach((box, i) => assert.ok(Math.abs(box.w * box.h - sizes[i] * 1e4) < 1e-6));
  assert.ok(boxes.every((box) => box.x >= -1e-9 && box.y >= -1e-9 && box.x + box.w <= 600.000001 && box.y + box.h <= 400.000001));
  assert.deepEqual(squarified([], { x: 0, y: 0, w: 1, h: 1 }), []);
});
