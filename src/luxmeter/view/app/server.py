"""The server: addresses to pages, new points to those who look, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import mimetypes
import secrets
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
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
from luxmeter.experiment import open_lab, runs
from luxmeter.render import numbers
from luxmeter.store import KnownTraces, Result, Run
from luxmeter.view.app import compare, run_pages, runs_list, shell, start, trace_pages
from luxmeter.view.app.curves_part import Chosen, part_of
from luxmeter.view.app.guard import Guard
from luxmeter.view.app.live import Live, ReadSoFar
from luxmeter.view.app.reach import file_of, run_of, trace_of
from luxmeter.view.app.trace_pages import Looked
from luxmeter.view.app.trace_view import TraceViews

_GONE = ("run-not-found", "no-runs-yet", "no-lab", "file-missing", "trace-not-found")
_EVERY_S = 0.5
_QUIET_S = 15.0  # so long a stream says nothing before it is asked whether somebody still listens
_MOST_POSTED = 1 << 20  # bytes
_SMALL_TRACE = 32 << 20  # bytes: about three million calls


class App:
    """The pages of one lab."""

    def __init__(self, lab: Path, *, edit: bool = False) -> None:
        self.lab = lab
        self.edit = edit
        self.ending = asyncio.Event()
        self._views = TraceViews()
        self._known_traces = KnownTraces(lab)

    def routes(self) -> list[Route]:
        """Address by address."""
        page, post, told = self._page, self._post, self._told
        return [
            Route("/", page("luxmeter", lambda r: start.start_page(self.lab))),
            Route("/runs", page("Runs", lambda r: runs_list.runs_page(runs_list.Asked.of(r.query_params), self.lab))),
            Route("/compare", page("Compare", self._compare)),
            Route("/traces", page("Traces", self._traces)),
            Route("/trace/{trace}", page("Trace", self._trace)),
            Route("/trace/{trace}/window", told(self._window)),
            Route("/run/{run}", page("Run", self._run, lambda r: self._prepare(self._of(r)))),
            Route("/run/{run}/points", told(self._points)),
            Route("/run/{run}/trace", page("Trace", self._run_trace)),
            Route("/run/{run}/trace/window", told(self._window)),
            Route("/run/{run}/code", page("Code", self._code)),
            Route("/run/{run}/log", page("Output", lambda r: run_pages.log_page(self._of(r)))),
            Route("/run/{run}/output.txt", told(self._output)),
            Route("/run/{run}/files", page("Files", self._files)),
            Route("/run/{run}/files/{path:path}", told(self._file)),
            Route("/run/{run}/live", self._live),
            Route("/run/{run}/note", post(self._note), methods=["POST"]),
            Route("/run/{run}/tags", post(self._tags), methods=["POST"]),
            Route("/run/{run}/control", post(self._control), methods=["POST"]),
            Route("/web/{hash}/{name}", self._web),
        ]  # fmt: skip

    # -- how it answers -----------------------------------------------------------------------------------------------

    def _of(self, request: Request) -> Run:
        return run_of(self.lab, request.path_params["run"])

    def _told(self, make: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """An error as one clear sentence on a page; the server goes on."""

        @functools.wraps(make)
        def answered(request: Request) -> Response:
            try:
                return make(request)
            except LuxmeterError as error:
                return self.refusal(str(error), 404 if getattr(error, "slug", "") in _GONE else 400)
            except Exception as error:  # noqa: BLE001  (one page's; the others go on)
                if not isinstance(error, OSError):
                    traceback.print_exc(file=sys.stderr)
                return self.refusal(f"{type(error).__name__}: {error}", 500)

        return answered

    def refusal(self, said: str, status: int) -> Response:
        """A page that says why not."""
        return HTMLResponse(shell.shell("Not shown", shell.error_page(said), edit=self.edit), status)

    def _page(
        self, title: str, make: Callable[[Request], str], then: Callable[[Request], None] | None = None
    ) -> Callable[[Request], Response]:
        """`then`: what is done when it was sent."""

        def whole(request: Request) -> Response:
            named = f"{title} {request.path_params['run']}" if "run" in request.path_params else title
            headers = {"cache-control": "no-store"}  # going back shows how things stand, not how they stood
            answer = HTMLResponse(shell.shell(named, make(request), edit=self.edit), headers=headers)
            if then is not None:
                answer.background = BackgroundTask(then, request)
            return answer

        return self._told(whole)

    def _post(self, act: Callable[[Run, dict[str, str]], str]) -> Callable[[Request], Any]:
        """What changes something: only if the server was started for that. Leads back to the run's page."""

        async def acted(request: Request) -> Response:
            if not self.edit:
                return PlainTextResponse("This server is read-only: start it with luxmeter ui --edit.\n", 403)
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > _MOST_POSTED:
                    return PlainTextResponse("That is too much: at most 1 MiB is taken.\n", 413)
            form = {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()}  # fmt: skip

            def work(inner: Request) -> Response:
                run = self._of(inner)
                answered = act(run, form)
                return RedirectResponse(f"/run/{run.id}" + (f"?answered={answered}" if answered else ""), 303)

            return await run_in_threadpool(self._told(work), request)

        return acted

    # -- pages --------------------------------------------------------------------------------------------------------

    def _run(self, request: Request) -> str:
        run, query = self._of(request), request.query_params
        chosen = Chosen.of(f"/run/{run.id}", query)
        return run_pages.run_page(run, chosen, edit=self.edit, answered=query.get("answered", ""))

    def _compare(self, request: Request) -> str:
        query = request.query_params
        chosen = Chosen.of("/compare", query, kept=("run", "where", "archived"))
        named = [part for text in query.getlist("run") for part in text.split(",") if part]
        if "where" in query:
            found = runs(
                query["where"], archived=None if query.get("archived") == "1" else False, lab=self.lab
            )
            members = found[: compare.MOST].in_full()
            left_out = len(found) - len(members)
        else:
            members, left_out = [run_of(self.lab, name) for name in dict.fromkeys(named[: compare.MOST])], 0
        return compare.compare_page(members, chosen, left_out=left_out, where=query.get("where", ""))

    def _traces(self, request: Request) -> str:
        page = request.query_params.get("page", "1")
        number = int(page) if page.isdecimal() and 0 < int(page) < 10**7 else 1
        open_lab(self.lab, create=False)  # a word if it is gone
        return trace_pages.traces_page(self.lab, self._known_traces, number)

    def _trace(self, request: Request) -> str:
        found = trace_of(self.lab, request.path_params["trace"])
        looked = Looked(
            f"/trace/{found.folder.name}", request.query_params.get("by", "api"), _window_of(request)
        )
        return trace_pages.trace_page(found, self._views.of(found.folder), looked)

    def _run_trace(self, request: Request) -> str:
        run = self._of(request)
        traces, number = self._traces_of(run, request)
        looked = Looked(f"/run/{run.id}/trace", request.query_params.get("by", "api"), _window_of(request), number)  # fmt: skip
        return trace_pages.run_trace_page(run, traces, self._views.of(traces[number].folder), looked)

    def _prepare(self, run: Run) -> None:
        """Whoever looks at a run may look at its trace next: a small one is read meanwhile."""
        with contextlib.suppress(Exception):  # its own page will say what is wrong
            if made := run.results("trace"):
                sizes = (path.stat().st_size for path in made[-1].folder.rglob("*") if path.is_file())
                if sum(sizes) <= _SMALL_TRACE:
                    trace_pages.prepared(self._views.of(made[-1].folder))

    def _traces_of(self, run: Run, request: Request) -> tuple[list[Result], int]:
        made = run.results("trace")
        number = _whole(request.query_params.get("n"))
        number = len(made) - 1 if number is None else number
        if not 0 <= number < len(made):
            raise StoreError("trace-not-found", f"Run {run.id} holds {len(made)} traces.", "Make one inside a run: luxmeter run --trace.")  # fmt: skip
        return made, number

    def _window(self, request: Request) -> Response:
        if "run" in request.path_params:
            traces, number = self._traces_of(self._of(request), request)
            folder = traces[number].folder
        else:
            folder = trace_of(self.lab, request.path_params["trace"]).folder
        asked = [_whole(request.query_params.get(name)) for name in ("start", "end", "width")]
        return JSONResponse(self._views.of(folder).timeline(asked[0], asked[1], asked[2] or 1200).data())

    def _points(self, request: Request) -> Response:
        query = request.query_params
        line = part_of(self._of(request), query.get("metric", ""), _number(query.get("start")), _number(query.get("end")))  # fmt: skip
        return JSONResponse({"x": numbers(line.x), "y": numbers(line.y)})

    def _code(self, request: Request) -> str:
        query = request.query_params
        against = query.get("against", "")
        return run_pages.code_page(
            self._of(request), query.get("path", ""), run_of(self.lab, against) if against else None
        )

    def _files(self, request: Request) -> str:
        run = self._of(request)
        path = request.query_params.get("path", "")
        return run_pages.files_page(run, path, lambda name: file_of(run, name, self.lab))

    def _file(self, request: Request) -> Response:
        run, name = self._of(request), request.path_params["path"]
        return _file_answer(file_of(run, name, self.lab), name)

    def _output(self, request: Request) -> Response:
        run = self._of(request)
        return _file_answer(run.log_text.encode(), f"{run.id}.txt")

    async def _web(self, request: Request) -> Response:
        found = shell.assets().get(f"{request.path_params['hash']}/{request.path_params['name']}")
        if found is None:
            return self.refusal("There is no such file: load the page again.", 404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found[1], media_type=found[0], headers=headers)

    # -- live -----------------------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        try:
            run = await run_in_threadpool(self._of, request)
            live = Live(run, ReadSoFar.of(after))
        except (LuxmeterError, OSError) as error:
            return PlainTextResponse(f"{error}\n", 404)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(live), media_type="text/event-stream", headers=headers)

    async def _stream(self, live: Live) -> AsyncIterator[str]:
        yield ": here\n\n"
        said = time.monotonic()
        while not self.ending.is_set():
            try:
                news = await run_in_threadpool(live.news, time.time_ns())
            except Exception as error:  # noqa: BLE001  (told on the page)
                yield _event("gone", {"said": str(error)}, str(live.read_so_far))
                return
            if news.get("state") == "removed":
                yield _event(
                    "gone", {"said": "This run was removed.", "state": "removed"}, str(live.read_so_far)
                )
                return
            if news:
                yield _event("news", news, str(live.read_so_far))
                said = time.monotonic()
            elif time.monotonic() - said > _QUIET_S:
                yield ": still here\n\n"
                said = time.monotonic()
            if news.get("state", "running") != "running":
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ending.wait(), _EVERY_S)

    # -- changes ----------------------------------------------------------------------------------------------------------

    def _note(self, run: Run, form: dict[str, str]) -> str:
        run.set_note(form.get("note", "").replace("\r\n", "\n"))
        return ""

    def _tags(self, run: Run, form: dict[str, str]) -> str:
        wanted = form.get("tags", "").split()
        if new := [tag for tag in wanted if tag not in run.tags]:
            run.tag(*new)  # first: one that cannot be is told before any is taken away
        if gone := [tag for tag in run.tags if tag not in wanted]:
            run.untag(*gone)
        return ""

    def _control(self, run: Run, form: dict[str, str]) -> str:
        what = form.get("what", "")
        if what not in run_pages.CONTROLS:
            raise UsageError("control-what", f"A training cannot be asked to {what!r}.", f"It can be asked to {', '.join(run_pages.CONTROLS)}.")  # fmt: skip
        run.control(what, wait_s=5.0)
        return what


