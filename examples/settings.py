"""Variables of the user and of a lab: set once, read everywhere. Local wins over global."""

import os
import tempfile

os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # leave the real settings alone
os.environ["LUXMETER_HOME"] = tempfile.mkdtemp()

from luxmeter import globs
from luxmeter.store import Lab

Lab.open()  # local variables live in a lab
globs.update("global", "datasets", "/data/sets")
globs.update("local", "batch_size", 64)

print(globs["datasets"], globs["batch_size"])
globs.list_config(globa=True, local=True)
print("global variables are kept in", globs.glob_fn)

assert globs["datasets"] == "/data/sets"
assert globs["batch_size"] == 64

globs.update("local", "datasets", "/fast/sets")
assert globs["datasets"] == "/fast/sets"  # local wins
os.environ["LUXMETER_DATASETS"] = "/ram/sets"
assert globs["datasets"] == "/ram/sets"  # the environment wins over both
