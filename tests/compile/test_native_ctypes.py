"""The C ABI, called by ctypes with the header's own signatures: it is plain C, and tells every mistake by its kind."""

import ctypes
import json
from pathlib import Path

import pytest

from speccompile import __version__
from speccompile.errors import BundleError, EngineError, PromptError, UsageError
from speccompile.runtime import Bundle
from tests.native.native_api import ALL, NativeBundle, NativeSession, load
from tests.native.native_errors import HEADER, KINDS, NativeError
from tests.native.native_log import Log

TEXT = "def main(é)"


@pytest.fixture(scope="module")
def python(built):
    return built("lookup_5").bundle


@pytest.fixture(scope="module")
def bundle(built, native_library: Path, onnxruntime_library: Path) -> NativeBundle:
    return NativeBundle(built("lookup_5").path, library=native_library, onnxruntime=onnxruntime_library, threads=1)


@pytest.fixture
def session(bundle: NativeBundle) -> NativeSession:
    return bundle.session()


def test_library_is_the_header_s(native_library: Path) -> None:
    library = load(native_library)
    assert library.spc_abi() == KINDS["ABI"]
    assert library.spc_version().decode() == __version__
    assert int(ctypes.c_size_t(-1).value) == ALL


def test_nothing_can_be_freed_and_asked(native_library: Path) -> None:
    """NULL is what a handle is where a function has failed."""
    library = load(native_library)
    frees = [each for each in HEADER.functions if each.name.endswith("_free")]
    assert len(frees) == len(HEADER.structs)
    for each in frees:
        getattr(library, each.name)(None)


def test_bundle_describes_itself(bundle: NativeBundle, built, python) -> None:
    assert bundle.manifest == json.loads((built("lookup_5").path / "manifest.json").read_text())
    described = bundle.description
    assert described["engine"] == python.engine_name
    assert (described["exact"], described["speculative"]) == (python.exact, python.speculative)
    assert described["load_seconds"] > 0


def test_text_becomes_tokens_and_text_again(bundle: NativeBundle, python) -> None:
    ids = bundle.encode(TEXT)
    assert ids == python.text.encode(TEXT)
    assert bundle.decode(ids) == TEXT
    assert bundle.encode("a\0b") == python.text.encode("a\0b")
    assert bundle.encode("", special_tokens=False) == []
    assert bundle.decode([]) == ""


def test_generation_is_python_s(session: NativeSession, python) -> None:
    (found,) = session.generate(TEXT, max_new_tokens=24)
    wanted = python.generate(TEXT, max_new_tokens=24)
    assert (found["text"], found["token_ids"]) == (wanted.text, wanted.token_ids)
    assert session.result_tokens() == wanted.token_ids
    assert session.rows == 1


def test_rows_are_streamed(session: NativeSession) -> None:
    texts, tokens = ["", ""], [list[int](), list[int]()]
    for row, text, added in session.stream([TEXT, [17, 230, 45]], max_new_tokens=24):
        texts[row] += text
        tokens[row] += added
    results = session.results()
    assert [result["text"] for result in results] == texts
    assert [result["token_ids"] for result in results] == tokens
    assert [len(ids) for ids in tokens] == [24, 24]