def build(
    lab: Path, *, edit: bool = False, hosts: tuple[str, ...] = (), token: str = "", port: int = 0
) -> Starlette:
    """The application. `hosts`: by which names it may be asked where no token is needed."""
    made = App(lab, edit=edit)

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        said = {404: f"There is no page {request.url.path}.", 405: "This address is not asked in that way."}
        return made.refusal(said.get(status, "The server could not answer."), status)

    app = Starlette(
        routes=made.routes(),
        middleware=[Middleware(Guard, hosts=hosts, token=token, port=port), Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)],
        exception_handlers={HTTPException: refused},
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
    socket = _listening(host, port)
    port = socket.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    names = ("127.0.0.1", "localhost", "[::1]")
    hosts = (*(f"{name}:{port}" for name in names), *(names if port == 80 else ()))
    open_lab(lab, create=False)
    config = uvicorn.Config(
        build(lab, edit=edit, hosts=hosts, token=token, port=port),
        log_level="warning", access_log=False, timeout_graceful_shutdown=2, lifespan="off", server_header=False, ws="none",
    )  # fmt: skip
    server = _Server(config)
    with contextlib.suppress(LuxmeterError, OSError):  # then its first page says so
        start.start_page(lab)  # loads what pages are made of: the first one is as quick as the others
    shell.assets()
    said(f"http://{shown}:{port}/" + (f"?token={token}" if token else ""))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[socket])
    sys.stderr.write("luxmeter: the server has ended\n")


def _listening(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)  # from here on who connects waits, and is answered when the server has begun
    except OSError as error:
        made.close()
        raise UsageError(
            "ui-port", f"Port {port} of {host} cannot be listened to: {error.strerror}.", "Choose another with --port, or end what uses it."
        ) from error  # fmt: skip
    return made


def _file_answer(data: bytes, name: str) -> Response:
    """A picture to be shown, anything else to be kept: nothing that a run left is a page of ours."""
    kind = mimetypes.guess_type(name)[0]
    if kind in run_pages.PICTURES:
        return Response(data, media_type=kind)
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(PurePosixPath(name).name)}"}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _event(name: str, data: Any, id_: str) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return f"id: {id_}\nevent: {name}\ndata: {text}\n\n"


def _window_of(request: Request) -> tuple[int, int] | None:
    start, end = (_whole(request.query_params.get(name)) for name in ("start", "end"))
    return (start, end) if start is not None and end is not None and 0 <= start < end else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.lstrip("-").isdecimal() and len(text) < 19 else None  # fmt: skip


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
