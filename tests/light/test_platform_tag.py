"""The platform in a wheel's name, for libraries that others have published, whose wheels say what they run on."""

import importlib.metadata
import importlib.util
import re
import shutil
import sysconfig
from pathlib import Path

import blake3
import pytest

from speccompile.native import platform_tag
from speccompile.native.platform_tag import WrongMachineError, portable_platform

PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
pytestmark = pytest.mark.skipif(not PLATFORM.startswith("linux_"), reason="only Linux has such names")
PROCESSOR = 18
"""Where an ELF file has it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a published library, and a source beside it."""
    (library,) = Path(blake3.__file__).parent.glob("*.so")
    shutil.copy(library, tmp_path)
    (tmp_path / "a.cpp").write_text("int a;\n")
    return tmp_path


def glibc(platform: str) -> tuple[int, int]:
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", platform)
    assert found is not None, platform
    assert found[3] == PLATFORM.removeprefix("linux_")
    return int(found[1]), int(found[2])


def test_published_library_runs_on_what_its_own_wheel_says(folder: Path) -> None:
    wheel = importlib.metadata.distribution("blake3").read_text("WHEEL") or ""
    published = re.findall(r"^Tag: \S+-(manylinux_\S+)$", wheel, re.MULTILINE)
    if not published:
        pytest.skip("blake3 was compiled here")
    assert glibc(portable_platform(folder, PLATFORM)) <= max(map(glibc, published))


def test_library_that_needs_one_of_this_machine_runs_on_no_other(tmp_path: Path) -> None:
    module = importlib.util.find_spec("_ctypes")
    if module is None or not str(module.origin).endswith(".so"):
        pytest.skip("this Python has no library that needs libffi")
    shutil.copy(str(module.origin), tmp_path)
    assert portable_platform(tmp_path, PLATFORM) == PLATFORM


def test_library_of_another_machine_is_refused(folder: Path) -> None:
    (library,) = folder.glob("*.so")
    changed = bytearray(library.read_bytes())
    changed[PROCESSOR] ^= 0xFF
    library.write_bytes(changed)
    with pytest.raises(WrongMachineError, match=r"received blake3.*so for another machine than this one") as caught:
        portable_platform(folder, PLATFORM)
    assert "--plat-name=linux_" in str(caught.value)


def test_auditwheel_that_fails_leaves_the_name_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert portable_platform(tmp_path, PLATFORM) == PLATFORM
    told = capsys.readouterr().err
    assert told.startswith(f"speccompile: the wheel is for {PLATFORM} alone; auditwheel: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("platform", ["macosx_11_0_arm64", PLATFORM])
def test_without_auditwheel_and_elsewhere_the_name_stays(
    platform: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform_tag.importlib.util, "find_spec", lambda name: None)
    assert portable_platform(folder, platform) == platform
