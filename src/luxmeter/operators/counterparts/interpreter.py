"""Which Python has MindSpore: it needs an older numpy, so it mostly lives in an environment of its own.

Nothing of MindSpore is imported here; the interpreter that is found is asked which versions it has.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from luxmeter.errors import MissingExtraError
from luxmeter.settings import globs

SETTING = "mindspore.python"
ENVIRONMENT = ".venv-mindspore"
_INSTALL = 'pip install "mindspore==2.10.*" "numpy<2" "pyarrow<26" "pandas<3.1"'
_ASK = """
import importlib.metadata as m, json
def v(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps({name: v(name) for name in ("mindspore", "torch", "numpy")}))
"""


def mindspore_python() -> str:
    """The path of an interpreter with MindSpore, its numpy and torch; an error that says how to get one.

    In this order: the setting `mindspore.python` (or LUXMETER_MINDSPORE_PYTHON), `.venv-mindspore` that `make mindspore`
    makes beside the source, this interpreter. One that lies where the user stands is not run: it may be anyone's.
    """
    python = _found()
    _check(python)
    return python


def _found() -> str:
    said = globs[SETTING]
    if said:
        return str(Path(str(said)).expanduser())
    for folder in Path(__file__).resolve().parents:
        python = folder / ENVIRONMENT / "bin" / "python"
        if python.exists():
            return str(python)
    if importlib.util.find_spec("mindspore") is not None:
        return sys.executable
    raise MissingExtraError(
        "mindspore-missing",
        f"No Python with MindSpore was found: no setting {SETTING}, no {ENVIRONMENT} beside Luxmeter's source, none in {sys.executable}.",
        f"Run make mindspore, or {_INSTALL} torch in an environment of its own and "
        "luxmeter config --global mindspore.python /its/bin/python.",
    )


@functools.lru_cache(maxsize=8)
def _check(python: str) -> None:
    try:
        asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise MissingExtraError(
            "mindspore-python-broken",
            f"{python} does not run as a Python: {error}.",
            f"Set {SETTING} to the path of one that has MindSpore.",
        ) from error
    for name in ("mindspore", "torch"):
        if found[name] is None:
            raise MissingExtraError(
                "mindspore-missing", f"{python} has no {name}.", f"Install it there: {_INSTALL} torch"
            )
    if int((found["numpy"] or "0").split(".")[0]) >= 2:
        raise MissingExtraError(
            "mindspore-numpy",
            f"{python} has numpy {found['numpy']}, and MindSpore {found['mindspore']} needs one below 2.",
            f"Install it there: {_INSTALL}",
        )
