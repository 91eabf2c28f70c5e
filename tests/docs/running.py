"""Runs the blocks of a page as its reader does: in order, in one folder that looks like a clone of the repository."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Any

import yaml

from tests.docs.blocks import Block, Command, Page, commands, matches

ROOT = Path(__file__).resolve().parents[2]
CLONE = ("README.md", "docs", "recipes", "scripts", "speccompile", "tests", "pyproject.toml")
HEADERS = ROOT / "speccompile/native/include"
SECONDS = 900
"""A command that takes longer is stopped."""
PARSERS = {"json": json.loads, "yaml": lambda text: list(yaml.safe_load_all(text)), "toml": tomllib.loads}


class PageFailure(AssertionError):
    """A block does not do what its page says. The message names the line."""


class PageRun:
    """The folder and the processes of one page. Python blocks share one namespace, `title` blocks become files."""

    def __init__(self, page: Page, folder: Path, demo: Path | None) -> None:
        self.page, self.folder = page, folder
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._servers: list[subprocess.Popen[bytes]] = []
        self._output = folder / "servers.log"
        # The scripts of this environment first: `speccompile` and `python` are those that the page means.
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        }
        for name in CLONE:
            (folder / name).symlink_to(ROOT / name)
        (folder / "build").mkdir()
        if demo is not None:
            shutil.copytree(demo, folder / "build" / "demo")

    def run(self, block: Block) -> None:
        """Run a block. Raise PageFailure."""
        if block.title is not None:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "console":
            for command in commands(block):
                self._console(command, block)
        elif block.language == "python":
            self._python(block)
        elif block.language == "cpp":
            self._cpp(block)
        elif parse := PARSERS.get(block.language):
            try:
                parse(block.text)
            except ValueError as error:
                raise self._failure(block.line, f"this is no {block.language}", str(error)) from error
            except yaml.YAMLError as error:
                raise self._failure(block.line, "this is no yaml", str(error)) from error

    def close(self) -> None:
        """End the servers that the page has started, with all that they have started."""
        for server in self._servers:
            os.killpg(server.pid, signal.SIGTERM)
        for server in self._servers:
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def _console(self, command: Command, block: Block) -> None:
        process = subprocess.Popen(
            ["bash", "-c", command.text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output.open("ab") if block.background else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if block.background:
            self._servers.append(process)
            return
        try:
            printed = process.communicate(timeout=SECONDS)[0].decode()
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise self._failure(command.line, f"$ {command.text}: not done after {SECONDS} s") from error
        if process.returncode != block.exit_code:
            said = f"$ {command.text}: exit code {process.returncode}, expected {block.exit_code}"
            raise self._failure(command.line, said, printed)
        if command.output and not matches(command.output, printed):
            expected = "\n".join(command.output)
            raise self._failure(command.line, f"$ {command.text}: other output than the page shows", printed, expected)

    def _cpp(self, block: Block) -> None:
        """Compile a whole program, as far as its types go; pages that run one write it to a file."""
        command = [
            "c++",
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            f"-I{HEADERS}",
            "-x",
            "c++",
            "-",
        ]
        done = subprocess.run(command, input=block.text, capture_output=True, text=True)
        if done.returncode:
            raise self._failure(block.line, "this is no program", done.stderr)

    def _python(self, block: Block) -> None:
        """Run it in a process of the block's own interpreter: what earlier blocks have defined is there."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            tree = ast.parse(block.text, str(self.page.path))
            ast.increment_lineno(tree, block.line)
            exec(compile(tree, str(self.page.path), "exec"), self._names)
        except Exception as error:
            raise self._failure(block.line, f"{type(error).__name__}: {error}", traceback.format_exc()) from error
        finally:
            os.chdir(before)

    def _failure(self, line: int, said: str, printed: str = "", expected: str = "") -> PageFailure:
        path = self.page.path.relative_to(ROOT) if self.page.path.is_relative_to(ROOT) else self.page.path
        parts = [f"{path}:{line}: {said}"]
        parts += [f"--- printed\n{printed[-4000:]}"] if printed else []
        parts += [f"--- expected\n{expected}"] if expected else []
        if self._output.exists():
            parts.append(
                f"--- the page's servers\n{self._output.read_text(encoding='utf-8', errors='replace')[-2000:]}"
            )
        return PageFailure("\n".join(parts))
