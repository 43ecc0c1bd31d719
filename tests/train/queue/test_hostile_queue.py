"""A queue whose files somebody else wrote: they name nothing outside of it, and what does not fit is said."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from queue_parts import DEAD

from luxmeter.errors import LuxmeterError, StoreError
from luxmeter.experiment.capture.project_code import drop_project, lay_out, stored_names, stored_project
from luxmeter.process import Process
from luxmeter.store import Job, Lab
from luxmeter.train import Queue
from luxmeter.train.queue.begin import claimed_by
from luxmeter.train.queue.engines.on_node import ended_code
from luxmeter.train.queue.jobs import Wanted, drop_unused_code


@pytest.fixture
def job(queue: Queue) -> Job:
    [made] = queue.add(Path("project/script.py"), [Wanted(())])
    return made


def code_file(queue: Queue, job: Job) -> Path:
    return queue.folder / "code" / job.code / "code.json"


def forge(queue: Queue, job: Job, **values: Any) -> None:
    file = code_file(queue, job)
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def forge_job(queue: Queue, **values: Any) -> None:
    with sqlite3.connect(queue.folder / "jobs.sqlite") as database:
        [text] = database.execute("select job from luxmeter_jobs").fetchone()
        database.execute("update luxmeter_jobs set job = ?", [json.dumps({**json.loads(text), **values})])


@pytest.mark.parametrize(
    "values",
    [
        {"files": 3}, {"files": {"a.py": 3}}, {"files": {"a.py": ["100644"]}}, {"files": {"a.py": ["100644", "../../x"]}},
        {"files": {"a.py": [100644, "0" * 64]}}, {"files": {"../a.py": ["100644", "0" * 64]}}, {"files": {"/etc/a": ["120000", "x"]}},
        {"files": {"a": ["120000", "/tmp"], "a/b": ["100644", "0" * 64]}}, {"files": {"a": ["120000", "b"], "./a": ["100644", "0" * 64]}},
        {"root": None}, {"root": "here"}, {"paths": [1]}, {"paths": ["../elsewhere"]}, {"paths": ["/elsewhere"]}, {"name": "other"},
        {"git": []}, {"git": {"snapshot": "--stdin"}}, {"git": {"tree": 3}},
    ],
    ids=repr,
)  # fmt: skip
def test_forged_code_is_no_code(queue: Queue, job: Job, values: dict[str, Any]) -> None:
    forge(queue, job, **values)
    with pytest.raises(StoreError, match="job-code-damaged"):
        stored_project(queue.lab, job.code)


@pytest.mark.parametrize("text", ["[]", "3", "{}", "null", '{"files": {}}', "[" * 100_000, "x"])
def test_what_is_no_record_of_code_is_said_and_forgotten(queue: Queue, job: Job, text: str) -> None:
    code_file(queue, job).write_text(text)
    with pytest.raises(StoreError, match=r"job-code-damaged|job-code-missing|file-damaged"):
        stored_project(queue.lab, job.code)
    drop_project(queue.lab, job.code)
    assert stored_names(queue.lab) == []


def test_no_file_is_written_through_a_link(queue: Queue, job: Job, tmp_path: Path) -> None:
    """Also not by who lays out a record that nobody looked at: links come after all files."""
    outside = tmp_path / "outside"
    outside.mkdir()
    code = stored_project(queue.lab, job.code)
    [content] = [kept for _, kept in code.files.values()]
    code.files["a"], code.files["a/b"] = ("120000", str(outside)), ("100644", content)  # type: ignore[index]
    with pytest.raises(OSError):
        lay_out(queue.lab, code, tmp_path / "laid")
    assert list(outside.iterdir()) == []


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@t"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_forgetting_code_deletes_no_ref_of_another_name_or_commit(
    queue: Queue, job: Job, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "a")
    commit = git(other, "rev-parse", "HEAD")
    refs = ["refs/luxmeter/queue-kept", "refs/luxmeter/queue-0badcafe", "refs/heads/kept"]
    for ref in refs:
        git(other, "update-ref", ref, commit)
    for ref, said in (
        (refs[0], commit),
        (refs[1], "0" * 40),
        (refs[1], None),
        ("refs/luxmeter/queue-/../../heads/kept", commit),
    ):
        forge(queue, job, root=str(other), git={"ref": ref, "snapshot": said})
        kept = code_file(queue, job).read_text()
        drop_project(queue.lab, job.code)
        code_file(queue, job).parent.mkdir()
        code_file(queue, job).write_text(kept)
    found = git(other, "for-each-ref", "--format=%(refname)").split()
    assert set(refs) <= set(found)
    forge(queue, job, root=str(other), git={"ref": refs[1], "snapshot": commit})
    drop_project(queue.lab, job.code)  # its own it does
    assert refs[1] not in git(other, "for-each-ref", "--format=%(refname)").split()


@pytest.mark.parametrize(
    "values",
    [{"run": "x/../../../../outside"}, {"run": ".."}, {"code": "../../.."}, {"code": ""}, {"state": "over"}, {"id": -1}, {"id": 10**30},
     {"process": {"host": "a", "machine": "b", "pid": -1, "started": 1.0}}, {"worker": {"host": "a", "machine": "b", "pid": "1", "started": 1.0}},
     {"worker": 3}, {"needs": None}, {"needs": {"cpus": "many"}}, {"after": "12"}],
    ids=repr,
)  # fmt: skip
def test_a_job_that_reaches_out_of_the_queue_is_refused(
    queue: Queue, job: Job, values: dict[str, Any], tmp_path: Path
) -> None:
    """The folder of a job that goes on is called after its run, and is cleared away at its end."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.tex").write_text("years of work")
    (queue.folder / "going" / f"{job.id}-x").mkdir(parents=True)
    forge_job(queue, **values)
    with pytest.raises(LuxmeterError, match="queue-damaged"):
        queue.cancel(queue.find(job.id), force=True)
    assert (outside / "thesis.tex").read_text() == "years of work"


