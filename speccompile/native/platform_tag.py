"""Platform in a wheel's name: the oldest C library that its compiled files run with, by auditwheel's judgement.

Only setuptools imports it, when a wheel is built.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

ELF = b"\x7fELF"


class WrongMachineError(Exception):
    """Compiled files for another machine than the wheel's name would say."""


def portable_platform(folder: Path, platform: str) -> str:
    """Return the platform for a wheel with the libraries and programs in a folder: "manylinux_2_36_x86_64" if they need
    glibc 2.36 and libraries that every Linux has, else `platform`.

    platform: of this machine, "linux_x86_64". It stays on other systems, without auditwheel, and where auditwheel knows
    no such name, which a line on stderr says. Raise WrongMachineError for files that were compiled for another machine.
    """
    if not platform.startswith("linux_"):
        return platform
    files = [file for file in sorted(folder.rglob("*")) if _head(file).startswith(ELF)]
    own = _machine(Path(sys.executable))
    if wrong := [file.name for file in files if _machine(file) != own]:
        raise WrongMachineError(
            f"received {', '.join(wrong)} for another machine than this one, expected the name of its platform\n"
            "hint: --config-settings=--build-option=--plat-name=linux_aarch64"
        )
    if importlib.util.find_spec("auditwheel") is None:
        return platform
    found = _audit(files, folder, platform)
    if name := str(found.get("overall_tag", "")):
        return name
    sys.stderr.write(f"speccompile: the wheel is for {platform} alone; auditwheel: {found['error']}\n")
    return platform


def _audit(files: list[Path], folder: Path, platform: str) -> dict[str, object]:
    """Return auditwheel's answer about a wheel with these files: `overall_tag`, or else `error`."""
    with TemporaryDirectory() as scratch:
        wheel = Path(scratch) / f"compiled-0-py3-none-{platform}.whl"
        with ZipFile(wheel, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(folder))
            record = "".join(f"{file.relative_to(folder)},,\n" for file in files)
            archive.writestr("compiled-0.dist-info/RECORD", record)
        command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {"error": done.stderr.strip().rpartition("\n")[2]}


def _head(file: Path) -> bytes:
    if not file.is_file():
        return b""
    with file.open("rb") as opened:
        return opened.read(20)


def _machine(file: Path) -> bytes:
    """Return what an ELF file says of its machine: the width of addresses, the order of bytes, the processor."""
    head = _head(file)
    return head[4:6] + head[18:20]
