"""A cost as one HTML page that needs nothing else: numbers, the tree that folds, operators, what is unknown."""

from __future__ import annotations

from html import escape
from pathlib import Path

from luxmeter.model import ModelCost, shares, written
from luxmeter.render import amount, size, span
from luxmeter.view.text.model import summary_lines, warning_lines

_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}
pre{background:#f5f5f5;padding:.8em;overflow-x:auto}
table{border-collapse:collapse;width:100%;margin:1em 0}th,td{padding:.15em .6em;text-align:right;white-space:nowrap}
th{border-bottom:1px solid #888}td:first-child,th:first-child,.l{text-align:left}.wide{overflow-x:auto}
#tree td:first-child::before{content:"";display:inline-block;width:1em}tr.fold td:first-child{cursor:pointer}
#tree tr.fold td:first-child::before{content:"\\25be"}#tree tr.fold[data-shut="1"] td:first-child::before{content:"\\25b8"}
@media(max-width:40em){body{margin:1em auto}pre{white-space:pre-wrap}}
.bar{background:linear-gradient(#9cf,#9cf) no-repeat left/var(--w) 100%}.warn{color:#a40}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#2a2a2a}
.bar{background-image:linear-gradient(#357,#357)}}
"""
_SCRIPT = """
const rows=[...document.querySelectorAll('#tree tbody tr')],depth=r=>+r.dataset.depth;
function below(i){const out=[];for(let j=i+1;j<rows.length&&depth(rows[j])>depth(rows[i]);j++)out.push(rows[j]);return out}
function draw(){let shut=[];rows.forEach(r=>{shut=shut.filter(d=>d<depth(r));r.hidden=shut.length>0;
if(r.dataset.shut==='1')shut.push(depth(r))})}
rows.forEach((r,i)=>{if(below(i).length){r.classList.add('fold');r.dataset.shut=depth(r)>=START?'1':'0';
const c=r.cells[0],turn=()=>{r.dataset.shut=r.dataset.shut==='1'?'0':'1';draw()};c.tabIndex=0;c.onclick=turn;
c.onkeydown=e=>{if(e.key==='Enter'||e.key===' '){e.preventDefault();turn()}}}});draw();
"""


def model_page(cost: ModelCost, path: str | Path | None, *, depth: int | None = None) -> str:
    """The page, also written to `path`; the tree is open down to `depth`."""
    head, *lines = summary_lines(cost)
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width,initial-scale=1'><title>{escape(cost.name)}: what it costs</title>",
        f"<style>{_STYLE}</style><h1>{escape(cost.name)}</h1>",
        f"<pre>{escape(head)}\n{escape(chr(10).join(lines))}</pre>",
        *(f"<p class=warn>{escape(line)}</p>" for line in warning_lines(cost)),
        "<h2>Modules</h2>",
        _tree(cost),
        _parting(cost),
        "<h2>Operators</h2>",
        _operators(cost),
        f"<script>{_SCRIPT.replace('START', str(2 if depth is None else depth))}</script></html>",
    ]
    return written("\n".join(part for part in parts if part), path)


def _tree(cost: ModelCost) -> str:
    timed = cost.latency is not None
    head = [
        "module",
        "kind",
        "calls",
        "params",
        "MACs",
        "FLOPs",
        "backward",
        "activations",
        *(["time"] if timed else []),
        "output",
        "note",
    ]
    body = []
    for row in cost.modules:
        share = 100 * row.flops / cost.flops if cost.flops else 0
        name = escape(row.name.rpartition(".")[2] or cost.name)
        shape = " ".join("x".join(map(str, s)) for s in row.output_shapes[:2])
        cells = [
            f'<td style="padding-left:{1 + 1.2 * row.depth}em" title="{escape(row.name)}">{name}',
            f"<td class=l>{escape(row.kind)}",
            *(f"<td>{text}" for text in (row.calls, amount(row.params), amount(row.macs))),
            f'<td class=bar style="--w:{share:.1f}%">{amount(row.flops)}',
            f"<td>{amount(row.backward_flops)}<td>{size(row.activation_bytes)}",
            *([f"<td>{span(row.time_ns) if row.time_ns is not None else '-'}"] if timed else []),
            f"<td class=l>{shape}<td class=l>{escape(row.note)}",
        ]
        body.append(f"<tr data-depth={row.depth}>{''.join(cells)}")
    titles = "".join(f"<th class=l>{h}" if h in _WORDS else f"<th>{h}" for h in head)
    return f"<div class=wide><table id=tree><thead><tr>{titles}<tbody>{chr(10).join(body)}</table></div>"


_WORDS = ("kind", "output", "note")


def _parting(cost: ModelCost) -> str:
    marked = [share for share in shares(cost) if share.mark] if cost.latency is not None else []
    if not marked:
        return ""
    body = "".join(
        f"<tr><td>{escape(s.name)}<td class=l>{escape(s.kind)}<td>{s.time:.1%}<td>{s.flops:.1%}<td class=l>{s.mark}"
        for s in marked
    )
    return (
        "<h2>Where time and FLOPs part</h2><div class=wide><table><thead><tr><th>module<th class=l>kind<th>of time<th>of FLOPs"
        f"<th class=l>mark<tbody>{body}</table></div>"
    )


def _operators(cost: ModelCost) -> str:
    head = ("operator", "calls", "MACs", "FLOPs", "moved", "backward calls", "backward FLOPs")
    body = "".join(
        f"<tr><td>{escape(o.name)}<td>{o.calls}<td>{amount(o.macs)}<td>{amount(o.flops)}<td>{size(o.moved_bytes)}"
        f"<td>{o.backward_calls}<td>{amount(o.backward_flops)}"
        for o in cost.operators
    )
    titles = "".join(f"<th>{h}" for h in head)
    return f"<div class=wide><table><thead><tr>{titles}<tbody>{body}</table></div>"
