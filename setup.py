"""The one thing pyproject.toml cannot say: the C core may fail to build, and the install may not."""

from pathlib import Path

from setuptools import Extension, setup

CORE = Path("src/luxmeter/calls/core/_core.c")

setup(
    ext_modules=[
        Extension(
            "luxmeter.calls.core._core",
            sources=[CORE.as_posix()],
            extra_compile_args=["-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
            optional=True,
        )
    ]
)
