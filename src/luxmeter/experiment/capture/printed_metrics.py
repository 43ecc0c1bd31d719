"""Metrics in what a program prints.

reader = PrintedMetrics()
reader.read("Epoch 3/10 loss 2.09 acc 0.156")  # [("loss", 2.09, 3), ("acc", 0.156, 3)]

The rules are few, and a series too few is better than a false one:
1. A name is taken if a word of it is a metric's (loss, acc, ...) and none is a setting's or a file's (loss_weight, loss.py).
2. A number is taken if it stands behind its name, with `=`, `:` or a space between (then it has a point), and ends
   where a number ends: no time, date, version, path or unit.
3. A line that is a JSON object or a Python dict gives all its numbers, if one of its names is a metric's; the rows
   below a line of names give theirs by column.
4. A learning rate and the like counts only beside a metric: alone it is a setting.
5. The step is what the line calls one: step, iteration, a bar's `5/10`, else the epoch; numbers that begin anew go on.
   A bar counts within an epoch, unless it goes on by one with each epoch: then it counts these.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from typing import Any


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METRICS = _set(
    "loss losses logloss nll acc accuracy acc1 acc5 top1 top5 err error errors f1 auc auroc auprc precision recall ppl "
    "perplexity bleu rouge meteor map map50 iou miou dice psnr ssim mse mae rmse mape r2 kl elbo reward rewards rew return "
    "returns score wer cer fid entropy bpc bpb bpp mrr ndcg em exact rouge1 rouge2 rougel cider spice"
)
_DOUBTFUL = _set(
    "err error errors map return returns score precision recall em exact dice"
)  # taken with a point
_SETTINGS = _set(
    "weight weights coef coefficient lambda alpha beta gamma scale scaler fn func function type name target threshold thresh "
    "patience delta smoothing start factor decay clip margin eps epsilon file path dir py txt log json jsonl pt pth ckpt yaml "
    "yml csv png md onnx html version code codes seed every interval freq window workers"
)
_PHASES = _set("train training val valid validation eval evaluation test dev")
_BEFORE = _PHASES | _set(
    "avg average mean best lm total running final epoch batch smoothed top ema min max ep metrics rollout"
)
_HELD_OUT = re.compile(
    r"\W*(test|val|valid|validation|eval|evaluation|dev)\b(?![-_/@.=]|\s*(?:loss|acc))", re.I
)

_NUMBER = r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
_END = r"(?![\w:/\\]|[.\-+]\w)"
_NAME = r"[A-Za-z][\w@./\-]*"
_PAIR = re.compile(
    rf"(?:^|(?<=[\s(\[{{|,;│┃║]))(?P<before>(?:[A-Za-z]+ )?)(?P<name>{_NAME})(?P<sign>\s*[:=]\s*|\s+|\s*[|│┃║]\s*)(?:\[|tensor\()?"
    rf"(?:(?P<part>\d+)\s*/\s*(?P<whole>\d+){_END}|(?P<number>{_NUMBER}){_END})",
    re.I,
)
_WIDE = str.maketrans("：，；（）＝", ":,;()=")  # as Chinese input methods write them
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1f]")
_PREFIX = re.compile(r"^\W*(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z?\W*")
_OBJECT = re.compile(r"[{].*[}]")
_STEP = re.compile(
    r"(?:^|[\s(\[{|,;])(?:global[_ ]?step|total[_ ]?timesteps|step|iter|iteration|it|update|num_updates|batch)s?\b[\s:=#\[(]*(\d+)(?:\s*/\s*(\d+))?(?![\w.:]*\d|\w)",
    re.I,
)
_EPOCH = re.compile(r"(?:^|[\s(\[{|,;])epoch(?:\(\w+\))?\b[\s:=#\[(]*(\d+)(?![\w.]*\d)", re.I)
_BAR = re.compile(r"(?:(?<=[|\[(])|^|(?<=[^:=]\s))\s*(\d+)\s*/\s*(\d+)\b(?!/)")
_ROW = re.compile(r"^\s*(?:[\d.eE+\-%]+|nan|inf|\d+/\d+|[\d.]+[A-Za-z]{1,2}|[\d:]+)$")
_STEPS = ("global_step", "step", "iteration", "iter", "num_updates", "update", "batch", "total_timesteps")
_LONGEST = 4000

Found = list[tuple[str, float, int]]


class PrintedMetrics:
    """Reads lines in the order they were printed; knows which epoch it is in and what the columns are called."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self._bars: dict[int, tuple[int, int]] = {}  # by what they go to: the epoch and the count last seen
        self._columns: list[str] = []
        self._last: dict[
            str, tuple[Any, float, int]
        ] = {}  # of each series: where it stood, its value, its step

    def read(self, line: str, epoch: int | None = None) -> Found:
        """The values in a line: name, value, step. `epoch`: that in which the line began, if others were printed meanwhile."""
        text = _ESCAPES.sub("", line[:_LONGEST]).translate(_WIDE).rstrip()
        if not text or self._is_header(text):
            return []
        if not any(map(str.isdigit, text)):
            self._columns = []
            return []
        if self._columns and (row := self._row(text)) is not None:
            return row
        self._columns = []
        if "Namespace(" in text or text.lstrip().startswith(("usage:", "$ ", "python ", "File ", "#", "*")):
            return []
        given = _object(text)
        if given is not None:
            return self._of_object(given, text)
        text = _PREFIX.sub("", text)
        return self._of_text(text, self.epoch if epoch is None else epoch)

    # -- one line ----------------------------------------------------------------------------------------------

    def _of_object(self, given: dict[str, Any], text: str) -> Found:
        numbers = dict(_flat(given))
        if not any(_is_metric(name) for name in numbers):
            return []
        place = next((int(numbers[name]) for name in _STEPS if name in numbers), None)
        told = _EPOCH.search(text.partition("{")[0])
        epoch = numbers.get("epoch", float(told[1]) if told else None)
        values = {n: v for n, v in numbers.items() if n not in (*_STEPS, "epoch") and not _is_setting(n)}
        if place is None and epoch is not None and epoch == int(epoch):
            place = int(epoch)
        return self._placed(values, place, (place, epoch))

    def _of_text(self, text: str, known: int | None) -> Found:
        epoch = _EPOCH.search(text)
        if epoch:
            self.epoch = known = int(epoch[1])
        values: dict[str, float] = {}
        beside: dict[str, float] = {}
        held_out = _HELD_OUT.match(text)
        in_table = text.lstrip()[:1] in "|│┃║"
        for match in _PAIR.finditer(text):
            named = _named(match, in_table)
            if named is None:
                continue
            name, value, is_beside = named
            if held_out and not is_beside and not _PHASES & set(_tokens(name)):
                name = f"{held_out[1].lower()}_{name}"
            (beside if is_beside else values).setdefault(name, value)
        if not values:
            return []
        place, where = self._where(text, known, is_told=epoch is not None)
        return self._placed({**values, **beside}, place, where)

    def _where(self, text: str, epoch: int | None, *, is_told: bool) -> tuple[int | None, Any]:
        """The step that a line tells, and what tells its place apart from that of another line."""
        step, bar = _STEP.search(text), _BAR.search(text)
        if step and not step[2]:
            return int(step[1]), (epoch if is_told else None, step[1])
        counted = (int(step[1]), int(step[2])) if step else (int(bar[1]), int(bar[2])) if bar else None
        if counted is None:
            return epoch, (epoch,)
        done, whole = counted
        if epoch is None:
            return done, (epoch, done)
        before, self._bars[whole] = self._bars.get(whole), (epoch, done)
        if not is_told and before is not None and 0 < epoch - before[0] == done - before[1]:
            return done, (None, done)
        if not is_told and done == whole:  # Keras: the epoch's last line, below `Epoch 3/10`
            return epoch, (epoch, done)
        if is_told and bar and not step and re.search(rf"epoch\W*{epoch}\s*/\s*{whole}\b", text, re.I):
            return epoch, (epoch,)
        return epoch * whole + done, (epoch, done)

    def _placed(self, values: dict[str, float], place: int | None, where: Any) -> Found:
        found: Found = []
        for name, value in values.items():
            before = self._last.get(name)
            if before is not None and before[0] == where and where != (None,) and _same(before[1], value):
                continue  # a bar drawn again
            step = place if place is not None else (0 if before is None else before[2] + 1)
            if before is not None and step <= before[2]:
                step = before[2] + 1
            self._last[name] = (where, value, step)
            found.append((name, value, step))
        return found

    # -- columns -----------------------------------------------------------------------------------------------

    def _is_header(self, text: str) -> bool:
        names = [name for name in re.split(r"[\s,|│;]+", text.strip()) if name]
        metrics = [name for name in names if _is_metric(name)]
        if (
            len(names) < 2
            or not metrics
            or not all(re.fullmatch(rf"{_NAME}(?:\([\w%]+\))?", n) for n in names)
        ):
            return False
        if len(metrics) < 2 and not {"epoch", "step", "iter"} & {n.lower() for n in names}:
            return False
        self._columns = [name.lower() for name in names]
        return True

    def _row(self, text: str) -> Found | None:
        cells = [cell for cell in re.split(r"[\s,|│;]+", text.strip()) if cell]
        if len(cells) < len(self._columns) or not all(
            _ROW.match(c.rstrip(":")) for c in cells[: len(self._columns)]
        ):
            return None
        values, place = {}, None
        for name, cell in zip(self._columns, cells, strict=False):
            number = _float(cell.partition("/")[0])
            if name in ("epoch", *_STEPS):
                place = int(number) if number is not None else place
            elif _is_metric(name) and number is not None:
                values[name] = number
        return self._placed(values, place, (place, tuple(cells)))


