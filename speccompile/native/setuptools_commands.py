"""setuptools commands that also compile the kernels and the runtime. pyproject.toml names them; only setuptools imports
them."""

import os
import shutil
import sys
from functools import cached_property
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# setuptools loads this file by its path, in an environment without speccompile or with another version.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from speccompile.native.locate import FOLDER, PREFIX
from speccompile.native.packaging import TARGET, VARIABLE, CannotCompileError, compile_into
from speccompile.native.platform_tag import portable_platform


class BuildPy(build_py):
    """Command that copies the package and compiles the C++ code; an editable install compiles into the sources."""

    def run(self) -> None:
        super().run()
        wanted = os.environ.get(VARIABLE, "")
        if self.editable_mode:
            folder = FOLDER  # existing files stay until they are replaced: a process may use them
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
        sys.stderr.write(f"speccompile: compiled in {compiled.seconds:.0f} s\n")
        if compiled.problem is not None:
            if wanted == "require":
                raise CannotCompileError(compiled.problem)
            sys.stderr.write(
                f"speccompile: the runtime in C++ could not be compiled: {compiled.problem}\n"
                "speccompile: it is installed without it, and runs bundles in Python alone\n"
            )


def _remove_compiled(folder: Path) -> None:
    """Remove compiled files of an earlier build, perhaps from other sources."""
    for left in folder.glob(f"lib{TARGET}.*"):
        left.unlink()
    shutil.rmtree(folder / PREFIX, ignore_errors=True)


class BdistWheel(bdist_wheel):
    """Command that makes a wheel: for this platform if it contains compiled code, else for any platform."""

    def run(self) -> None:
        self.run_command("build")
        built = Path(self.get_finalized_command("build_py").build_lib) / "speccompile" / "native"
        self.root_is_pure = not any(built.glob(f"lib{TARGET}.*"))
        # setuptools calls this to decide whether a package is platform-specific.
        self.distribution.has_ext_modules = lambda: not self.root_is_pure  # type: ignore[method-assign]
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return a tag for any Python 3: the compiled code does not use Python's API. The platform is the one that was
        asked for (--plat-name), or what the compiled code runs on."""
        return "py3", "none", self._platform

    @cached_property
    def _platform(self) -> str:
        _, _, platform = super().get_tag()
        if self.root_is_pure or self.plat_name_supplied:
            return platform
        return portable_platform(Path(str(self.bdist_dir)) / "speccompile" / "native", platform)
