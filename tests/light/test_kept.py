"""States that are kept: their file, read by the safetensors library too, and everything that is wrong with one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from speccompile.cli.generate import command
from speccompile.contract import Graph, Tensor, with_tensorrt_states
from speccompile.errors import EngineError, UsageError
from speccompile.runtime.devices.device import DeviceEngine
from speccompile.runtime.rounds.drafter_state import PersistentState
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.fake_cuda import FakeCuda

SHAPES = {"kept.ring": ("float32", (2, 5)), "kept.table": ("int64", (7, 3))}


def graph(shapes=SHAPES, name: str = "draft") -> Graph:
    states = tuple(Tensor(name, dtype, shape, name, "state") for name, (dtype, shape) in shapes.items())
    window = Tensor("tokens", "int64", (2, 5), "tokens", "state")  # of a text: not kept
    return Graph(name, (*states, window), tuple(replace(each, name=f"{each.name}.out") for each in (*states, window)))


class Memory:
    """Buffers alone, of an engine that runs nothing."""

    def __init__(self, graph: Graph) -> None:
        self.arrays = {t.buffer: np.zeros(t.concrete_shape({}), t.dtype) for t in graph.inputs}

    def host_view(self, buffer, shape):
        assert self.arrays[buffer].shape == shape
        return self.arrays[buffer]

    def write_state(self, buffer, values):
        assert (self.arrays[buffer].dtype, self.arrays[buffer].shape) == (values.dtype, values.shape)
        self.arrays[buffer] = values.copy()


def kept(given: Graph | None = None, held: Graph | None = None, *, tokenizer="abc", kind="student", **changes):
    """Return kept states and their memory; held: the graph as the engine has it."""
    given = given or graph()
    memory = Memory(held or given)
    plan = {"drafter": {"kind": kind}}
    return PersistentState(
        memory, toy_manifest(graphs=(given,), plan=plan, **changes), [held or given], tokenizer
    ), memory


def filled(**changes):
    states, memory = kept(**changes)
    for seed, array in enumerate(memory.arrays.values()):
        array[:] = np.random.default_rng(seed).integers(1, 100, array.shape)
    return states, memory


def test_what_is_written_is_read_again_and_by_safetensors(tmp_path):
    states, memory = filled()
    states.save(tmp_path / "file")
    found = load_file(tmp_path / "file")
    assert sorted(found) == sorted(SHAPES)
    for name, array in found.items():
        np.testing.assert_array_equal(array, memory.arrays[name])

    other, empty = kept()
    other.load(tmp_path / "file")
    for name in SHAPES:
        np.testing.assert_array_equal(empty.arrays[name], memory.arrays[name])
    assert not empty.arrays["tokens"].any()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_reset_empties_what_is_kept_alone():
    states, memory = filled()
    states.reset()
    assert {name: array.any() for name, array in memory.arrays.items()} == {
        "kept.ring": False, "kept.table": False, "tokens": True,
    }  # fmt: skip


def test_a_file_serves_engines_with_other_numbers(tmp_path):
    """TensorRT's states are float32 [B, 1, S, 1] where they are caches; kept ones stay as they are and are copied."""
    held = with_tensorrt_states(graph())
    assert held.copy_after_run == {"next.kept.ring": "kept.ring", "next.kept.table": "kept.table"}
    assert held.aliases == {"tokens.out": "tokens"}
    states, memory = filled()
    states.save(tmp_path / "file")
    half = replace(graph().inputs[1], dtype="float32", shape=(7, 1, 3, 1))
    there, wide = kept(held=replace(graph(), inputs=(graph().inputs[0], half)))
    there.load(tmp_path / "file")
    np.testing.assert_array_equal(wide.arrays["kept.table"].reshape(7, 3), memory.arrays["kept.table"])
    there.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "file").read_bytes()


def short(shapes):
    return {name: (dtype, shape) for name, (dtype, shape) in shapes.items() if name == "kept.table"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": "other"}, "these states are of another tokenizer: 'other', this bundle's is 'abc'"),
        ({"vocabulary_size": 9}, r"these states are of another vocabulary: '9', this bundle's is '\d+'"),
        ({"kind": "parrot"}, "these states are of another drafter: 'parrot', this bundle's is 'student'"),
        (
            {"given": graph(SHAPES | {"kept.table": ("int64", (7, 4))})},
            r"expected kept.table as I64 \[7, 3\], as this bundle has it",
        ),
        ({"given": graph(SHAPES | {"kept.ring": ("int64", (2, 5))})}, r"expected kept.ring as F32 \[2, 5\], as this"),
        ({"given": graph(short(SHAPES))}, "expected kept.ring as F32"),
        (
            {"given": graph(SHAPES | {"kept.x": ("bool", (1,))})},
            "expected kept.table as|received kept.x, which this bundle does not have",
        ),
    ],
)
def test_states_of_another_bundle_are_refused(tmp_path, changes, message):
    filled(**changes)[0].save(tmp_path / "file")
    states, memory = filled()
    before = {name: array.copy() for name, array in memory.arrays.items()}
    with pytest.raises(UsageError, match=f"file: {message}"):
        states.load(tmp_path / "file")
    assert all((memory.arrays[name] == array).all() for name, array in before.items())


