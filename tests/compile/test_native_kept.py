"""What drafters learn, kept by both runtimes: equal tables, files that either reads, equal words for what is wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccompile.runtime import Bundle
from speccompile.runtime.rounds.drafter_state import FORMAT
from speccompile.runtime.rounds.speedup_model import WARM_UP_ROUNDS
from tests.native.native_api import NativeBundle, NativeSession
from tests.native.refusals import in_python
from tests.native.side_by_side import SideBySide
from tests.native.two_commands import STEADY

NEW_TOKENS = 24
PROMPTS = [[17, 230, 45, 99] * 5, [3, 1, 4, 1, 5, 9, 2, 6], [7]]


@pytest.fixture(scope="module")
def recycling(built) -> Path:
    return built("recycling").path


@pytest.fixture
def learning(recycling, native_library, onnxruntime_library) -> SideBySide:
    return SideBySide(recycling, native_library, onnxruntime_library)


def steady(runtime: Bundle | NativeSession, prompts: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Return tokens and accepted lengths of a batch, every round of which drafts all it can."""
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "adaptive": False}
    if isinstance(runtime, Bundle):
        return [(each.token_ids, each.path_lengths) for each in runtime.generate_batch(prompts, **options)]
    return [(each["token_ids"], each["path_lengths"]) for each in runtime.generate(prompts, **options)]


def saved(runtime: Bundle | NativeSession, folder: Path) -> bytes:
    runtime.save_kept(folder / "kept")
    (file,) = folder.iterdir()  # and nothing beside it
    content = file.read_bytes()
    file.unlink()
    return content


def test_both_learn_the_same_from_one_generation_to_the_next(learning, tmp_path):
    new = saved(learning.python, tmp_path)
    for batch in (PROMPTS, PROMPTS[::-1], PROMPTS[:1]):
        assert steady(learning.session, batch) == steady(learning.python, batch)
        assert saved(learning.session, tmp_path) == saved(learning.python, tmp_path) != new
    learning.session.reset_kept()
    assert saved(learning.session, tmp_path) == new


@pytest.mark.parametrize("autoregressive", [False, True])
def test_both_learn_while_they_draft_nothing(learning, tmp_path, autoregressive):
    """Update tables in the first rounds, which are timed without drafts but for the very first, and not where no drafts
    are asked for."""
    new = saved(learning.python, tmp_path)
    rounds = 1 + WARM_UP_ROUNDS
    options: dict[str, Any] = {"max_new_tokens": 1 + rounds, "autoregressive": autoregressive}
    (theirs,) = learning.python.generate_batch(PROMPTS[:1], **options)
    (ours,) = learning.session.generate(PROMPTS[:1], **options)
    assert ours["token_ids"] == theirs.token_ids
    assert ours["draft_lengths"] == theirs.draft_lengths == [0] * rounds
    assert (ours["draft_seconds"] > 0, theirs.draft_seconds > 0) == (not autoregressive,) * 2
    assert saved(learning.session, tmp_path) == saved(learning.python, tmp_path)
    assert (saved(learning.python, tmp_path) == new) == autoregressive


def test_what_was_learned_is_of_use(learning):
    (first,), (second,) = (steady(learning.session, PROMPTS[:1]) for _ in range(2))
    assert second[0] == first[0]
    assert len(second[1]) < len(first[1])


@pytest.mark.parametrize("writes_python", [False, True], ids=["native", "python"])
def test_either_reads_what_the_other_wrote(learning, tmp_path, writes_python):
    writer, reader = (learning.session, learning.python)[:: -1 if writes_python else 1]
    steady(writer, PROMPTS)
    writer.save_kept(tmp_path / "kept")
    reader.load_kept(tmp_path / "kept")
    assert steady(reader, PROMPTS[:1]) == steady(writer, PROMPTS[:1])
    (tmp_path / "kept").unlink()
    assert saved(reader, tmp_path) == saved(writer, tmp_path)


def test_sessions_learn_alone(learning, tmp_path):
    other = learning.native.session()
    steady(learning.session, PROMPTS)
    new = saved(other, tmp_path)
    assert saved(learning.session, tmp_path) != new
    learning.session.reset_kept()
    assert saved(learning.session, tmp_path) == new


def test_between_two_steps_as_well(learning, tmp_path):
    """Save and load between two steps: no token depends on it."""
    expected = steady(learning.session, PROMPTS)
    learning.session.start(PROMPTS, max_new_tokens=NEW_TOKENS, adaptive=False)
    for _ in range(4):
        learning.session.step()
        learning.session.save_kept(tmp_path / "kept")
        learning.session.reset_kept()
        learning.session.load_kept(tmp_path / "kept")
    learning.session.reset_kept()
    while not learning.session.step():
        pass
    assert [learning.session.result_tokens(row) for row in range(3)] == [tokens for tokens, _ in expected]


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header; the numbers stay."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


def metadata(**values: Any) -> Callable[[Path], None]:
    return lambda path: edit(path, lambda header: header["__metadata__"].update(values))


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