def test_results_outlive_what_they_came_from(built, native_library: Path, onnxruntime_library: Path) -> None:
    bundle = NativeBundle(built("lookup_5").path, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    session = bundle.session()
    bundle.close()
    assert len(session.generate(TEXT, max_new_tokens=4)[0]["token_ids"]) == 4
    assert session.close.alive
    session.close()


def test_cancelled_step_can_be_followed_by_another_generation(session: NativeSession) -> None:
    session.start(TEXT, max_new_tokens=24)
    session.step()
    session.cancel()
    with pytest.raises(NativeError) as raised:
        session.step()
    assert (raised.value.kind, raised.value.exit_code) == (KINDS["CANCELLED"], 1)
    assert len(session.generate(TEXT, max_new_tokens=4)[0]["token_ids"]) == 4


@pytest.mark.parametrize(
    ("prompts", "options", "kind", "error"),
    [
        ([], {}, "PROMPT", PromptError),
        ([[]], {}, "PROMPT", PromptError),
        ([[10**9]], {}, "PROMPT", PromptError),
        ([[1] * 1000], {}, "PROMPT", PromptError),
        ([TEXT], {"max_new_tokens": -1}, "USAGE", UsageError),
        ([TEXT], {"max_new_token": 3}, "USAGE", UsageError),
        ([TEXT], {"temperature": 0.5}, "USAGE", UsageError),
        ([TEXT], {"top_k": 0.5}, "USAGE", UsageError),
    ],
)
def test_mistakes_are_errors_of_their_kind(session: NativeSession, prompts, options, kind: str, error) -> None:
    with pytest.raises(error) as raised:
        session.generate(prompts, **options)
    assert isinstance(raised.value, NativeError)
    assert (raised.value.kind, raised.value.exit_code) == (KINDS[kind], 2)
    assert raised.value.message


@pytest.mark.parametrize("row", [1, ALL])
def test_row_that_is_not_there_is_refused(session: NativeSession, row: int) -> None:
    session.generate(TEXT, max_new_tokens=2)
    for ask in (session.new_text, session.new_tokens, session.result):
        with pytest.raises(UsageError):
            ask(row)


def test_bundles_that_cannot_be_opened(built, native_library: Path, onnxruntime_library: Path, tmp_path: Path) -> None:
    where = {"library": native_library, "onnxruntime": onnxruntime_library}
    with pytest.raises(BundleError, match=str(tmp_path)) as raised:
        NativeBundle(tmp_path, **where)
    assert isinstance(raised.value, NativeError)
    assert (raised.value.kind, raised.value.exit_code) == (KINDS["BUNDLE"], 1)
    folder = built("lookup_5").path
    with pytest.raises(UsageError, match="thread"):
        NativeBundle(folder, **where, thread=1)
    with pytest.raises(EngineError, match="no_such_library") as raised:
        NativeBundle(folder, library=native_library, onnxruntime=tmp_path / "no_such_library.so")
    assert raised.value.hint


def test_progress_is_told_to_who_asks(built, native_library: Path, onnxruntime_library: Path) -> None:
    log = Log(native_library)
    try:
        NativeBundle(tmp := built("lookup_5").path, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    finally:
        log.close()
    assert {level for level, _ in log.lines} <= {20, 30}, tmp
    assert all(line and "\n" not in line for _, line in log.lines)


@pytest.mark.parametrize("count", [2**61, 2**61 + 2, ALL])
def test_counts_that_wrap_are_refused(native_library: Path, count: int) -> None:
    """2^61 tokens take 2^64 bytes, which is 0: they must not pass for an empty prompt."""
    library = load(native_library)
    request, ids = ctypes.c_void_p(), (ctypes.c_int64 * 2)(1, 2)
    library.spc_request_create(ctypes.byref(request))
    for call in (
        lambda: library.spc_request_add_tokens(request, ids, count),
        lambda: library.spc_request_add_text(request, b"ab", count),
        lambda: library.spc_request_add_stop(request, b"ab", count),
    ):
        with pytest.raises(UsageError, match=f"received {count}, expected at most {2**32}"):
            call()
    library.spc_request_free(request)


def test_threads_beyond_reason_are_refused(built, native_library: Path, onnxruntime_library: Path) -> None:
    with pytest.raises(UsageError, match="threads: received 1000000, expected at most 1024"):
        NativeBundle(built("lookup_5").path, library=native_library, onnxruntime=onnxruntime_library, threads=1_000_000)
    with pytest.raises(UsageError, match="threads: received 1000000, expected at most 1024"):
        Bundle.open(built("lookup_5").path, threads=1_000_000)
