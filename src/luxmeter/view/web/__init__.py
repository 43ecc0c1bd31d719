"""A page that needs nothing else: styles, modules and data in one file, which no other script may join.

The modules are written as plain ES modules; the app serves them as they are. A self-contained page has them in one script, each in
a function of its own, in the order in which they import each other; its hash is the only one that the page lets run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from luxmeter.render import Html, element, joined, number_classes

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|let|function|async function|class) (\w+))", re.MULTILINE)


def page(title: str, *body: str, facts: Sequence[str] = ()) -> str:
    """The HTML of a page. It loads nothing."""
    style, script = whole_style(), linked("main")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    said = element("ul", *(element("li", fact) for fact in facts), class_="lux-facts")
    noscript = element(
        "noscript",
        element("p", "Without script the tables are here; graphs that move are not.", class_="lux-quiet"),
    )
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            element("title", title),
            f"<style>{style}</style>\n</head>\n<body>",
            element("header", element("h1", title), said, class_="lux-head"),
            element("main", noscript, *body, class_="lux-main"),
            f'<script type="module">{script}</script>\n</body>\n</html>\n',
        )
    )


@cache
def whole_style() -> str:
    """The style sheet, with the classes that stand for numbers."""
    return Html(_read("style.css") + number_classes())


@cache
def linked(name: str) -> str:
    """A module and all that it imports, as one script."""
    order: list[str] = []

    def visit(module: str) -> None:
        for _, other in _IMPORT.findall(_read(f"{module}.js")):
            visit(other)
        if module not in order:
            order.append(module)

    visit(name)
    parts = []
    for module in order:
        text = _read(f"{module}.js")
        taken = "".join(f"const {{ {names} }} = ${other};\n" for names, other in _IMPORT.findall(text))
        given = ", ".join(_EXPORT.findall(text))
        body = _EXPORT.sub("", _IMPORT.sub("", text))
        parts.append(f"const ${module} = (() => {{\n{taken}{body}return {{ {given} }};\n}})();\n")
    return joined((Html("".join(parts)),))


def _read(name: str) -> str:
    return files("luxmeter.view.web").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
