"""Check what scripts/archive.py packs, and what it refuses: files without meaning stand for programs."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import archive

ELF = b"\x7fELF.."


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder as scripts/wheels leaves it."""
    own = {
        "speccompile/native/installed/bin/speccompile-native": ELF + b"\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_PRIVATE\0",
        "speccompile/native/installed/include/speccompile.h": b"//",
        "speccompile/native/installed/lib/libtriton_speccompile.so": ELF,
        "speccompile/native/libspeccompile_kernels.so": ELF,
        "speccompile/__init__.py": b"",
        "speccompile-1.0.dist-info/licenses/LICENSE": b"Apache",
    }
    wheel(tmp_path / "speccompile-1.0-py3-none-manylinux_2_28_x86_64.whl", own)
    library = {"onnxruntime/capi/libonnxruntime.so.1.9.0": ELF + b"\0GLIBC_2.28\0libstdc++.so.6\0"}
    compiler = tmp_path / "tools/lib/python3.11/site-packages/ziglang/lib"
    for name in archive.COMPILED_IN:
        (compiler / name).mkdir(parents=True)
        (compiler / name / "LICENSE.TXT").write_text("LLVM")
    (tmp_path / "tools/onnxruntime").mkdir()
    wheel(
        tmp_path / "tools/onnxruntime/onnxruntime-1.9.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        library | dict.fromkeys(archive.LICENCES, b"MIT"),
    )
    return tmp_path


def test_an_archive_has_programs_headers_licences_and_three_commands(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.main("x86_64", folder, "onnxruntime==1.9.0") == 0
    told = capsys.readouterr()
    path = Path(told.out.strip())
    assert path.name == "speccompile-native-1.0-x86_64.tar.gz"
    assert "glibc 2.28 and, for ONNX Runtime, libstdc++.so.6" in told.err
    with tarfile.open(path) as packed:
        names = [member.name.removeprefix("speccompile-native-1.0-x86_64/") for member in packed]
        modes = {member.mode for member in packed if member.name.endswith("speccompile-native")}
        readme = packed.extractfile("speccompile-native-1.0-x86_64/README")
        assert readme
        assert readme.read().count(b"    bin/speccompile-native ") == 3
    assert names == sorted(names)
    assert modes == {0o755}
    assert {*names} == {
        "README", "bin/speccompile-native", "include/speccompile.h", "lib/libonnxruntime.so.1",
        "lib/libspeccompile_kernels.so", "share/licenses/onnxruntime/LICENSE",
        "share/licenses/onnxruntime/ThirdPartyNotices.txt", "share/licenses/speccompile/LICENSE",
        *(f"share/licenses/{name}/LICENSE.TXT" for name in archive.COMPILED_IN),
    }  # fmt: skip


def test_the_order_of_files_and_the_time_leave_no_trace() -> None:
    files = {"b": b"1", "a": b"2"}
    packed = archive.pack(files, "x")
    assert packed == archive.pack(dict(reversed(files.items())), "x")
    assert packed[4:8] == bytes(4)  # the time of gzip
    with tarfile.open(fileobj=io.BytesIO(packed)) as made:
        assert {(member.mtime, member.uid, member.uname) for member in made} == {(0, 0, "")}


@pytest.mark.parametrize(
    ("own", "glibc", "told"),
    [
        ({}, (2, 28), "without bin/speccompile-native"),
        (
            {archive.COMMAND: bytes(25_000_001)},
            (2, 28),
            "received 25.0 MB without ONNX Runtime, expected at most 25 MB",
        ),
        ({archive.COMMAND: b""}, (2, 34), "need glibc 2.34, expected 2.28"),
    ],
)
def test_what_is_no_archive(own: dict[str, bytes], glibc: tuple[int, int], told: str) -> None:
    assert told in (archive.refusal(own, glibc, (2, 28)) or "")
    assert archive.refusal({archive.COMMAND: bytes(25_000_000)}, (2, 28), (2, 28)) is None