def test_every_truncation_is_refused(tmp_path):
    states, _ = filled()
    states.save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    for size in {0, 4, 8, 9, len(content) // 2, len(content) - 1}:
        (tmp_path / "file").write_bytes(content[:size])
        with pytest.raises(
            UsageError, match=r"file: (not a file of states, or a truncated one|received .* bytes of numb)"
        ):
            states.load(tmp_path / "file")
    (tmp_path / "file").write_bytes(content + b"x")
    with pytest.raises(
        UsageError, match=r"received \d+ bytes of numbers, expected \d+: the file is truncated or damag"
    ):
        states.load(tmp_path / "file")


def test_other_files_are_refused(tmp_path):
    states, _ = kept()
    (tmp_path / "text").write_bytes((5).to_bytes(8, "little") + b"[1,2]")
    (tmp_path / "noise").write_bytes((5).to_bytes(8, "little") + b"{\xff,2]")
    for name in ("text", "noise"):
        with pytest.raises(UsageError, match=f"{name}: not a file of states: its header is no JSON object"):
            states.load(tmp_path / name)
    save_file({"kept.table": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(UsageError, match=r"other: received format None, expected 'speccompile.kept.1'"):
        states.load(tmp_path / "other")
    with pytest.raises(UsageError, match="nowhere: the states cannot be read: No such file or directory"):
        states.load(tmp_path / "nowhere")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    states, _ = kept()
    with pytest.raises(UsageError, match="the states cannot be written: No such file or directory") as raised:
        states.save(tmp_path / "nowhere" / "file")
    assert raised.value.hint == "give a file in a folder that is there"
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="the states cannot be written: Is a directory"):
        states.save(tmp_path / "folder")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_bundles_that_keep_nothing_say_so(tmp_path):
    bundle = toy_bundle()
    bundle.reset()
    for call in (bundle.save_kept, bundle.load_kept):
        with pytest.raises(UsageError, match="this bundle keeps nothing from one generation to the next: its drafter"):
            call(tmp_path / "file")


def test_nothing_is_kept_in_the_middle_of_a_stream(text):
    bundle = toy_bundle(text)
    stream = bundle.stream("ab", max_new_tokens=9)
    next(stream)
    for call in (bundle.reset, lambda: bundle.save_kept("x"), lambda: bundle.load_kept("x")):
        with pytest.raises(EngineError, match="this bundle is in the middle of another stream"):
            call()
    stream.close()
    bundle.reset()


def refused(*arguments: object) -> UsageError:
    result = CliRunner().invoke(command, [str(each) for each in arguments])
    assert isinstance(result.exception, UsageError)
    return result.exception


def test_the_command_line_asks_for_what_goes_together(tmp_path):
    error = refused(tmp_path, "--prompt", "a", "--reset")
    assert (str(error), error.hint) == ("received --reset without --state, expected both", "add --state FILE")


class Adding(DeviceEngine):
    """Its graph adds one to what is kept."""

    def __init__(self, cuda: FakeCuda, graph: Graph) -> None:
        super().__init__(cuda.open(), [graph], {})
        self._cuda = cuda

    def _prepare(self, binding):
        def add():
            for read, written in zip(binding.inputs, binding.outputs, strict=True):
                one, other = (self._cuda.view(each.address, each.shape[0] * 8) for each in (read, written))
                other.view(np.int64)[:] = one.view(np.int64) + 1

        def run():
            self._with_copies(binding, lambda: self._cuda.put(self._device.stream, add))
            self._device.synchronize()

        return run


def test_on_a_device_kept_states_are_written_read_and_copied_behind_a_run():
    state = Tensor("kept.table", "int64", (4,), "kept.table", "state")
    held = with_tensorrt_states(Graph("draft", (state,), (replace(state, name="kept.table.out"),)))
    cuda = FakeCuda()
    engine = Adding(cuda, held)
    engine.write_state("kept.table", np.arange(4))
    run = engine.bind("draft", {})
    for more in (1, 2):
        run()
        np.testing.assert_array_equal(engine.host_view("kept.table", (4,)), np.arange(4) + more)
    assert [each for each, _ in cuda.copies].count("across") == 2
    assert ("up", 32) in cuda.copies


def test_the_header_is_what_other_readers_expect(tmp_path):
    """Eight bytes of length, a header that ends at a multiple of eight, offsets from zero on."""
    states, _ = filled()
    states.save(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert header["kept.ring"] == {"dtype": "F32", "shape": [2, 5], "data_offsets": [0, 40]}
    assert header["kept.table"]["data_offsets"] == [40, 40 + 7 * 3 * 8]
    assert len(content) == 8 + length + header["kept.table"]["data_offsets"][1]
