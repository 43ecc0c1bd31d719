"""What a run from elsewhere may bring back: nothing that git or Luxmeter obeys, nothing through or behind a link."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from made_runs import make_run

from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment.capture import snapshot
from luxmeter.experiment.reproduce import rollback
from luxmeter.experiment.reproduce.entries import check_entries, is_control
from luxmeter.experiment.reproduce.rerun import code_of
from luxmeter.experiment.reproduce.rollback import Item, roll_back
from luxmeter.experiment.transfer.archive import export_run, import_run
from luxmeter.store import Lab, Run


def git(*words: str, cwd: Path | None = None) -> str:
    who = ["-c", "user.name=T", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], capture_output=True, text=True, check=True, cwd=cwd)
    return done.stdout.strip()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "/objects/" not in p.as_posix() and not p.name.startswith("index")
    }


CONTROL = [
    ".git/config", ".git/HEAD", ".git/info/attributes", ".git/hooks/post-checkout", ".git", "sub/.git/config",
    ".GIT/config", ".Git/config", ".g\u200cit/config", "\ufeff.git/config", ".gi\u200dt/config", ".git\u200e/config",
    "\uff0egit/config", ".\uff47\uff49\uff54/config", "git~1/config", "GIT~1/config", ".git./config", ".git /config",
    ".git. ./config", ".git::$INDEX_ALLOCATION/config", ".git:config", ".luxmeter/settings.json", ".LUXMETER/lab.json",
    "a/b/.luxmeter/settings.json", "luxmet~1/settings.json", ".venv-mindspore/bin/python", ".hg/hgrc", ".jj/repo/config",
]  # fmt: skip


@pytest.mark.parametrize("name", CONTROL)
def test_nothing_that_is_obeyed_is_written(lab: Lab, tmp_path: Path, name: str) -> None:
    """An imported run that names it is refused as a whole, by its name, for a new folder and for a project."""
    run = make_run(lab, code={"train.py": "x\n", name: "[core]\n\tfsmonitor = touch pwned\n"})
    other = Lab.open(tmp_path / "other")
    taken = import_run(other, export_run(run, tmp_path / "run.tar.gz"))
    imported = Run(taken.folder, other.folder)
    target = tmp_path / "project"
    target.mkdir()
    git("init", "-q", cwd=target)
    before = content(target)
    for folder in (target, tmp_path / "new"):
        with pytest.raises(StoreError, match="entry-unsafe") as error:
            roll_back(imported, folder)
        assert repr(name) in str(error.value)
    assert content(target) == before and not (tmp_path / "new").exists()
    with pytest.raises(StoreError, match="entry-unsafe"), code_of(imported):
        pass
    other.close()


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", ".gitmodules", ".github/workflows/ci.yml", "git.py", "gitx/a",
                                  "luxmeter/settings.json", "a.git/x", ".gitlab-ci.yml", "legit~1", "HEAD", "refs/x.py"])  # fmt: skip
def test_ordinary_names_come_back(lab: Lab, tmp_path: Path, name: str) -> None:
    run = make_run(lab, code={name: "x\n"})
    assert (roll_back(run, tmp_path / "new").folder / name).read_text() == "x\n"


@pytest.mark.parametrize("place", ["", "fixtures/", "A/b/"])
def test_a_folder_that_is_a_repository_by_itself_is_refused(lab: Lab, tmp_path: Path, place: str) -> None:
    """Without any `.git`: HEAD, objects and refs make a bare repository, and `git status` in it ran its fsmonitor."""
    files = {"HEAD": "ref: refs/heads/main\n", "objects/info/x": "", "refs/heads/x": "", "config": "[core]\n"}
    run = make_run(lab, code={f"{place}{name}": text for name, text in files.items()})
    with pytest.raises(StoreError, match=r"entry-unsafe") as error:
        roll_back(run, tmp_path / "new")
    assert "HEAD" in str(error.value) and not (tmp_path / "new").exists()


def test_git_status_runs_nothing_of_a_run(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack itself, as a user would meet it: rollback in his repository, then git status."""
    project = tmp_path / "project"
    project.mkdir()
    git("init", "-q", cwd=project)
    marker = tmp_path / "pwned"
    config = f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {marker}; false\n"
    run = make_run(lab, code={"train.py": "x\n", ".git/config": config}, root=project)
    monkeypatch.chdir(project)
    (project / ".git" / "config").unlink()  # absent: then nothing of the user's is in the way
    with pytest.raises(StoreError, match="entry-unsafe"):
        roll_back(run)
    git("init", "-q", cwd=project)
    git("status", cwd=project)
    assert not marker.exists()