def test_a_folder_of_no_name_of_ours_hinders_nothing(queue: Queue, job: Job) -> None:
    for name in ("-x", "a b", "ü"):
        (queue.folder / "code" / name).mkdir()
    drop_unused_code(queue)
    assert stored_names(queue.lab) == [job.code]


@pytest.mark.parametrize(
    "text",
    ["", "3", "[]", "{}", '{"pid": 1}', "[" * 100_000, '{"code": "0"}', '{"code": 1e400}', '{"code": true}'],
)
def test_what_a_process_left_that_tells_nothing(queue: Queue, job: Job, text: str, tmp_path: Path) -> None:
    (tmp_path / "ended.json").write_text(text)
    assert ended_code(tmp_path) is None
    (tmp_path / "began.json").write_text(text)
    assert claimed_by(tmp_path / "began.json") is None
    held = code_file(queue, job).with_name("held-1.json")
    held.write_text(text)
    queue.cancel(job)  # then it waits for nothing, but somebody may hold it
    assert stored_names(queue.lab) == [job.code]
    held.write_text(json.dumps(vars(DEAD)))
    drop_unused_code(queue)
    assert stored_names(queue.lab) == []


@pytest.mark.parametrize(
    "values",
    [{"pid": 0}, {"pid": -5}, {"pid": 2**40}, {"pid": True}, {"host": 3}, {"started": "x"}, {"ticks": None}],
)
def test_a_process_that_cannot_be(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="its "):
        Process.of({**vars(DEAD), **values})


def test_a_number_that_is_none(queue: Queue, job: Job) -> None:
    """SQLite keeps any text in a column of numbers."""
    for change in ("update luxmeter_jobs_facts set value = 'x'", "update luxmeter_jobs set id = 'x'"):
        with sqlite3.connect(queue.folder / "jobs.sqlite") as database:
            database.execute(change)
        with pytest.raises(StoreError, match="queue-damaged"):
            Queue(Lab.open(queue.lab.folder)).add(Path("project/script.py"), [Wanted(())])
        with sqlite3.connect(queue.folder / "jobs.sqlite") as database:
            database.execute("update luxmeter_jobs_facts set value = '1'")