def _named(match: re.Match[str], in_table: bool) -> tuple[str, float, bool] | None:
    """Name, value, and whether it counts only beside a metric; None if this is no metric."""
    name, sign = match["name"].rstrip("."), match["sign"].strip()
    before = match["before"].strip().lower()
    if sign in ("|", "│", "┃", "║") and not in_table:
        return None
    is_beside = f"{before} {name.lower()}" in ("learning rate", "grad norm") or name.lower() in (
        "lr", "learning_rate", "grad_norm", "gnorm",
    )  # fmt: skip
    if not is_beside and not _is_metric(name):
        return None
    if is_beside or (before in _BEFORE and before != "epoch"):
        name = f"{before}_{name}" if before and before in (*_BEFORE, "learning", "grad") else name
    if match["part"] is not None:  # accuracy: 9838/10000
        whole = int(match["whole"])
        if not whole or not {"acc", "accuracy"} & set(_tokens(name)):
            return None
        return name.lower(), int(match["part"]) / whole, is_beside
    number = match["number"]
    pointed = not number.lstrip("+-").isdigit()
    if not pointed and (not sign or _DOUBTFUL & set(_tokens(name))):
        return None
    return name.lower(), float(number), is_beside


def _tokens(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name.lower()) if word]


def _is_metric(name: str) -> bool:
    if _is_setting(name):
        return False
    parts = [_tokens(part) for part in name.split("/")]
    known = [any(_bare(w) in _METRICS or w in _METRICS for w in part) for part in parts]
    # train/loss, loss/train: every part of a name that looks like a path is a word of ours.
    return any(known) and all(
        k or len(parts) == 1 or set(p) & _BEFORE for k, p in zip(known, parts, strict=True)
    )


def _bare(word: str) -> str:
    return word.rstrip("0123456789")


def _is_setting(name: str) -> bool:
    return bool(_SETTINGS & set(_tokens(name)))


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object or dict at the end of a line."""
    match = _OBJECT.search(text)
    if match is None or text[match.end() :].strip():
        return None
    try:
        found = json.loads(match[0])
    except ValueError:
        try:
            found = ast.literal_eval(match[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _flat(given: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in given.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, dict) and not prefix:
            yield from _flat(value, f"{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)
        elif isinstance(value, str) and (number := _float(value)) is not None:
            yield f"{prefix}{key}", number


def _float(text: str) -> float | None:
    return float(text.rstrip("%:")) if re.fullmatch(rf"(?:{_NUMBER})%?:?", text, re.I) else None


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