LINKS: dict[str, dict[str, str]] = {
    "one step": {"x": "../out"},
    "absolute": {"x": "/etc/passwd"},
    "empty": {"x": ""},
    "by way of another": {"x/y/z": "../..", "w": "x/y/z/../out"},
    "by way of two": {"a/b/c": "../..", "d": "a/b/c", "e": "d/../out"},
    "by another case": {"x/y/z": "../..", "w": "X/Y/Z/../out"},
    "in a circle": {"a": "b", "b": "a"},
    "itself": {"a": "a"},
    "to control files": {"hooks": ".git/hooks"},
    "to control files, by way": {"sub/up": "..", "x": "sub/up/.GIT/config"},
    "which git follows": {".gitmodules": "train.py"},
    "which git follows, by case": {".gitAttributes": "train.py"},
    "over the folder's own link": {"x": "own/../secret"},
}


@pytest.mark.parametrize("case", list(LINKS))
def test_links_that_lead_away_are_refused(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "target"
    (folder / "deep").mkdir(parents=True)
    (folder / "own").symlink_to("..")
    paths = ["train.py", *LINKS[case]]
    with pytest.raises(StoreError, match=r"link-outside|entry-unsafe"):
        check_entries(paths, LINKS[case], folder)


def test_links_that_stay_are_made(tmp_path: Path) -> None:
    links = {
        "x/y/z": "../..",
        "w": "x/y/z/x",
        "same": "train.py",
        "deep/er/link": "../../train.py",
        "dot": ".",
        "later": "not/there",
    }
    check_entries(["train.py", *links], links, tmp_path)


@pytest.mark.parametrize(
    ("paths", "links"),
    [
        (["x", "x/config"], {"x": "sub"}),
        (["x", "X/config"], {"x": "sub"}),
        (["a/b", "a/b/c/d"], {"a/b": "."}),
        (["x\u200c", "x/config"], {"x\u200c": "sub"}),
        (["X", "x"], {"X": "sub"}),
    ],
)
def test_nothing_is_written_through_a_link(tmp_path: Path, paths: list[str], links: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="entry-unsafe"):
        check_entries(paths, links, tmp_path)


def test_a_chain_of_links_in_a_tree(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through rollback itself, with a real git tree: nothing appears outside, nothing inside."""
    git("init", "-q")
    Path("train.py").write_text("x\n")
    Path("x/y").mkdir(parents=True)
    Path("x/y/z").symlink_to("../..")
    Path("w").symlink_to("x/y/z/../secret")
    git("add", ".")
    run = make_run(lab, code={"train.py": "x\n"}, git=snapshot.git_snapshot(Path.cwd(), "run-1"))
    (tmp_path / "secret").write_text("outside")
    with pytest.raises(StoreError, match="link-outside") as error:
        roll_back(run, tmp_path / "back")
    assert "w of this run" in str(error.value) and not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".luxmeter-rollback*"))


def test_reproduce_writes_beside_the_tree_only(lab: Lab, tmp_path: Path) -> None:
    """What is not in git's tree is written into a worktree: not over its `.git`, not through a link of the tree."""
    git("init", "-q")
    Path("train.py").write_text("x\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    Path("data").symlink_to(outside)
    git("add", ".")
    git("commit", "-qm", "first")
    taken = snapshot.git_snapshot(Path.cwd(), "run-1")
    for name in (".git", ".git/config", ".GIT"):
        run = make_run(lab, code={"train.py": "x\n", name: "gitdir: /nowhere\n"}, git=taken)
        with pytest.raises(StoreError, match="entry-unsafe"), code_of(run):
            pass
    run = make_run(lab, code={"train.py": "x\n", "data/evil.py": "x\n"}, git=taken)
    with pytest.raises(StoreError, match="link-outside"), code_of(run):
        pass
    assert list(outside.iterdir()) == []
    good = make_run(lab, code={"train.py": "x\n", "ignored/a.py": "y\n"}, git=taken)
    with code_of(good) as place:
        assert (place / "ignored/a.py").read_text() == "y\n" and (place / "data").is_symlink()


@pytest.mark.parametrize("root", ["/a/..", "/a/.", "", "/", "/x/.git", "/x/" + "n" * 20])
def test_the_name_of_a_folder_in_a_record_stays_a_name(lab: Lab, tmp_path: Path, root: str) -> None:
    """A root that ends in `..` put the code beside the temporary folder, not into it."""
    run = make_run(lab, code={"train.py": "x\n"})
    file = run.folder / "files" / "code.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "root": root}))
    with code_of(run) as place:
        assert place.parent.name.startswith("luxmeter-rerun-") and (place / "train.py").is_file()
        assert ".." not in place.parts
    assert not place.parent.exists()


@pytest.mark.parametrize("path", ["../x.ckpt", "/abs/x.ckpt", ".git/hooks/post-commit", "a/../../x"])
def test_checkpoints_are_entries_too(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    run = make_run(lab, code={"train.py": "x\n"}, files={"best.ckpt": b"w"})
    items = rollback._checkpoint_items

    def forged(of: Run, root: str) -> tuple[list[Item], list[str]]:
        made, missing = items(of, root)
        return [Item(path, item.read, item.mode, item.sha256) for item in made], missing

    monkeypatch.setattr(rollback, "_checkpoint_items", forged)
    with pytest.raises((StoreError, UsageError), match=r"entry-unsafe|name-outside"):
        roll_back(run, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_part_of_an_imported_run_comes_back_under_its_name(lab: Lab, tmp_path: Path) -> None:
    """Its record names a folder in the lab it was made in; with a new id that is still not written as a lab."""
    source = Lab.open(tmp_path / "home" / "project" / ".luxmeter")
    with source.create_run("a") as run:
        part = run.folder / "files" / "out"
        part.mkdir(parents=True)
        (part / "best.ckpt").write_bytes(b"w")
        run.put_file(
            "code.json", json.dumps({"root": str(tmp_path / "home" / "project"), "files": {}, "git": None})
        )
        from luxmeter.experiment.capture.watch_files import to_batch
        from luxmeter.store.records import FileChange

        name = run.put_blob(b"w")
        run.append_rows(
            "files", to_batch([FileChange("best.ckpt", str(part), "out", "created", name, 1, 1, True)])
        )
    stored = Run(run.folder, source.folder)
    exported = export_run(stored, tmp_path / "run.zip")
    other = Lab.open(tmp_path / "other")
    with other.create_run("b") as taken:
        pass
    os.replace(taken.folder, other.folder / "runs" / run.id)  # another run that has its id already
    identity = other.folder / "runs" / run.id / "run.json"
    identity.write_text(identity.read_text().replace(taken.id, run.id))
    came = import_run(other, exported)
    assert came.id != run.id
    done = roll_back(Run(came.folder, other.folder), tmp_path / "back")
    assert done.written == ["out/best.ckpt"]
    source.close()
    other.close()


def test_what_is_a_control_file() -> None:
    assert is_control(".git") and not is_control("git") and not is_control(".gitignore")
    assert is_control("venv-m~1") and not is_control("legit~1") and not is_control("...")
