"""The server: addresses to pages, new points to those who look, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import mimetypes
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.experiment import find_run
from luxmeter.store import Run
from luxmeter.view.app import pages
from luxmeter.view.app.guard import Guard
from luxmeter.view.app.live import Live
from luxmeter.view.app.trace_view import TraceViews
from luxmeter.view.web import whole_style

_MODULES = ("app", "curves", "dom", "flame", "format", "main", "parallel", "table", "timeline", "treemap")
_GONE = ("run-not-found", "no-runs-yet", "not-a-run", "no-lab", "file-missing", "trace-not-found")
_EVERY_S = 0.5
_MOST_COMPARED = 50


class App:
    """The pages of one lab."""

    def __init__(self, lab: Path, *, edit: bool = False) -> None:
        self.lab = str(lab)
        self.edit = edit
        self.ending = asyncio.Event()
        self._views = TraceViews()

    def routes(self) -> list[Route]:
        """Address by address."""
        page, post = self._page, self._post
        return [
            Route("/", page("luxmeter", lambda r: pages.start_page(self.lab))),
            Route("/runs", page("Runs", lambda r: pages.runs_page(pages.Asked.of(r.query_params), self.lab))),
            Route("/compare", page("Compare", self._compare)),
            Route("/run/{run}", page("Run", self._run)),
            Route("/run/{run}/trace", page("Trace", self._trace)),
            Route("/run/{run}/trace/window", self._told(self._window)),
            Route("/run/{run}/code", page("Code", self._code)),
            Route("/run/{run}/log", page("Output", lambda r: pages.log_page(self._of(r)))),
            Route("/run/{run}/files/{path:path}", self._told(self._file)),
            Route("/run/{run}/live", self._live),
            Route("/run/{run}/note", post(self._note), methods=["POST"]),
            Route("/run/{run}/tags", post(self._tags), methods=["POST"]),
            Route("/run/{run}/control", post(self._control), methods=["POST"]),
            Route("/web/{name}", self._web),
        ]

    def _of(self, request: Request) -> Run:
        return self._find(request.path_params["run"])

    def _find(self, reference: str) -> Run:
        if "/" in reference or "\\" in reference:
            raise StoreError(
                "run-not-found", f"There is no run {reference!r}.", "Runs are named by their id."
            )
        return find_run(reference, lab=self.lab)

    def _told(self, make: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """An error as one clear sentence on a page; the server goes on."""

        @functools.wraps(make)
        def answered(request: Request) -> Response:
            try:
                return make(request)
            except LuxmeterError as error:
                said, status = str(error), 404 if getattr(error, "slug", "") in _GONE else 400
            except (OSError, ValueError, KeyError, TypeError) as error:
                said, status = f"{type(error).__name__}: {error}", 500
            return HTMLResponse(pages.shell("Not shown", pages.error_page(said), edit=self.edit), status)

        return answered

    def _page(self, title: str, make: Callable[[Request], str]) -> Callable[[Request], Response]:
        def whole(request: Request) -> Response:
            named = f"{title} {request.path_params['run']}" if "run" in request.path_params else title
            return HTMLResponse(pages.shell(named, make(request), edit=self.edit))

        return self._told(whole)

    def _post(self, act: Callable[[Run, Any], str]) -> Callable[[Request], Any]:
        async def acted(request: Request) -> Response:
            if not self.edit:
                return PlainTextResponse("This server is read-only: start it with luxmeter ui --edit.\n", 403)
            form = await request.form()

            def work(inner: Request) -> Response:
                run = self._of(inner)
                said = act(run, form)
                return RedirectResponse(f"/run/{run.id}" + (f"?said={said}" if said else ""), 303)

            return await run_in_threadpool(self._told(work), request)

        return acted

    def _compare(self, request: Request) -> str:
        named = [part for text in request.query_params.getlist("run") for part in text.split(",") if part]
        if len(named) > _MOST_COMPARED:
            raise UsageError("compare-too-many", f"{len(named)} runs are named.", f"Compare at most {_MOST_COMPARED}.")  # fmt: skip
        return pages.compare_page([self._find(name) for name in dict.fromkeys(named)])

    def _run(self, request: Request) -> str:
        run = self._of(request)
        return pages.run_page(run, edit=self.edit, after_ns=Live.newest_ns(run))

    def _trace(self, request: Request) -> str:
        run = self._of(request)
        return pages.trace_page(run, self._views.of(self._trace_of(run)))

    def _window(self, request: Request) -> Response:
        view = self._views.of(self._trace_of(self._of(request)))
        asked = {name: _whole(request.query_params.get(name)) for name in ("start", "end", "width")}
        drawn = view.timeline(asked["start"], asked["end"], asked["width"] or 1200)
        return JSONResponse(drawn.data())

    def _trace_of(self, run: Run) -> Path:
        made = run.results("trace")
        if not made:
            raise StoreError("trace-not-found", f"Run {run.id} holds no trace.", "Make one inside the run: luxmeter run --trace.")  # fmt: skip
        return made[-1].folder

    def _code(self, request: Request) -> str:
        against = request.query_params.get("against", "")
        return pages.code_page(
            self._of(request), request.query_params.get("path", ""), self._find(against) if against else None
        )

    def _file(self, request: Request) -> Response:
        run, name = self._of(request), request.path_params["path"]
        if name not in run.files:
            raise StoreError(
                "file-missing", f"Run {run.id} has no file {name!r}.", "Its page lists its files."
            )
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        is_picture = kind in ("image/png", "image/jpeg", "image/gif", "image/webp")
        headers = {} if is_picture else {"content-disposition": f"attachment; filename={json.dumps(Path(name).name, ensure_ascii=True)}"}  # fmt: skip
        return Response(
            run.read_file(name),
            media_type=kind if is_picture else "application/octet-stream",
            headers=headers,
        )

    def _web(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "style.css":
            return Response(whole_style(), media_type="text/css", headers={"cache-control": "no-cache"})
        stem, _, ending = name.rpartition(".")
        if ending != "js" or stem not in _MODULES:
            return PlainTextResponse("There is no such file.\n", 404)
        text = files("luxmeter.view.web").joinpath(name).read_text("utf-8")
        return Response(text, media_type="text/javascript", headers={"cache-control": "no-cache"})

    async def _live(self, request: Request) -> Response:
        try:
            run = await run_in_threadpool(self._of, request)
        except LuxmeterError as error:
            return PlainTextResponse(f"{error}\n", 404)
        after = _whole(request.headers.get("last-event-id")) or _whole(request.query_params.get("after")) or 0
        return StreamingResponse(
            self._stream(Live(run, after)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _stream(self, live: Live) -> AsyncIterator[str]:
        while not self.ending.is_set():
            try:
                news = await run_in_threadpool(live.news)
            except (LuxmeterError, OSError, ValueError) as error:
                yield _event("gone", {"said": str(error)}, live.after_ns)
                return
            if news:
                yield _event("news", news, live.after_ns)
            if news.get("state", "running") != "running":
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), _EVERY_S)

    def _note(self, run: Run, form: Any) -> str:
        run.set_note(str(form.get("note", "")).replace("\r\n", "\n"))
        return ""

    def _tags(self, run: Run, form: Any) -> str:
        wanted = str(form.get("tags", "")).split()
        gone = [tag for tag in run.tags if tag not in wanted]
        if gone:
            run.untag(*gone)
        if new := [tag for tag in wanted if tag not in run.tags]:
            run.tag(*new)
        return ""

    def _control(self, run: Run, form: Any) -> str:
        run.control(str(form.get("what", "")), wait_s=5.0)
        return ""


def build(
    lab: Path, *, edit: bool = False, hosts: tuple[str, ...] = (), token: str = "", port: int = 0
) -> Starlette:
    """The application."""
    made = App(lab, edit=edit)
    app = Starlette(
        routes=made.routes(),
        middleware=[Middleware(Guard, hosts=hosts, token=token, port=port), Middleware(GZipMiddleware, minimum_size=2000)],
    )  # fmt: skip
    app.state.ending = made.ending
    return app


class _Server(uvicorn.Server):
    """Ends open streams when it is told to end."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """As uvicorn does, after the streams."""
        self.config.app.state.ending.set()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def serve(lab: Path, *, host: str, port: int, edit: bool, said: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `said` is told the address once it is listened to."""
    is_local = host in ("127.0.0.1", "localhost", "::1")
    token = "" if is_local else secrets.token_urlsafe(24)
    try:
        socket = _bound(host, port)
    except OSError as error:
        raise UsageError("ui-port", f"Port {port} of {host} cannot be listened to: {error.strerror}.", "Choose another with --port, or end what uses it.") from error  # fmt: skip
    port = socket.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
    app = build(lab, edit=edit, hosts=hosts, token=token, port=port)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=2, lifespan="off"
    )
    server = _Server(config)
    said(f"http://{shown}:{port}/" + (f"?token={token}" if token else ""))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[socket])
    sys.stderr.write("luxmeter: the server has ended\n")


def _bound(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    made.set_inheritable(True)
    return made


def _event(name: str, data: Any, id_: int) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return f"id: {id_}\nevent: {name}\ndata: {text}\n\n"


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() and len(text) < 20 else None
