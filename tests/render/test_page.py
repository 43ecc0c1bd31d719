"""The HTML page: made-up values in, and a real browser that sorts, filters, zooms and selects."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from luxmeter.render.html_page import Bar, Flame, PageTable, Timeline, page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = "</script><b onclick=alert(1)>'\"&"


def example() -> str:
    rows = [["torch.mm", 3, 90.5, 75.0], ["torch.add", 20, 1.25, 24.0], [NASTY, 1, None, 1.0]]
    flame = Flame(
        "all", 100, 1, [Flame("Net", 80, 2, [Flame("torch.mm", 60, 3)]), Flame("torch.add", 20, 20)]
    )
    bars = [Bar("Net", "", 0, 800, 0), Bar("torch.mm", "f32[2,2]", 100, 500, 1), Bar(NASTY, "", 900, 100, 0)]
    return page(
        "calls of <net>",
        facts=["24 calls", "cost < 1 %"],
        tables=[
            PageTable("API", ["API", "calls", "total ms", "share %"], rows),
            PageTable("Module", ["Module", "calls"], [["Net", 2]]),
        ],
        flame=flame,
        timeline=Timeline("one step", {"MainThread": bars}),
    )


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_it_is_complete_in_itself_and_escapes() -> None:
    text = example()
    parser = Links()
    parser.feed(text)
    assert parser.found == [] and "b" not in parser.tags
    assert not re.search(r"https?://|@import|url\(", text)
    assert "<title>calls of &lt;net&gt;</title>" in text and "cost &lt; 1 %" in text
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["tables"][0]["rows"][2][0] == NASTY


def test_a_page_with_a_table_alone() -> None:
    data = re.search(r'id="data">(.*?)</script>', page("t", tables=[PageTable("x", ["x"], [])]), re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == {
        "tables": [{"name": "x", "columns": ["x"], "rows": [], "leftOut": 0}], "flame": None, "timeline": None,
    }  # fmt: skip


PROBE = """
<script>
const text = (q) => [...document.querySelectorAll(q)].map((e) => e.textContent);
const first = () => text("#table tbody tr td:first-child");
const answer = {numbers: text("#table tbody td:nth-child(3)"), start: first(), tabs: text("#tabs button")};
document.querySelectorAll("#table th")[1].click(); answer.most = first();
document.querySelectorAll("#table th")[1].click(); answer.fewest = first();
const filter = document.querySelector("#filter");
filter.value = "ADD torch"; filter.dispatchEvent(new Event("input")); answer.filtered = first(); answer.counted = text("#counted")[0];
filter.value = ""; filter.dispatchEvent(new Event("input"));
document.querySelectorAll("#tabs button")[1].click(); answer.modules = first();
answer.flames = text(".f"); document.querySelectorAll(".f")[1].click(); answer.zoomed = text(".f");
answer.said = text("#flame-said")[0]; document.querySelector("#flame-up").click(); answer.whole = text(".f").length;
const width = () => document.querySelector(".lane").offsetWidth; const before = width();
const zoom = document.querySelector("#zoom"); zoom.value = 2; zoom.dispatchEvent(new Event("input")); answer.wider = width() / before;
document.querySelectorAll(".b")[1].click(); answer.bar = text("#timeline-said")[0];
answer.window = innerWidth; answer.overflow = document.documentElement.scrollWidth - innerWidth;
const pre = document.createElement("pre"); pre.id = "answer"; pre.textContent = JSON.stringify(answer); document.body.append(pre);
</script></body>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("size", ["1280,900", "390,844"])
def test_in_a_real_browser(size: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(example().replace("</body>", PROBE), encoding="utf-8")
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--window-size={size}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:]
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    answer: dict[str, Any] = json.loads(text)
    assert answer["start"] == ["torch.mm", "torch.add", NASTY] and answer["tabs"] == ["API", "Module"]
    assert answer["numbers"] == ["90.50", "1.25", "-"]  # as many digits in all of a column
    assert answer["most"] == ["torch.add", "torch.mm", NASTY] and answer["fewest"] == answer["most"][::-1]
    assert answer["filtered"] == ["torch.add"] and answer["counted"] == "1 of 3 rows"
    assert answer["modules"] == ["Net"]
    assert answer["flames"] == ["all", "Net", "torch.mm", "torch.add"] and answer["zoomed"] == [
        "Net",
        "torch.mm",
    ]
    assert answer["said"] == "Net: 0.08 µs in 2 calls, 80.0 % of all" and answer["whole"] == 4
    assert answer["wider"] == pytest.approx(4, rel=0.01)
    assert answer["bar"] == "torch.mm(f32[2,2]): 0.50 µs, 0.10 µs after the first"
    assert answer["overflow"] <= 0
