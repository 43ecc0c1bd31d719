"""MLflow's runs, imported: parameters, every point of every metric, tags, artifacts, status, times, parents.

    import_mlflow(lab, "sqlite:///mlflow.db")      # or "mlflow.db", "mlruns", "http://host:5000"

The real MLflow client reads them, whatever store is behind the address. A SQLite file is read from a copy: opening
one as MLflow does may change it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from luxmeter import scratch
from luxmeter.errors import LuxmeterError, MissingExtraError, UsageError, warn_once
from luxmeter.experiment.transfer.origin import Origin, imported_id
from luxmeter.literal import parse
from luxmeter.progress import track
from luxmeter.store import FinishedRun, Lab

MOST_ARTIFACT_BYTES = 1 << 30  # a larger artifact is named, not copied
_STATES = {
    "FINISHED": "finished",
    "FAILED": "failed",
    "KILLED": "interrupted",
}  # the rest never said how it ended
_PAGE = 500
# MLflow 3 refuses its own folders unless told; reading them does no harm. And no bar for each artifact.
_SETTINGS = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
# A server that is not there is asked for minutes otherwise. Once it has answered, it gets MLflow's own patience.
_FIRST_QUESTION = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}


def import_mlflow(
    lab: Lab,
    uri: str | Path,
    *,
    experiment: str | None = None,
    artifacts: bool = True,
    most_artifact_bytes: int = MOST_ARTIFACT_BYTES,
    quiet: bool = True,
) -> list[str]:
    """Every run of the tracking store becomes a run; returns their ids. Known ones are left, changed ones renewed."""
    client_type = _client_type()
    with _address(str(uri)) as address, _environment_of(_SETTINGS):
        try:
            client = client_type(tracking_uri=address)
            with _environment_of(_FIRST_QUESTION, over=False):
                names = {e.experiment_id: e.name for e in _pages(client.search_experiments)}
            if experiment is not None:
                names = {key: name for key, name in names.items() if name == experiment}
            found = list(_pages(client.search_runs, experiment_ids=list(names))) if names else []
        except LuxmeterError:
            raise
        except Exception as error:  # whatever lies under MLflow: its own error, a driver's, the network's
            raise UsageError(
                "mlflow-unreadable",
                f"MLflow cannot read {uri}: {_first_line(error)}.",
                "Check the address; an older database is brought up to date by: mlflow db upgrade URI",
            ) from error
        ids = {run.info.run_id: _id_of(run) for run in found}
        reader = _Reader(client, names, ids, str(uri), most_artifact_bytes if artifacts else -1)
        imported = []
        # Oldest first: a parent is there before its children.
        for run in track(sorted(found, key=lambda r: r.info.start_time or 0), "importing", quiet=quiet):
            imported.append(reader.take(lab, run))
    return imported


class _Reader:
    def __init__(
        self, client: Any, names: Mapping[str, str], ids: Mapping[str, str], uri: str, most_bytes: int
    ) -> None:
        self.client = client
        self.names = names
        self.ids = ids
        self.uri = uri
        self.most_bytes = most_bytes

    def take(self, lab: Lab, run: Any) -> str:
        info, data = run.info, run.data
        tags = dict(data.tags)
        points = self._points(info.run_id, data.metrics)
        listed, left = self._list(info)
        facts = {
            "run_id": info.run_id,
            "run_name": info.run_name,
            "status": info.status,
            "tags": tags,
            "artifacts_left_out": left,
        }
        told = [
            info.run_id,
            info.status,
            info.end_time,
            dict(data.params),
            tags,
            points,
            sorted(listed.items()),
            left,
        ]
        content = hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()
        origin = Origin("mlflow", self.uri, info.run_id, content, facts)
        run_id = origin.run_id(_created_ns(info))
        if origin.is_in(lab, run_id):
            return run_id
        with scratch.folder("mlflow") as folder:
            files = self._download(info.run_id, listed, folder)
            last_ns = max(points[3::4], default=_created_ns(info))
            return origin.bring(
                lab,
                FinishedRun(
                    id=run_id, name=self.names.get(info.experiment_id) or "mlflow", created_ns=_created_ns(info),
                    ended_ns=_ns(info.end_time) if info.end_time else last_ns,
                    state=_STATES.get(info.status, "lost"),
                    params={key: parse(value) for key, value in data.params.items()},
                    environment=_environment(tags, info), tags=_tags(tags, info.run_name),
                    note=tags.get("mlflow.note.content", ""), parent=self.ids.get(tags.get("mlflow.parentRunId", "")),
                    points=points, files=files,
                ),
            )  # fmt: skip

    def _points(self, run_id: str, latest: Mapping[str, float]) -> list[Any]:
        rows = [
            (m.timestamp, m.step, key, float(m.value))
            for key in latest
            for m in self.client.get_metric_history(run_id, key)
        ]
        flat: list[Any] = []
        for stamp, step, key, value in sorted(rows, key=lambda row: row[:3]):
            flat.extend((key, value, int(step), int(stamp) * 1_000_000))
        return flat

    def _list(self, info: Any) -> tuple[dict[str, int], dict[str, str]]:
        """The artifacts to copy (path -> bytes), and those that are not (path -> why)."""
        if self.most_bytes < 0:
            return {}, {}
        if not _holds_run(info.artifact_uri or "", info.run_id):
            # A database from elsewhere may name any folder of this machine as a run's own.
            return {}, {"*": f"{info.artifact_uri} is not a folder of this run"}
        found: dict[str, int] = {}
        left: dict[str, str] = {}
        folders = [""]
        try:
            while folders:
                for entry in self.client.list_artifacts(info.run_id, folders.pop() or None):
                    if entry.is_dir:
                        folders.append(entry.path)
                    elif (entry.file_size or 0) > self.most_bytes:
                        left[entry.path] = f"{entry.file_size} bytes"
                    else:
                        found[entry.path] = entry.file_size or 0
        except Exception as error:  # noqa: BLE001  (a store that is gone must not keep the run's numbers out)
            left["*"] = _first_line(error)
        return found, left

    def _download(self, run_id: str, listed: Mapping[str, int], scratch: Path) -> dict[str, bytes | Path]:
        files: dict[str, bytes | Path] = {}
        for path in listed:
            if Path(path).is_absolute() or ".." in Path(path).parts or "\\" in path:
                continue  # it points outside; no client should list such a name
            try:
                got = Path(self.client.download_artifacts(run_id, path, str(scratch)))
            except Exception as error:  # noqa: BLE001
                warn_once(
                    "mlflow-artifact",
                    f"The artifact {path!r} of run {run_id} cannot be read: {_first_line(error)}.",
                    "The run is imported without it.",
                    key=f"{run_id}/{path}",
                )
                continue
            if got.is_file() and not got.is_symlink():
                files[f"artifacts/{path}"] = got
        return files


def _client_type() -> Any:
    try:
        from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtraError(
            "no-mlflow",
            f"Importing MLflow's runs needs the package mlflow: {error}.",
            "Install it with: pip install mlflow",
        ) from error
    return MlflowClient


@contextlib.contextmanager
def _address(uri: str) -> Iterator[str]:
    """The address for the client: a path becomes one, a SQLite file is copied."""
    path = _local_path(uri)
    if path is None:
        yield uri
        return
    if path.is_dir():
        yield path.absolute().as_uri()
        return
    if not path.is_file():
        raise UsageError(
            "mlflow-not-there",
            f"There is no MLflow store at {uri}.",
            "Name its SQLite file, its mlruns folder, or the server's address.",
        )
    with scratch.folder("mlflow") as folder:
        copy = folder / "mlflow.db"
        _copy_database(path, copy, uri)
        yield f"sqlite:///{copy}"
        _let_go(f"sqlite:///{copy}")


def _copy_database(path: Path, copy: Path, uri: str) -> None:
    try:
        source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(source), contextlib.closing(sqlite3.connect(copy)) as target:
            tables = {row[0] for row in source.execute("select name from sqlite_master where type = 'table'")}
            if not {"runs", "experiments", "metrics"} <= tables:
                raise UsageError(
                    "mlflow-not-there",
                    f"{uri} holds no MLflow runs: its tables are {', '.join(sorted(tables)) or 'none'}.",
                    "Name the file that MLflow was given.",
                )
            source.backup(target)
    except sqlite3.DatabaseError as error:
        raise UsageError(
            "mlflow-unreadable", f"{uri} is not a readable SQLite file: {error}.", "Check the path."
        ) from error


def _let_go(address: str) -> None:
    """Close what MLflow keeps open for the address (a pool of connections to a file that is about to go)."""
    with contextlib.suppress(Exception):
        from mlflow.store.tracking.sqlalchemy_store import (  # type: ignore[import-not-found,unused-ignore]
            SqlAlchemyStore,
        )

        for engine_address, engine in list(SqlAlchemyStore._engine_map.items()):
            if engine_address.startswith(address):
                engine.dispose()
                del SqlAlchemyStore._engine_map[engine_address]


def _local_path(uri: str) -> Path | None:
    """The file or folder behind an address; None for a server or another database."""
    if uri.startswith("sqlite:///"):
        return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0]))
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(uri).expanduser() if "://" not in uri else None


@contextlib.contextmanager
def _environment_of(wanted: Mapping[str, str], *, over: bool = True) -> Iterator[None]:
    """Environment variables that MLflow reads; not `over`: those that somebody has set stay."""
    wanted = {name: value for name, value in wanted.items() if over or name not in os.environ}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _pages(ask: Any, **arguments: Any) -> Iterator[Any]:
    token = None
    while True:
        page = ask(max_results=_PAGE, page_token=token, **arguments)
        yield from page
        token = page.token
        if not token:
            return


def _created_ns(info: Any) -> int:
    return _ns(info.start_time or info.end_time or 0)


def _ns(milliseconds: float) -> int:
    """Within what 64 bits hold, whatever a database says."""
    return min(max(int(milliseconds), 0), (1 << 63) // 1_000_000 - 1) * 1_000_000


def _id_of(run: Any) -> str:
    return imported_id("mlflow", run.info.run_id, _created_ns(run.info))


def _environment(tags: Mapping[str, str], info: Any) -> dict[str, Any]:
    names = {
        "mlflow.user": "user",
        "mlflow.source.name": "source",
        "mlflow.source.type": "source_type",
        "mlflow.source.git.commit": "git_commit",
        "mlflow.source.git.branch": "git_branch",
    }
    told = {word: tags[name] for name, word in names.items() if name in tags}
    return {"mlflow": {**told, "artifact_uri": info.artifact_uri}}


def _tags(tags: Mapping[str, str], run_name: str | None) -> list[str]:
    """Tags in the form that runs have here: words. MLflow's run name is one, so that it names the run."""
    made = ["mlflow", *([run_name] if run_name else [])]
    made += [
        f"{key}={value}" if value else key for key, value in tags.items() if not key.startswith("mlflow.")
    ]
    return [t for t in made if t == t.strip() and t != "latest" and len(t) <= 80 and not set("/~\n") & set(t)]


def _holds_run(artifact_uri: str, run_id: str) -> bool:
    """Whether a local artifact folder is a run's own (`.../<run id>/artifacts`); what a server holds is its matter."""
    path = _local_path(artifact_uri)
    # The database says the id, too: only one that MLflow makes can be no folder of the user's own (.ssh).
    is_id = re.fullmatch("[0-9a-f]{32}", run_id) is not None
    return path is None or (is_id and run_id in path.parts and ".." not in path.parts)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
