"""The committed description of the C ABI beside the header, the compiled library and a compiler's own view of both."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speccompile.native import locate
from tests.native.conftest import run
from tests.native.test_native_packaging import C_COMPILER, WARNINGS

ABI: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "abi.py"))
HEADER: Path = ABI["HEADER"]
EXPORTS: Path = ABI["DESCRIPTION"].with_name("exports.map")
COMMITTED: list[str] = ABI["read_description"]()
FUNCTION = re.compile(r"function (?P<name>\w+)\((?P<parameters>.*)\) -> (?P<result>.+)")
FUNCTIONS = [found for line in COMMITTED if (found := FUNCTION.fullmatch(line))]
VERSION = f"SPECCOMPILE_{locate.ABI}"
# What every Linux has. libgcc_s and libstdc++ are inside.
SYSTEM = re.compile(r"lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+")
needs_c = pytest.mark.skipif(C_COMPILER is None, reason="no C compiler is here: cc, gcc or clang, or $CC")


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """Return a header that differs in one place."""
    text, path = HEADER.read_text(), tmp_path / HEADER.name
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_description_is_the_header_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert ABI["main"]([]) == 0, capsys.readouterr().err


def test_versions_are_one() -> None:
    assert f"constant SPC_ABI = {locate.ABI}" in COMMITTED
    assert EXPORTS.read_text().split()[0] == VERSION


OLD = "spc_bundle_free(spc_bundle *bundle)"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("spc_bundle_free(spc_bundle *bundle, int now)", "+ function spc_bundle_free(spc_bundle *, int) -> void"),
        ("spc_bundle_close(spc_bundle *bundle)", "+ function spc_bundle_close(spc_bundle *) -> void"),
    ],
)
@pytest.mark.parametrize("arguments", [[], ["--write"]])
def test_what_is_changed_or_removed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str, said: str, arguments: list[str]
) -> None:
    description = shutil.copy(ABI["DESCRIPTION"], tmp_path)
    assert ABI["main"](arguments, changed(tmp_path, OLD, new), Path(description)) == 1
    title, lost, gained, hint = capsys.readouterr().err.splitlines()
    assert title == "abi: speccompile.h is not what speccompile.abi says:"
    assert (lost, gained) == ("- function spc_bundle_free(spc_bundle *) -> void", said)
    assert hint.startswith("hint: programs that were linked with this SPC_ABI need what is gone: ")
    assert Path(description).read_text() == ABI["DESCRIPTION"].read_text()


def test_constant_that_is_changed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ABI["main"]([], changed(tmp_path, "SPC_USAGE = 2", "SPC_USAGE = 3")) == 1
    assert "- constant SPC_USAGE = 2\n+ constant SPC_USAGE = 3\n" in capsys.readouterr().err


def test_addition_is_asked_for_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    description = Path(shutil.copy(ABI["DESCRIPTION"], tmp_path))
    header = changed(
        tmp_path, "SPC_API uint32_t spc_abi(void);", "SPC_API uint32_t spc_abi(void);\nvoid spc_new(int a);"
    )
    assert ABI["main"]([], header, description) == 1
    _, gained, hint = capsys.readouterr().err.splitlines()
    assert gained == "+ function spc_new(int) -> void"
    assert hint == "hint: additions are fine: scripts/abi.py --write, then commit abi/speccompile.abi"
    assert ABI["main"](["--write"], header, description) == 0
    assert ABI["main"]([], header, description) == 0


def test_declaration_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an enum, an opaque struct or a function, received: union x"):
        ABI["read_header"](changed(tmp_path, "typedef struct spc_error spc_error;", "union x;"))


def declarations(body: str) -> str:
    """Return the described functions in C, each with this body, `;` for none. A result is zero."""
    lines = [f"{each['result']} {each['name']}({each['parameters'] or 'void'}) {body}" for each in FUNCTIONS]
    return "\n".join(line.replace("return 0;", "") if line.startswith("void ") else line for line in lines)


@needs_c
def test_a_compiler_reads_the_header_as_described(tmp_path: Path) -> None:
    """Types that differ from the header's are an error; so no reader of ours is trusted."""
    constants = [line.split(maxsplit=3)[1::2] for line in COMMITTED if line.startswith("constant ")]
    asserted = [f'_Static_assert({name} == {value}, "{name}");' for name, value in constants]
    source = tmp_path / "described.c"
    source.write_text("\n".join(['#include "speccompile.h"', declarations(";"), *asserted]))
    run(C_COMPILER, "-std=c11", *WARNINGS, "-I", HEADER.parent, "-fsyntax-only", source)


@pytest.fixture(scope="module")
def symbols(native_library: Path) -> dict[str, list[str]]:
    """Return of the library what it defines, and what it needs, for each letter of nm."""
    found: dict[str, list[str]] = {}
    for line in run("nm", "-D", "--with-symbol-versions", native_library).splitlines():
        *_, letter, name = line.split()
        found.setdefault(letter, []).append(name)
    return found


needs_nm = pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed (binutils)")


@needs_nm
def test_library_exports_the_description_with_its_version_and_nothing_else(symbols: dict[str, list[str]]) -> None:
    defined = sorted(name for letter in symbols.keys() - {"U", "w", "v"} for name in symbols[letter])
    assert defined == sorted([VERSION, *(f"{each['name']}@@{VERSION}" for each in FUNCTIONS)])


@needs_nm
def test_library_needs_the_system_alone(symbols: dict[str, list[str]], native_library: Path) -> None:
    assert [name for name in symbols["U"] if "@" not in name or name.startswith(("Ort", "_Z"))] == []
    if shutil.which("readelf"):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", native_library))
        assert [name for name in needed if not SYSTEM.fullmatch(name)] == []


@pytest.mark.skipif(shutil.which("abidiff") is None, reason="abidiff is not installed (abigail-tools)")
@needs_c
def test_abidiff_finds_no_difference(native_library: Path, tmp_path: Path) -> None:
    """Compare the library with one that was made of the description alone."""
    source, library = tmp_path / "described.c", tmp_path / native_library.name
    source.write_text('#include "speccompile.h"\n' + declarations("{ return 0; }"))
    link = ("-shared", "-fPIC", f"-Wl,--version-script={EXPORTS}", f"-Wl,-soname,libspeccompile.so.{locate.ABI}")
    run(C_COMPILER, "-g", "-I", HEADER.parent, *link, source, "-o", library)
    done = subprocess.run(["abidiff", library, native_library], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
