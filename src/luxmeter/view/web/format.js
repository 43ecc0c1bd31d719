// Numbers for people, as luxmeter.render.amounts writes them, and the axes of charts.

/**
 * @param {number} value
 * @param {number} step
 * @param {string[]} units
 */
function inUnits(value, step, units) {
  let place = 0;
  while (Math.abs(value) >= step && place < units.length - 1) {
    value /= step;
    place += 1;
  }
  if (place === 0 && Number.isInteger(value)) return `${value}${units[0]}`;
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toFixed(digits) + units[place];
}

/** @param {number} ns */
export const duration = (ns) => inUnits(ns, 1000, [" ns", " us", " ms", " s"]);

/** @param {number} bytes */
export const size = (bytes) => inUnits(bytes, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);

/** @param {number} count */
export const amount = (count) => inUnits(count, 1000, ["", " K", " M", " G", " T", " P", " E"]);

/** @param {number} part */
export const share = (part) => `${(100 * part).toFixed(1)}%`;

/** @param {number} n */
export const count = (n) => n.toLocaleString("en-US");

/** @param {number | null | undefined} v */
export function number(v) {
  if (v === null || v === undefined) return "-";
  const big = Math.abs(v);
  if (big >= 9999.5 && big < 1e12) return Math.round(v).toLocaleString("en-US");
  return v !== 0 && (big < 1e-4 || big >= 1e12) ? short(v, 4) : String(Number(v.toPrecision(4)));
}

/**
 * 2e-5, 1.5e28
 * @param {number} v
 * @param {number} digits
 */
const short = (v, digits) => Number(v.toPrecision(digits)).toExponential().replace("e+", "e");

/**
 * A value beside an axis, in few letters: 0.5, 20 K, 1e28.
 * @param {number} v
 */
export function mark(v) {
  const big = Math.abs(v);
  if (v !== 0 && (big < 1e-3 || big >= 1e15)) return short(v, 3);
  const place = big < 1e4 ? 0 : Math.floor(Math.log10(big) / 3 + 1e-9);
  return `${Number((v / 1000 ** place).toPrecision(4))}${["", " K", " M", " G", " T"][place]}`;
}

/** @type {Record<string, (v: number) => string>} */
export const WRITTEN = { duration, bytes: size, amount, share, number: (v) => number(v) };

/**
 * "pack.age.Class (a.b)" -> "Class (a.b)": the beginning of long names says the least. torch's own are known by theirs.
 * @param {string} name
 */
export function shortName(name) {
  return /^(torch|Tensor|mindspore)\./.test(name) ? name : name.replace(/^[\w.]*\.(?=\w+( \(|$))/, "");
}

/**
 * Round values for the marks of an axis.
 * @param {number} low
 * @param {number} high
 * @param {boolean} log
 * @param {number} [about]
 * @returns {number[]}
 */
export function ticks(low, high, log, about = 6) {
  /** @type {number[]} */
  const found = [];
  if (log) {
    const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
    const decades = Math.log10(high / low), parts = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 5];
    for (let e = from; e <= to; e++) {
      for (const p of parts) {
        const v = p * 10 ** e;
        if (v >= low * 0.999 && v <= high * 1.001) found.push(v);
      }
    }
    return found.length > 1 ? found : ticks(low, high, false, 4);
  }
  const rough = (high - low) / about || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough * 0.999) ?? 10 * unit;
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

/**
 * Values to pixels, and back.
 * @param {number} low
 * @param {number} high
 * @param {number} from
 * @param {number} to
 * @param {boolean} log
 */
export function scale(low, high, from, to, log) {
  const at = log ? Math.log10 : (/** @type {number} */ v) => v;
  const first = at(low), span = at(high) - first || 1;
  return {
    /** @param {number} v */
    at: (v) => from + ((at(v) - first) / span) * (to - from),
    /** @param {number} p */
    back: (p) => {
      const v = first + ((p - from) / (to - from)) * span;
      return log ? 10 ** v : v;
    },
  };
}
