"""Pages that need nothing else: put together from the modules, escaped, and used in a real browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from browser import needs_browser, opened
from luxmeter.render import (
    DURATION,
    NUMBER,
    SHARE,
    Bar,
    Chart,
    Column,
    Flame,
    Html,
    Line,
    Part,
    Table,
    Timeline,
    card,
    charts_html,
    element,
    flame_html,
    table_html,
    tabs,
    timeline_html,
    tree_html,
    treemap_html,
)
from luxmeter.view.web import linked, page

NASTY = "</script><b onclick=alert(1)>'\"&"
KINDS = ("modules", "operators")


def example() -> str:
    columns = [
        Column("API"),
        Column("calls", NUMBER),
        Column("total", DURATION),
        Column("share", SHARE, bar=True),
    ]
    rows = [["torch.mm", 3, 90.5e6, 0.75], ["torch.add", 20, 1.25e6, 0.24], [NASTY, 1, None, 0.01]]
    rows += [[f"torch.op{i}", i, 1e3 * i, 0.0] for i in range(2, 12)]
    calls = table_html(Table(columns, rows), names=[str(row[0]) for row in rows])
    modules = table_html(Table([Column("Module")], [["Net"]]), names=["Net"])
    flame = Flame(
        "all", 100, 24, 1, [Flame("Net (net)", 80, 2, 0, [Flame("torch.mm", 60, 3, 1)]), Flame("torch.add", 20, 20, 1)]
    )  # fmt: skip
    bars = [
        Bar("Net", "", 0, 800, 0),
        Bar("torch.mm", "f32[2,2]", 100, 500, 1, 1),
        Bar(NASTY, "", 900, 100, 0),
    ]
    tree = tree_html(
        [Column("module"), Column("n", NUMBER)],
        [["net", 3], ["a", 2], ["b", 1], ["c", 1]],
        [0, 1, 2, 1],
        open_to=1,
    )
    parts = Part("Net", "", [10, 4], 0, [Part("Linear", "a", [6, 1], 0), Part("ReLU", "b", [4, 3], 1)])
    lines = [
        Line("one", np.arange(50.0), np.sin(np.arange(50.0))),
        Line(NASTY, np.arange(50.0), np.arange(50.0) / 50),
    ]
    return page(
        "calls of <net>",
        card("Calls", tabs({"API": calls, "Module": modules})),
        card("Flame graph", flame_html(flame, KINDS)),
        card("Timeline", timeline_html(Timeline("one step", {"MainThread": bars}, KINDS))),
        card("Tree", tree),
        card("Treemap", treemap_html(parts, {"FLOPs": "amount", "parameters": "amount"}, KINDS)),
        charts_html([Chart("wave", "step", lines)]),
        facts=["24 calls", "cost < 1 %"],
    )  # fmt: skip


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.styled: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]
        self.styled += [tag for name, _ in attrs if name == "style" or name.startswith("on")]


def test_it_is_complete_in_itself_and_escapes() -> None:
    text = example()
    parser = Links()
    parser.feed(text)
    assert parser.found == [] and parser.styled == [] and parser.tags.count("b") == 1  # the chart's title
    assert not re.search(r"@import|url\((?!#)", text)
    assert "<title>calls of &lt;net&gt;</title>" in text and "cost &lt; 1 %" in text


def test_only_its_own_script_and_style_may_run() -> None:
    text = example()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    for tag in ("style", 'script type="module"'):
        body = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", text, re.DOTALL)
        assert body is not None
        assert f"'sha256-{base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()}'" in policy[1]
    assert "unsafe" not in policy[1]


def test_every_module_is_in_the_script_once_and_none_is_imported() -> None:
    script = linked("main")
    for name in ("dom", "format", "table", "flame", "timeline", "curves", "treemap", "parallel", "main"):
        assert script.count(f"const ${name} = ") == 1
    assert (
        "import {" not in script
        and "\nexport " not in script
        and "script" not in re.findall(r"<[/!]?(\w+)", script)
        and "<!--" not in script
    )


def test_text_is_escaped_unless_it_is_html() -> None:
    assert (
        element("p", "<b>", Html("<i></i>"), title='"', hidden=True, lang=None)
        == '<p title="&quot;" hidden>&lt;b&gt;<i></i></p>'
    )


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_real_browser(width: int, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example(), encoding="utf-8")
    with opened(path.as_uri(), width=width) as tab:
        first = "() => [...document.querySelectorAll('.lux-table tbody tr')].filter((r) => r.offsetParent && !r.hidden).map((r) => r.cells[0].textContent)"
        assert tab.evaluate(first)[:3] == ["torch.mm", "torch.add", NASTY]
        tab.locator(".lux-sort", has_text="calls").click()
        assert tab.evaluate(first)[0] == "torch.add"
        tab.locator(".lux-sort", has_text="calls").click()
        assert tab.evaluate(first)[:2] == [NASTY, "torch.op2"]
        tab.get_by_label("Filter rows").fill("torch -op")
        assert sorted(tab.evaluate(first)) == ["torch.add", "torch.mm"]
        assert tab.locator(".lux-counted").first.text_content() == "2 of 13 rows"
        tab.get_by_label("Filter rows").fill("")
        # Rows are one stop of Tab, arrows go on.
        tab.locator("tr[data-name='torch.add']").first.focus()
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert (
            tab.locator("tr.lux-lit").count() == 1
            and tab.locator(".lux-table tbody tr[tabindex='0']").count() <= 2
        )
        tab.keyboard.press("Enter")
        # The table lights the graph, and the graph the table.
        tab.locator("tr[data-name='torch.mm']").click()
        bright = "() => [...document.querySelectorAll('.lux-f:not(.lux-dim)')].map((f) => f.title)"
        assert tab.evaluate(bright) == ["torch.mm"]
        tab.locator(".lux-f[title='torch.add']").click()
        assert tab.locator("tr.lux-lit").first.get_attribute("data-name") == "torch.add"
        assert tab.locator(".lux-crumbs button").all_text_contents() == ["whole", "torch.add"]
        tab.keyboard.press("Escape")
        assert tab.locator(".lux-f").count() == 4
        tab.locator(".lux-f").first.focus()
        tab.keyboard.press("ArrowRight")
        assert "Net (net): 80 ns in 2 calls, 80.0% of all" in tab.locator(".lux-said").first.inner_text()
        tab.get_by_role("tab", name="Module").click()
        assert tab.evaluate(first) == ["Net"]
        # The timeline zooms by keys and says what is under the pointer.
        canvas = tab.locator("canvas")
        canvas.focus()
        tab.keyboard.press("+")
        assert "500 ns shown" in tab.inner_text("body") or "1.00 us shown" in tab.inner_text("body")
        # The tree folds, the treemap leads inside, a curve can be left out and read.
        assert tab.locator(".lux-tree tbody tr:visible").count() == 3
        tab.locator(".lux-tree td.lux-fold").nth(1).click()
        assert tab.locator(".lux-tree tbody tr:visible").count() == 4
        tab.get_by_label("What areas are").select_option("parameters")
        assert tab.locator(".lux-cell").count() == 3
        tab.locator(".lux-keys button").first.click()
        assert tab.locator("path.curve").count() == 1
        assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0


@needs_browser
def test_by_keyboard_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example(), encoding="utf-8")
    with opened(path.as_uri()) as tab:
        who = "() => document.activeElement.getAttribute('role') ?? (document.activeElement.className || document.activeElement.tagName)"
        met: dict[str, str] = {}
        keys = {"lux-f": ("ArrowRight", "Enter", "Escape"), "TR": ("ArrowRight", "ArrowDown", "Enter"), "img": ("+", "ArrowRight")}  # fmt: skip
        for _ in range(60):
            tab.keyboard.press("Tab")
            name = tab.evaluate(who).split()[0]
            if name not in met:
                met[name] = ""
                for key in keys.get(name, ()):
                    tab.keyboard.press(key)
        assert set(met) >= {"tab", "lux-sort", "lux-filter", "TR", "lux-f", "img", "lux-cell", "SELECT", "INPUT"}, met  # fmt: skip
        tab.locator(".lux-tree tbody tr").first.focus()
        tab.keyboard.press("ArrowLeft")
        assert tab.locator(".lux-tree tbody tr:visible").count() == 1
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("ArrowRight")
        assert tab.locator(".lux-tree tbody tr:visible").count() == 4


@needs_browser
def test_on_paper_nothing_is_cut_and_all_tabs_are_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example(), encoding="utf-8")
    with opened(path.as_uri(), width=720, dark=True) as tab:
        tab.emulate_media(media="print", color_scheme="dark")
        assert tab.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        assert (
            tab.locator("[role=tabpanel]:visible").count() == 2 and not tab.locator(".lux-tabs").is_visible()
        )
        assert tab.evaluate("() => getComputedStyle(document.querySelector('h1')).color") == "rgb(28, 35, 48)"


@needs_browser
def test_without_script_tables_and_curves_are_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example(), encoding="utf-8")
    with opened(path.as_uri(), script=False) as tab:
        assert tab.locator(".lux-table tbody tr:visible").count() == 14
        assert tab.locator("path.curve").count() == 2
        assert "Without script" in tab.inner_text("body")
        assert tab.inner_text("body").count("This graph needs script") == 3  # no card is empty


@needs_browser
def test_a_script_that_somebody_puts_in_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example().replace("</body>", "<script>window.ran = 1</script></body>"), encoding="utf-8")
    with pytest.raises(AssertionError, match="Content Security Policy"), opened(path.as_uri()) as tab:
        assert tab.evaluate("() => window.ran") is None
