"""setuptools' commands, with the kernels and the runtime compiled on the way. Read by pyproject.toml; imported where
setuptools is."""

import os
import shutil
import sys
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# setuptools reads this file by its path, in an environment that has no speccompile, or another one.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from speccompile.native.locate import FOLDER, PREFIX
from speccompile.native.packaging import TARGET, VARIABLE, CannotCompileError, compile_into


class BuildPy(build_py):
    """The package's files, and what is compiled among them: for an editable install, in the source folder."""

    def run(self) -> None:
        super().run()
        wanted = os.environ.get(VARIABLE, "")
        if self.editable_mode:
            folder = FOLDER  # what lies there stays until it can be replaced: somebody may be running it
        else:
            folder = Path(self.build_lib) / "speccompile" / "native"
            _remove_compiled(folder)
        if wanted == "skip":
            return
        try:
            compiled = compile_into(folder, runtime=wanted != "kernels")
        except CannotCompileError as error:
            _remove_compiled(folder)
            if wanted == "require":
                raise
            sys.stderr.write(
                f"speccompile: the kernels could not be compiled: {error}\n"
                "speccompile: it is installed without them, and runs as exactly, but slower: `speccompile doctor`\n"
            )
            return
        if compiled.problem is not None:
            if wanted == "require":
                raise CannotCompileError(compiled.problem)
            sys.stderr.write(
                f"speccompile: the runtime in C++ could not be compiled: {compiled.problem}\n"
                "speccompile: it is installed without it, and runs bundles in Python alone\n"
            )


def _remove_compiled(folder: Path) -> None:
    """Remove what an earlier build has left, perhaps of other sources."""
    for left in folder.glob(f"lib{TARGET}.*"):
        left.unlink()
    shutil.rmtree(folder / PREFIX, ignore_errors=True)


class BdistWheel(bdist_wheel):
    """A wheel for this platform where it holds something compiled, for any where it does not."""

    def run(self) -> None:
        self.run_command("build")
        built = Path(self.get_finalized_command("build_py").build_lib) / "speccompile" / "native"
        self.root_is_pure = not any(built.glob(f"lib{TARGET}.*"))
        # What setuptools asks before it decides that a package belongs to one platform.
        self.distribution.has_ext_modules = lambda: not self.root_is_pure  # type: ignore[method-assign]
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python 3: what is compiled knows none."""
        _, _, platform = super().get_tag()
        return "py3", "none", platform
