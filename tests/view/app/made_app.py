"""What the tests of the app share: the app without a socket, runs by name, and the name that wants to be markup."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

import luxmeter as lux
from luxmeter.store import Run
from luxmeter.view.app.server import build

EVIL = "<img src=x onerror=alert(1)>'\"&</script>"
HOST = "127.0.0.1:8265"


def client(lab: Path, *, edit: bool = False, token: str = "", host: str = HOST) -> TestClient:
    """The app of a lab, asked without a socket."""
    app = build(lab, edit=edit, hosts=(HOST,), token=token, port=8265)
    return TestClient(app, base_url=f"http://{host}", follow_redirects=False)


def named(name: str, lab: Path) -> Run:
    """The newest run of a name, which may be no reference."""
    return lux.runs(name=name, lab=lab)[0]
