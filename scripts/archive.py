"""Write the archive of one machine from wheels: what runs bundles without Python. Called by scripts/tar.

    archive.py MACHINE FOLDER onnxruntime==VERSION     # FOLDER: of scripts/wheels, with its tools

stdout: the archive's path. It refuses more than 25 MB without ONNX Runtime, and files that need a glibc later than the
wheel's name says.
"""

import gzip
import io
import re
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

MOST_BYTES = 25_000_000
"""Limit of all files together, ONNX Runtime's library excepted."""

ONNXRUNTIME = "lib/libonnxruntime.so.1"
COMMAND = "bin/speccompile-native"
INSTALLED = "speccompile/native/installed/"
LEFT_OUT = "lib/libtriton_speccompile.so"
"""Left out: who serves by Triton has Python."""
KERNELS = "libspeccompile_kernels.so"
LICENCES = ("onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt")
COMPILED_IN = ("libcxx", "libcxxabi", "libunwind")
"""Libraries of LLVM that are linked into the programs."""

README = """speccompile {version} for Linux on {machine}, without Python. It needs glibc {glibc} or later{beside}.

    bin/speccompile-native inspect BUNDLE
    bin/speccompile-native generate BUNDLE --prompt 'def main(' --max-new-tokens 32
    bin/speccompile-native serve BUNDLE --port 8000

The folder may lie anywhere: programs find lib/libonnxruntime.so.1 from their own place. $SPECCOMPILE_ONNXRUNTIME names
another. Programs of yours find include/ and lib/ by CMake (-Dspeccompile_DIR=lib/cmake/speccompile) or pkg-config
(lib/pkgconfig). lib/{kernels} has the kernels as operators for another program's ONNX Runtime. Pictures are
read as PPM files. Licences: share/licenses.
"""

Files = dict[str, bytes]


def of_wheel(wheel: Path) -> Files:
    """Return what the wheel has for programs, by its path in the archive."""
    found: Files = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(INSTALLED) and not name.endswith(("/", LEFT_OUT)):
                found[name.removeprefix(INSTALLED)] = archive.read(name)
            elif name == f"speccompile/native/{KERNELS}":
                found[f"lib/{KERNELS}"] = archive.read(name)
            elif name.endswith(".dist-info/licenses/LICENSE"):
                found["share/licenses/speccompile/LICENSE"] = archive.read(name)
    return found


def of_onnxruntime(wheel: Path) -> Files:
    """Return the library and its licences."""
    with zipfile.ZipFile(wheel) as archive:
        (library,) = (name for name in archive.namelist() if re.search(r"/libonnxruntime\.so\.[\d.]+$", name))
        licences = {f"share/licenses/{name}": archive.read(name) for name in LICENCES}
        return {ONNXRUNTIME: archive.read(library), **licences}


def of_compiler(tools: Path) -> Files:
    """Return the licences of what the compiler has linked in."""
    (compiler,) = tools.glob("lib/python3*/site-packages/ziglang/lib")
    return {
        f"share/licenses/{name}/LICENSE.TXT": (compiler / name / "LICENSE.TXT").read_bytes() for name in COMPILED_IN
    }


def needed_glibc(files: Mapping[str, bytes]) -> tuple[int, int]:
    """Return the latest glibc whose symbols programs and libraries ask for by version."""
    programs = (data for data in files.values() if data.startswith(b"\x7fELF"))
    asked = (match for data in programs for match in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", data))
    return max(((int(major), int(minor)) for major, minor in asked), default=(2, 17))


def pack(files: Mapping[str, bytes], root: str) -> bytes:
    """Return an archive whose bytes depend on names and contents alone."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(data), 0o755 if name == COMMAND else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def refusal(own: Mapping[str, bytes], glibc: tuple[int, int], promised: tuple[int, int]) -> str | None:
    """Return why there is no archive of these files, if there is a reason. own: without ONNX Runtime's library."""
    size = sum(map(len, own.values()))
    if COMMAND not in own:
        return f"received a wheel without {COMMAND}, expected one with the runtime in C++"
    if size > MOST_BYTES:
        return f"received {size / 1e6:.1f} MB without ONNX Runtime, expected at most {MOST_BYTES / 1e6:.0f} MB"
    if glibc > promised:
        return f"received files that need glibc {_dotted(glibc)}, expected {_dotted(promised)} as the wheel's name says"
    return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def main(machine: str, folder: Path, onnxruntime: str) -> int:
    (wheel,) = folder.glob(f"speccompile-*_{machine}.whl")
    version = wheel.name.split("-")[1]
    name = onnxruntime.replace("==", "-")
    (library,) = folder.glob(f"tools/onnxruntime/{name}-cp311-*_{machine}.whl")
    own, others = of_wheel(wheel), of_onnxruntime(library)
    glibc = needed_glibc(own | others)
    needs_cpp = b"\0libstdc++.so.6\0" in others[ONNXRUNTIME]
    beside = " and, for ONNX Runtime, libstdc++.so.6" if needs_cpp else ""
    readme = README.format(version=version, machine=machine, glibc=_dotted(glibc), beside=beside, kernels=KERNELS)
    own |= of_compiler(folder / "tools") | {"README": readme.encode()}
    found = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert found
    if reason := refusal(own, glibc, (int(found[1]), int(found[2]))):
        print(f"tar: {reason}\ntar: hint: scripts/wheels makes the wheels anew", file=sys.stderr)
        return 1
    root = f"speccompile-native-{version}-{machine}"
    archive = folder / f"{root}.tar.gz"
    archive.write_bytes(packed := pack(own | others, root))
    sizes = {COMMAND: len(own[COMMAND]), "all but ONNX Runtime": sum(map(len, own.values())),
             ONNXRUNTIME: len(others[ONNXRUNTIME]), "archive": len(packed)}  # fmt: skip
    told = "; ".join(f"{what} {size / 1e6:.1f} MB" for what, size in sizes.items())
    print(f"tar: {told}; glibc {_dotted(glibc)}{beside}", file=sys.stderr)
    print(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
