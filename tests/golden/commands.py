"""What is asked of every command: a case is a list of command lines, run in order over a fresh copy of the inputs.

`cat FILE` shows a file that was written; `@80 COMMAND` runs it as on a terminal of that width. Every command of `luxmeter --help` must come in some case.
"""

from __future__ import annotations

_STRUCTURE = "'SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)'"
_TRACE = ".luxmeter/runs/h57th-20261116-133950/calls/trace"  # of the run `trained`
_RUNS = ("base0", "broke", "trained", "net-eval", "plain", "killed", "changed")

CASES: dict[str, list[str]] = {
    # -- runs ---------------------------------------------------------------------------------------------------------
    "runs": [
        "runs", "runs --all", "runs --archived", "runs --group", "runs --limit 3 --sort name,created",
        "runs 'param.lr > 0.2 and metric.loss < 1' --sort=-metric.acc --columns id,state,param.lr,metric.acc.max",
        "runs --state failed --state lost --columns id,state,note", "runs 'state = damaged' --columns id,state,note",
        "runs --tag golden -p lr=0.1 -p optim.name=sgd", "runs --name 'net*'", "runs --name nothing",
    ],
    "runs-json": [
        "runs --json", "runs --archived --json", "runs --group --json", "runs 'host = golden and not tag = golden' --json",
        "runs --state damaged --json",
    ],
    "runs-made": ["rollback base0 --to there", "runs --made there/out/x.txt", "runs --made there/out/x.txt --json"],
    "show": [f"show {run}" for run in _RUNS] + ["show base0 --log", "show base0 --system", "show killed --system"],
    "show-json": [f"show {run} --json" for run in _RUNS],
    "show-damaged": ["show torn", "show torn --json", "diff torn base0", "show old"],
    "show-trace": ["show trace-a", "show trace-a --json", "show trace-totals"],
    "show-bench": ["show bench-a.json", "show bench-a.json --json"],
    "diff-runs": ["diff base0 fast0", "diff base0 changed --full", "diff base0 broke", "diff base0 fast0 -m acc",
                  "diff base0 base1", "diff base0 plain", "diff trained base0 --system"],
    "diff-runs-json": ["diff base0 fast0 --json", "diff base0 changed --json -m loss", "diff base1 base2 --json"],
    "diff-traces": ["diff trace-a trace-b", "diff trace-a trace-b --all --top 5 --by signature", "diff trace-a trained --by module",
                    "diff trace-a trace-a", "diff trained trained --what traces"],
    "diff-traces-json": ["diff trace-a trace-b --json"],
    "diff-bench": ["diff bench-a.json bench-b.json", "diff bench-a.json bench-b.json --all", "diff bench-a.json bench-b.json --json",
                   "diff bench-a.json bench-b.json bench-a.json --all", "diff bench-a.json bench-b.json --fail-on-regression=10%",
                   "diff bench-b.json bench-a.json --fail-on-regression", "diff bench-a.json trace-a", "diff trace-a trace-a --fail-on-regression",
                   "diff trace-a trace-b --fail-on-regression=50% --top 1"],
    "show-check": ["show check-b.json", "show check-a.json", "show check-b.json --json"],
    "diff-check": ["diff check-a.json check-b.json", "diff check-b.json check-a.json", "diff check-a.json check-b.json --json",
                   "diff check-a.json bench-a.json", "diff check-a.json check-b.json --fail-on-regression"],
    "code": ["code base0", "code base0 train.py", "code changed --changes", "code base0 --json", "code trained", "code net-eval --json",
             "code base0 --all", "code base0 nothing.py"],
    "repeats": ["repeats", "repeats 'name = parabola' -m loss", "repeats 'name = parabola' -m acc --baseline 4cc8c --of max",
                "repeats -m loss -m acc", "repeats 'name = parabola' -m acc --paired --correction fdr --any-code --matters 0.1"],
    "repeats-json": ["repeats --json", "repeats 'name = parabola' -m loss --json", "repeats -m loss -m acc --of min --json"],
    "plot": ["plot base0 fast0", "plot base0 -m loss --smooth 0.6", "plot --where 'name = parabola' -m acc --repeats", "plot"],
    "plot-page": ["plot base0 fast0 -m loss --title Losses -o loss.html", "cat loss.html",
                  "plot --where 'name = parabola' --parallel -m loss -o parallel.html", "cat parallel.html"],
    "report": ["report base0 --against fast0 -o base0.md", "cat base0.md", "report broke trained -o two.md", "cat two.md", "report base0 -o base0.pdf"],
    "plot-picture": ["plot base0 fast0 -m loss -o loss.svg", "cat loss.svg", "plot base0 -m loss -o loss.png --dark", "cat loss.png"],
    "top": ["top --once", "top --once --json"],
    "ui": ["ui --port 70000", "ui --host lab.example --port 0 --no-browser extra"],
    "note": ["note base0", "note base0 'a good one'", "note base0", "note broke", "show base0 --json", "runs --columns id,note"],
    "tag": ["tag base0", "tag base0 first best", "tag best", "untag base0 best", "tag best", "tag base0 --remove first", "runs --tag first"],
    "archive": ["archive plain", "runs --json --name plain", "archive --undo plain old", "runs --name plain"],
    "rm": ["rm --list", "rm --list --json", "rm plain", "runs --name plain", "rm --undo plain", "rm --undo parabola", "rm torn",
           "runs --columns id,name,state,tags", "rm", "rm nothing"],
    "reindex": ["reindex", "gc --json", "rm --list", "runs --all --columns id,state", "gc", "show killed"],
    "export": ["export base0 -o base0.zip", "export trained -o folder", "import base0.zip", "rm base0", "import base0.zip --json",
               "import folder", "show base0 --json", "export base0 -o base0.zip"],
    "import": ["import base0.tar.gz", "rm base0", "import base0.tar.gz", "runs --tag base0 --json", "import nothing.tar", "import tensorboard"],
    "rollback": ["rollback base0 --to there --dry-run", "rollback base0 --to there", "cat there/train.py", "cat there/out/x.txt",
                 "rollback changed --to there --json", "rollback base0 --no-code --to out-only", "rollback net-eval --to it"],
    "init": ["init elsewhere", "init elsewhere", "init", "init elsewhere --help"],
    "config": ["config -l", "config --global datasets /data", "config --local lr 0.1", "config -l --json", "config lr", "config lr --json",
               "config store.lost_after_s", "config --global -u datasets", "config -l", "config nothing", "config a 1"],
    # -- training -----------------------------------------------------------------------------------------------------
    "control": ["control base0", "control base0 pause", "control base0 set lr=0.1 --json", "control nothing", "control base0 dance"],
    "eval": ["eval base0", "eval broke --on nothing", "eval nothing"],
    "train": ["train nothing.py", "new config small.py", "cat small.py", "new config small.py", "train small.py no_such_key=1"],
    "queue": ["queue list", "queue list --json", "queue cancel 3", "queue wait", "queue log 1", "queue add nothing.py", "queue list --state x"],
    "sweep": ["sweep nothing.py --grid lr=1", "sweep --grid lr=0.1,0.2 nothing.py", "sweep --search 3 --grid lr=1 train.py"],
    "new": ["new project 'no name'", "new project points", "cat points/pyproject.toml", "new project points"],
    # -- traces and operators -----------------------------------------------------------------------------------------
    "trace-from": ["trace --from trace-a", *(f"trace --from trace-a --by {by}" for by in ("signature", "module", "section", "thread", "rank")),
                   f"trace --from {_TRACE} --by section", "trace --from trained", "trace --from trace-b --depth 1 --top 5", "trace --from trace-totals",
                   "trace --from trace-a --window 0:0.1 --top 3"],
    "trace-from-json": ["trace --from trace-a --json", f"trace --from {_TRACE} --by section --json", "trace --from trace-totals --json",
                        "trace --from trace-a --by signature --json"],
    "trace-files": ["trace --from trace-a -o calls.csv", "cat calls.csv", "trace --from trace-a -o calls.folded", "cat calls.folded",
                    "trace --from trace-a -o calls.json", "cat calls.json", "trace --from trace-a -o calls.perfetto.json",
                    "cat calls.perfetto.json", "trace --from trace-a -o calls.parquet", "cat calls.parquet"],
    "trace-page": ["trace --from trace-a -o calls.html", "cat calls.html"],
    "trace-env": ["trace --env", "trace --env --sync --sample 2 --only 'torch.*'"],
    "ops": ["ops trace-a", "ops trained --top 5", "ops ops.jsonl --name '*Linear*'", "ops trace-a --module 'Net.body.*'",
            "ops trace-a trace-b --top 4", "ops trace-a --top 2 -o two.jsonl", "cat two.jsonl"],
    "ops-json": ["ops trace-a --json", "ops ops.jsonl --top 3 --json"],
    "results": ["show trained/trace", "ops trained/trace --top 2", "diff trained/trace trained", "model net.py:small -i 1,3,8,8 -d 0 --into base0",
                "ops trained --top 2 --into base0", "show base0", "show base0/model", "show base0/ops", "ops base0/ops --json", "show base0/ops~1",
                "show base0/modle", "show trained/bench", "diff base0/model trained/trace", "show base0/model --log",
                "model net.py:Net -i 1,3,8,8 -d 0 --into fast0", "diff base0 fast0", "diff base0/model fast0/model --json"],
    # -- as a terminal shows it, at a width --------------------------------------------------------------------------
    "terminal": [f"@{width} {line}" for width in (70, 110) for line in (
        "runs", "runs --group", "show trained", "diff base0 fast0", "repeats 'name = parabola' -m loss", "trace --from trace-a --top 8",
        f"trace --from {_TRACE} --by module", "diff trace-a trace-b --top 6", "diff bench-a.json bench-b.json --all", "show bench-a.json",
        "ops trace-a --top 5", "model net.py:small -i 1,3,8,8", "plot base0 fast0 -m loss", "code base0")],
    # -- models -------------------------------------------------------------------------------------------------------
    "model": ["model net.py:small -i 1,3,8,8", "model net.py:small -i 2,3,8,8 --memory --optimizer sgd", "model net.py:small -i 2,3,8,8 -d 0",
              "model net.py:small -i 1,3,8,8 -a net.py:Net", "model net.py:small -i 1,3,8,8 --forward-only --dtype bfloat16",
              "model net.py:small -i 1,3,8,8 --csv net.csv", "cat net.csv"],
    "model-json": ["model net.py:small -i 2,3,8,8 --json", "model net.py:small -i 1,3,8,8 -a net.py:Net --json"],
    "model-page": ["model net.py:small -i 1,3,8,8 --html net.html", "cat net.html"],
    # -- what goes wrong ----------------------------------------------------------------------------------------------
    "errors": ["--version", "show nothing", "show nowhere/at-all", "runs 'parm.lr > 1'", "runs --state x", "runs -p lr", "runs --sort speed",
               "diff base0 nothing", "diff base0 base1 --what x", "repeats 'name = nothing'", "plot base0 -m nothing", "ops nothing",
               "bench nothing.jsonl", "check opinof", "check nothing.py", "check ops.jsonl --rounds 0", "check ops.jsonl -o rows.txt", "model net.py:nothing -i 1,3,8,8", "zen Nothing(1)", "search", "run", "run nothing.py", "trace",
               "trace nothing.py", "trace --from nothing", "reproduce nothing", "rerun nothing", "rollback nothing", "export nothing",
               "plot --images x", "trace --from trace-a --by x", "code killed nothing.py", "no-such-verb"],
}  # fmt: skip

# These measure, or make runs anew: what they print is reduced by the functions of measured.py.
STRUCTURE = _STRUCTURE.strip("'")
