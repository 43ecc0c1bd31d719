"""What pyproject.toml cannot say: the C core may fail to build, and the install may not; and one file beside the package.

That file, luxmeter_startup.pth, is read by Python when it starts: where the variable LUXMETER_TRACE is set, the program
is traced. Without the variable it costs one look at the environment.

Who publishes wheels sets LUXMETER_REQUIRE_CORE (tools/dist.py does): then a core that fails to build, or that is
compiled with a warning, ends the build.
"""

import os
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup  # first: it brings its own distutils

from distutils.command.install_data import install_data  # isort: skip

CORE = Path("src/luxmeter/calls/core/_core.c")
# -g0 and --strip-all: Python's own flags ask for debug symbols, three quarters of the file.
FLAGS = ["-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
REQUIRED = bool(os.environ.get("LUXMETER_REQUIRE_CORE"))


class BesideThePackage(install_data):
    """Lays data files into site-packages, in a wheel as in an editable install; others would go to the prefix."""

    def finalize_options(self) -> None:
        self.set_undefined_options(
            "install", ("install_lib", "install_dir"), ("root", "root"), ("force", "force")
        )


class WithData(Distribution):
    """An editable install asks for data files by this name and would find none."""

    def has_data(self) -> bool:
        return bool(self.has_data_files())


setup(
    distclass=WithData,
    ext_modules=[
        Extension(
            "luxmeter.calls.core._core",
            sources=[CORE.as_posix()],
            extra_compile_args=[*FLAGS, "-Werror"] if REQUIRED else FLAGS,
            extra_link_args=["-Wl,--strip-all"] if sys.platform == "linux" else [],
            optional=not REQUIRED,
        )
    ],
    data_files=[("", ["luxmeter_startup.pth"])],
    cmdclass={"install_data": BesideThePackage},
)