REFUSED: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "a folder": make_folder,
    "empty": cut(0),
    "short": cut(7),
    "cut in its header": cut(100),
    "cut in its numbers": cut(-8),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x") and None,
    "no header": write(bytes(8)),
    "a long header": write((2**21).to_bytes(8, "little") + b" " * 2**21),
    "a wild length": write(b"\xff" * 64),
    "no JSON": write((2).to_bytes(8, "little") + b"{x"),
    "no object": write((2).to_bytes(8, "little") + b"[]"),
    "no metadata": lambda path: edit(path, lambda header: header.pop("__metadata__")),
    "other metadata": lambda path: edit(path, lambda header: header.update(__metadata__=[FORMAT])),
    "another format": metadata(format="speccompile.kept.2"),
    "another drafter": metadata(drafter="suffix"),
    "another vocabulary": metadata(vocabulary_size="7"),
    "another tokenizer": metadata(tokenizer=""),
    "no tokenizer": metadata(tokenizer=None),
    "another dtype": lambda path: edit(path, lambda header: header["kept.table"].update(dtype="I32")),
    "another shape": lambda path: edit(path, lambda header: header["kept.table"].update(shape=[3, 4])),
    "another place": lambda path: edit(path, lambda header: header["kept.table"].update(data_offsets=[8, 16])),
    "no table": lambda path: edit(path, lambda header: header.pop("kept.table")),
    "another state": lambda path: edit(path, lambda header: header.update({"kept.other": {}})),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_are_refused(learning, in_native, tmp_path, what):
    steady(learning.session, PROMPTS)
    path = tmp_path / "states" / "kept"
    path.parent.mkdir()
    learning.session.save_kept(path)
    before = path.read_bytes()
    REFUSED[what](path)
    ours = in_native(lambda: learning.session.load_kept(path))
    assert ours == in_python(lambda: learning.python.load_kept(path))
    assert ours[0] == "USAGE"
    assert str(path) in ours[1]
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert saved(learning.session, path.parent) == before


@pytest.mark.parametrize("place", ["absent/kept", "folder", "file/kept"])
def test_places_that_cannot_be_written(learning, in_native, tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    ours = in_native(lambda: learning.session.save_kept(tmp_path / place))
    assert ours == in_python(lambda: learning.python.save_kept(tmp_path / place))
    assert "cannot be written" in ours[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_bundle_that_keeps_nothing(lookup, native_library, onnxruntime_library, in_native, tmp_path):
    python = Bundle.open(lookup, threads=1)
    session = NativeBundle(lookup, library=native_library, onnxruntime=onnxruntime_library, threads=1).session()
    for name in ("save_kept", "load_kept"):
        ours = in_native(lambda name=name: getattr(session, name)(tmp_path / "kept"))
        assert ours == in_python(lambda name=name: getattr(python, name)(tmp_path / "kept"))
        assert ours[0] == "USAGE"
    session.reset_kept()  # as Python's
    assert list(tmp_path.iterdir()) == []


# The command

GENERATE = ["--max-new-tokens", NEW_TOKENS, "--token-ids", ",".join(map(str, PROMPTS[0])), "--json", *STEADY]


def test_the_command_goes_on_from_a_file(both, recycling, tmp_path):
    """Let each runtime go on from its own file, then from the other's."""
    files = {run: tmp_path / name for run, name in ((both.native, "native"), (both.python, "python"))}

    def said(run: Callable[..., Any], *more: object, file: Path | None = None) -> dict[str, Any]:
        done = run("-q", "generate", recycling, *GENERATE, "--state", file or files[run], *more)
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout)

    for _ in range(2):
        ours, theirs = said(both.native), said(both.python)
        assert (ours["token_ids"], ours["rounds"]) == (theirs["token_ids"], theirs["rounds"])
        assert files[both.native].read_bytes() == files[both.python].read_bytes()
    learned = ours["rounds"]
    first, second = said(both.native, "--reset")["rounds"], said(both.native)["rounds"]
    assert first > second == learned
    assert said(both.native, file=files[both.python]) | {"seconds": 0, "tokens_per_second": 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["native", "python"]


def test_what_the_command_refuses(both, recycling, lookup, tmp_path):
    (tmp_path / "kept").write_bytes(b"nothing")
    for bundle, *more in (
        (recycling, "--reset"),
        (recycling, "--state", tmp_path / "absent" / "kept"),
        (recycling, "--state", tmp_path / "kept"),
        (recycling, "--state", tmp_path),
        (lookup, "--state", tmp_path / "kept"),
    ):
        said = both.same("-q", "generate", bundle, *GENERATE, *more)
        assert (said.code, said.out) == (2, b"")
    assert (tmp_path / "kept").read_bytes() == b"nothing"
    assert both.same("-q", "generate", recycling, *GENERATE, "--state", tmp_path / "kept", "--reset").code == 0
    assert (tmp_path / "kept").read_bytes()[8:10] == b'{"'
