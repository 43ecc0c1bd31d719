"""The pages of one run: overview (live while it goes on), trace, code, files, output."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Sequence
from urllib.parse import quote, urlencode

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import captured_tree, diff_runs
from luxmeter.plain_text import plain
from luxmeter.render import (
    BYTES,
    NUMBER,
    Chart,
    Column,
    Html,
    Table,
    card,
    contents,
    element,
    joined,
    size,
    table_html,
    text_area,
    thinned,
)
from luxmeter.store import Run
from luxmeter.train import read_listening
from luxmeter.view.app.curves_part import Chosen, charts_of, curves_part, known_metrics
from luxmeter.view.app.live import looked, progress_text
from luxmeter.view.app.shell import error, quiet, readable, run_head
from luxmeter.view.live import LiveRun
from luxmeter.view.pages.bench import bench_html
from luxmeter.view.pages.check import check_html
from luxmeter.view.pages.report import (
    code_changes_html,
    compared_html,
    model_part,
    numbered_html,
    repeats_html,
    run_before,
    siblings,
    summary_html,
)

_MOST_POINTS = 1500
_LAST_LINES = 200  # of its output on the overview
_MOST_SHOWN = 1 << 20  # bytes of a text that is shown; all of it can be got
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
CONTROLS = ("pause", "resume", "checkpoint", "stop")


def run_page(run: Run, chosen: Chosen, *, edit: bool, answered: str = "") -> Html:
    """What the report shows; while it runs, live. `answered`: to which request its training has just said yes."""
    if run.state == "running":
        live, place = looked(run, _MOST_POINTS)
        known = list(live.curves)
        box = element(
            "div",
            data_live=f"/run/{run.id}/live?after={place}",
            data_known=" ".join(map(quote, chosen.those_of(known))),
            data_shown=" ".join(map(quote, chosen.of_page(chosen.those_of(known)))),
        )
        progress = progress_text(live)
        curves = readable("Curves", lambda: curves_part(chosen, known, _living(live), one_run=True))
    else:
        box, progress, known = None, "", []
        curves = readable("Curves", lambda: curves_part(chosen, known_metrics([run]), lambda keys: charts_of([run], keys), one_run=True))  # fmt: skip
    parts: list[tuple[str, Callable[[], str | None]]] = [
        ("Summary", lambda: summary_html(run)),
        ("Curves", lambda: element("div", curves, data_points=f"/run/{run.id}/points") if curves else None),
        ("Operators measured", lambda: card("Operators measured", bench_html(run.bench)) if run.bench else None),
        ("Model", lambda: model_part(run)),
        ("Check", lambda: check_html(run.check) if run.check else None),
        ("Compared", lambda: _compared(run) if run.state != "running" else None),
        ("Repeats", lambda: repeats_html(siblings(run)) if run.state != "running" else None),
        ("Output", lambda: _output(run)),
    ]  # fmt: skip
    made = {name: part for name, make in parts if (part := readable(name, make)) is not None}
    places = {name: name.lower().replace(" ", "-") for name in made}
    return joined(
        (
            run_head(run, here="", progress=progress),
            box,
            _answer(run, answered),
            _change(run) if edit else None,
            contents({place: name for name, place in places.items()}),
            *(element("div", part, id_=places[name]) for name, part in made.items()),
        )
    )


def _compared(run: Run) -> Html | None:
    """With the finished run of its name before it; any other is a link away."""
    before = run_before(run)
    if before is None:
        return None
    link = element(
        "a", "Both on a page of their own", href=f"/compare?{urlencode({'run': f'{before.id},{run.id}'})}"
    )
    return compared_html(before, run, link=link)


def _living(live: LiveRun) -> Callable[[Sequence[str]], list[Chart]]:
    def made(keys: Sequence[str]) -> list[Chart]:
        return [Chart(key, "step", [thinned(live.curves[key].line(live.run.id), _MOST_POINTS)]) for key in keys]  # fmt: skip

    return made


def _answer(run: Run, answered: str) -> Html | None:
    """What its training said. The words are ours: an address may say no others."""
    if answered not in CONTROLS:
        return None
    said = read_listening(run.folder)
    now = f"it is {said.state} at step {said.step:,}" if said is not None else "it has ended"
    return element("p", f"The training has taken the request to {answered}: {now}.", class_="lux-warn", role="status")  # fmt: skip


def _change(run: Run) -> Html:
    """Forms for what people may change."""
    at = f"/run/{run.id}"
    note = element(
        "form", element("label", "note ", text_area(run.note, name="note", rows=2, cols=60)), element("button", "keep the note"),
        action=f"{at}/note", method="post", class_="lux-bar",
    )  # fmt: skip
    tags = element(
        "form", element("label", "tags ", element("input", name="tags", value=" ".join(run.tags), size=40)), element("button", "keep the tags"),
        action=f"{at}/tags", method="post", class_="lux-bar",
    )  # fmt: skip
    said = element("details", element("summary", "change note and tags"), note, tags)
    return joined((_controls(run, f"{at}/control") if run.state == "running" else None, said))


def _controls(run: Run, at: str) -> Html:
    if read_listening(run.folder) is None:
        return quiet("No training listens in it: pause, resume, checkpoint and stop are those of a Trainer.")
    made = {what: element("button", what, name="what", value=what) for what in CONTROLS if what != "stop"}
    sure = element("button", "end this training after the step at hand", name="what", value="stop")
    stop = element("details", element("summary", "stop"), sure, class_="lux-sure")
    return element(
        "form", *made.values(), stop, action=at, method="post", class_="lux-bar", aria_label="Control"
    )


def _output(run: Run) -> Html | None:
    """The end of what it printed; of a run that goes on also where more will come."""
    lines = plain(run.log_end).splitlines()
    if not lines and run.state != "running":
        return None
    shown = "".join(f"{line}\n" for line in lines[-_LAST_LINES:])
    return card("Output", element("pre", shown, class_="lux-log", data_end="1"), element("a", "all of it", href=f"/run/{run.id}/log"))  # fmt: skip


def files_page(run: Run, path: str, read: Callable[[str], bytes]) -> Html:
    """The files that were put into it or that it left; one of them, if it is text or a picture."""
    head = run_head(run, here="files")
    if path:
        at = f"/run/{run.id}/files/{quote(path)}"
        return joined(
            (head, card(path, _shown(read(path), path, at), element("p", element("a", "download", href=at))))
        )
    names = run.files
    if not names:
        return joined((head, quiet("No file was put into this run.")))
    table = Table([Column("file"), Column("size", NUMBER)], [[name, _size_of(run, name)] for name in names])

    def link(row: int, column: int, _: str) -> str | None:
        return f"/run/{run.id}/files?{urlencode({'path': names[row]})}" if column == 0 else None

    return joined((head, card("Files", table_html(table, links=link), quiet=f"{len(names):,}")))


def _shown(data: bytes, path: str, at: str) -> Html:
    if mimetypes.guess_type(path)[0] in PICTURES:
        return element("p", element("img", src=at, alt=path, class_="lux-picture"))
    if b"\0" in data[:8192]:
        return quiet(f"{size(len(data))}, no text")
    more = quiet(f"the first {size(_MOST_SHOWN)} of {size(len(data))}") if len(data) > _MOST_SHOWN else None
    return joined((more, numbered_html(data[:_MOST_SHOWN].decode("utf-8", "replace"))))


def _size_of(run: Run, name: str) -> str:
    try:
        return size(run.file(name).stat().st_size)
    except (LuxmeterError, OSError):
        sizes = [change.size_bytes for change in run.final_files.values() if change.name == name]
        return size(sizes[0]) if sizes and sizes[0] is not None else "-"


def code_page(run: Run, path: str, against: Run | None) -> Html:
    """The files that ran; one of them; or how they differ from another run's."""
    head = run_head(run, here="code")
    if against is not None:
        diff, _ = diff_runs(against, run)
        changes = code_changes_html(diff) or quiet("The code is the same." if diff.code_known else "One of the two keeps no code.")  # fmt: skip
        return joined((head, card(f"From {against.id} to {run.id}", changes)))
    if run.snapshot is None:
        return joined((head, quiet("This run keeps no code.")))
    tree = captured_tree(run)
    names = sorted(tree.files)
    if path:
        if path not in tree.files:
            return joined((head, error(f"The code of this run has no file {path!r}.")))
        return joined((head, card(path, _shown(tree.read(path), "code", ""))))
    table = Table([Column("file"), Column("size", BYTES)], [[name, len(tree.read(name))] for name in names])

    def link(row: int, column: int, _: str) -> str | None:
        return f"/run/{run.id}/code?{urlencode({'path': names[row]})}" if column == 0 else None

    form = element(
        "form", element("label", "changes since run ", element("input", name="against", size=24, placeholder=f"{run.name}~1"[:40])), element("button", "show"),
        action=f"/run/{run.id}/code", class_="lux-bar",
    )  # fmt: skip
    return joined((head, card("Code", form, table_html(table, links=link))))


def log_page(run: Run) -> Html:
    """What it printed; of very much the end."""
    text = run.log_text
    if not text:
        return joined((run_head(run, here="log"), quiet("It printed nothing.")))
    shown = text[-_MOST_SHOWN:].partition("\n")[2] if len(text) > _MOST_SHOWN else text
    more = quiet(f"the last {size(len(shown))} of {size(len(text))}") if len(shown) < len(text) else None
    get = element("a", "download", href=f"/run/{run.id}/output.txt")
    return joined((run_head(run, here="log"), card("Output", more, element("pre", plain(shown), class_="lux-log"), get)))  # fmt: skip
