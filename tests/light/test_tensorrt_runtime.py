"""The TensorRT engine over a fake GPU that runs the toy: tokens, copies, memory, CUDA graphs, compiled kernels."""

import gc
import logging
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.compiler.prove.tokens import next_logits
from speccompile.runtime.devices.tensorrt import MAX_CUDA_GRAPHS
from tests.light.fake_machine import PROMPT, generate, make_machine
from tests.light.fake_tensorrt import Strategy
from tests.light.toy_engine import UNWRITTEN
from tests.light.toy_models import autoregressive, path_lengths, target

FLAVOURS = {"tensorrt_rtx": True, "tensorrt": False}

flavours = pytest.mark.parametrize("rtx", FLAVOURS.values(), ids=FLAVOURS)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return make_machine(tmp_path, monkeypatch)


@pytest.fixture
def kernels(tmp_path):
    """Return the folder of compiled kernels."""
    return tmp_path / "cache" / "speccompile" / "kernels"


@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
@flavours
def test_every_row_gets_the_targets_own_tokens(machine, rtx, fused):
    opened = {}

    @given(
        st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=20), min_size=1, max_size=3),
        st.sampled_from([(1, 4), (4, 1), (4, 16), (7, 3)]),
        st.integers(1, 25),
    )
    @settings(max_examples=20)
    def check(rows, sizes, count):
        tokens, chunk = sizes
        if sizes not in opened:
            kinds = {"tokens": tokens, "prefill_chunk": chunk, "batch_size": 3, "max_length": 48}
            opened[sizes] = machine(rtx=rtx, fused=fused, **kinds)
        for speculative in (True, False, True):
            generations = opened[sizes].bundle.generate_batch(
                rows, max_new_tokens=count, autoregressive=not speculative, adaptive=False
            )
            for prompt, generation in zip(rows, generations, strict=True):
                room = min(count, 48 - len(prompt))
                assert generation.token_ids == autoregressive(prompt, room)
                assert generation.path_lengths == path_lengths(prompt, room, tokens if speculative else 0)

    check()


def copies_of(machine, count):
    """Return the copies that a warm bundle makes for a generation of `count` tokens, and the generation."""
    generate(machine)
    machine.cuda.copies.clear()
    generation = machine.bundle.generate(PROMPT, max_new_tokens=count, adaptive=False)
    return Counter(machine.cuda.copies), generation


@flavours
def test_nothing_but_counts_and_tokens_crosses_in_a_round(machine, rtx):
    opened = machine(rtx=rtx, tokens=4)
    short, first = copies_of(opened, 1)
    long, second = copies_of(opened, 30)
    assert first.rounds == 0
    rounds, count, window, path = second.rounds, 8, 5 * 8, 6 * 8
    drafts = rounds  # none after the last verify, one after the prefill's
    assert long - short == Counter(
        {
            ("up", count): 3 * rounds + 2 * drafts,  # n_given, n_total, length; n_path, length
            ("up", window): rounds,
            ("up", path): drafts,
            ("down", path): rounds,
            ("down", count): rounds + drafts,  # n_path; n_total
            ("down", window): drafts,
        }
    )


@flavours
def test_memory_is_taken_once_and_never_moves(machine, rtx):
    opened = machine(rtx=rtx)
    generate(opened)
    generate(opened, autoregressive=True)
    addresses = {name: opened.engine.address(name) for name in ("target.rows", "drafter.rows")}
    taken = {name: opened.cuda.calls[name] for name in ("cudaMalloc", "cudaMallocHost")}
    for way in (False, True, False):
        assert generate(opened, autoregressive=way) == autoregressive(PROMPT, 30)
    assert {name: opened.engine.address(name) for name in addresses} == addresses
    assert {name: opened.cuda.calls[name] for name in taken} == taken
    size = opened.manifest.engines[0].graphs[0].outputs[-1].shape[1] * 8
    assert [memory.nbytes for memory in opened.cuda.device.values()].count(size) == len(addresses)


def test_memory_is_given_back(machine):
    opened = machine(rtx=False)
    generate(opened)
    cuda, kept = opened.cuda, opened.engine.host_view("n_path", (1,))
    assert cuda.device
    assert cuda.streams
    opened.trt.contexts.clear()
    del opened
    gc.collect()
    assert (cuda.device, cuda.streams, len(cuda.pinned)) == ({}, {}, 1)
    assert kept[0] == kept.copy()[0]  # a view that somebody holds keeps its memory
    del kept
    gc.collect()
    assert cuda.pinned == {}
    assert cuda.calls["cudaGraphExecDestroy"] == cuda.calls["cudaGraphInstantiate"] > 0


def test_a_state_is_seen_as_a_copy_that_cannot_be_written(machine):
    opened = machine()
    tokens = generate(opened, 12)
    (state,) = (tensor for tensor in opened.manifest.engines[0].graphs[0].inputs if tensor.role == "state")
    seen = opened.engine.host_view(state.buffer, state.shape)
    text = [*PROMPT, *tokens]
    written = seen[0][seen[0] != UNWRITTEN].tolist()
    assert written == text[: len(written)]
    assert len(written) >= len(text) - 1
    with pytest.raises(ValueError, match="read-only"):
        seen[:] = 0
    generate(opened, 20)
    assert seen[0][seen[0] != UNWRITTEN].tolist() == written


@flavours
def test_logits_cross_only_when_they_are_asked_for(machine, rtx):
    opened = machine(rtx=rtx)
    generate(opened)
    size = opened.manifest.vocabulary_size * 4
    assert ("down", size) not in opened.cuda.copies
    for prompt in ([7], PROMPT, PROMPT * 8):
        logits = next_logits(opened.bundle, prompt)
        assert (int(logits.argmax()), logits.dtype) == (target(prompt), np.float32)
    assert ("down", size) in opened.cuda.copies


def test_tensorrt_rtx_captures_by_itself(machine):
    opened = machine(rtx=True)
    generate(opened)
    generate(opened, autoregressive=True)
    assert [context.config.cuda_graph_strategy for context in opened.trt.contexts] == [Strategy.WHOLE_GRAPH_CAPTURE] * 2
    assert opened.cuda.calls["cudaStreamBeginCapture"] == 0


def test_shapes_are_set_only_when_they_change(machine):
    opened = machine(rtx=True, tokens=4)
    inputs = sum(len(graph.inputs) for graph in opened.manifest.engines[0].graphs)
    for count in (10, 30):
        for context in opened.trt.contexts:
            context.shapes_set = 0
        generate(opened, count)
        assert sum(context.shapes_set for context in opened.trt.contexts) == 2 * inputs  # for the prefill, then once


def test_shapes_that_come_again_are_captured_whole(machine):
    opened = machine(rtx=False, tokens=4, max_length=100)
    generation = opened.bundle.generate(PROMPT, max_new_tokens=60, adaptive=False)
    assert opened.cuda.calls["cudaGraphInstantiate"] == 2  # verify and draft, while decoding
    drafts = generation.rounds - 1
    assert opened.cuda.calls["cudaGraphLaunch"] == (generation.rounds - 2) + (drafts - 2)
    before = opened.cuda.calls.copy()
    generation = opened.bundle.generate(PROMPT, max_new_tokens=60, adaptive=False)
    made = opened.cuda.calls - before
    assert made["cudaGraphLaunch"] == generation.rounds + drafts
    assert made["cudaMemcpyAsync"] == 11  # of the prefill; those of the rounds are in the graphs
    assert made["cudaStreamSynchronize"] == 2 + generation.rounds + drafts


def test_captured_graphs_do_not_pile_up(machine):
    opened = machine(rtx=False, max_length=100, prefill_chunk=64)
    for length in range(1, 30):
        for _ in range(2):
            assert opened.bundle.generate([7] * length, max_new_tokens=1).token_ids == autoregressive([7] * length, 1)
    made, gone = (opened.cuda.calls[f"cudaGraph{what}"] for what in ("Instantiate", "ExecDestroy"))
    assert made > MAX_CUDA_GRAPHS
    assert made - gone == MAX_CUDA_GRAPHS
    assert generate(opened) == autoregressive(PROMPT, 30)


@flavours
def test_a_refused_capture_is_told_once_and_rounds_go_on(machine, rtx, caplog):
    opened = machine(rtx=rtx, trt={"refuses_capture": True})
    with caplog.at_level(logging.WARNING, "speccompile"):
        for way in (False, True):
            assert generate(opened, autoregressive=way) == autoregressive(PROMPT, 30)
    told = [record.getMessage() for record in caplog.records]
    if rtx:
        assert [message.partition(" at ")[0] for message in told] == ["verify", "draft"]
        assert all("runs without a CUDA graph, which the library says it cannot capture" in each for each in told)
    else:
        (message,) = told
        assert "runs without CUDA graphs: verify at window [1, 5], " in message
        assert "the library refuses to run it" in message
    assert opened.cuda.calls["cudaGraphLaunch"] == 0


def test_rounds_go_on_where_there_is_no_memory_for_a_captured_graph(machine, caplog):
    opened = machine(rtx=False)
    opened.trt.refuses_context = True
    with caplog.at_level(logging.WARNING, "speccompile"):
        assert generate(opened) == autoregressive(PROMPT, 30)
    (record,) = caplog.records
    assert "runs without CUDA graphs: tensorrt cannot make an execution context for verify" in record.getMessage()


def test_a_graph_that_rounds_do_not_run_is_opened_when_it_is_used(machine):
    opened = machine(fused=True)
    generate(opened)
    assert opened.trt.engines == ["step"]
    generate(opened, autoregressive=True)
    assert opened.trt.engines == ["step", "verify"]


def test_compiled_kernels_are_kept(machine, kernels, caplog):
    opened = machine(fused=True)
    generate(opened)
    assert opened.trt.kernels == []
    del opened
    gc.collect()
    (file,) = kernels.iterdir()
    assert file.read_bytes() == b"kernels"
    again = machine(fused=True)
    assert again.trt.kernels == [b"kernels"]
    assert generate(again) == autoregressive(PROMPT, 30)
    before = file.stat().st_mtime_ns
    del again
    gc.collect()
    assert file.stat().st_mtime_ns == before
    file.write_bytes(b"of another driver")
    assert generate(machine(fused=True)) == autoregressive(PROMPT, 30)
    gc.collect()
    assert file.read_bytes() == b"kernels"
    assert caplog.records == []


def test_a_cache_folder_that_cannot_be_written(machine, kernels, caplog):
    kernels.parent.parent.write_text("a file is in the way")
    opened = machine(fused=True)
    assert generate(opened) == autoregressive(PROMPT, 30)
    with caplog.at_level(logging.WARNING, "speccompile"):
        del opened
        gc.collect()
    (record,) = caplog.records
    assert "cannot write the kernel cache, the next start recompiles: " in record.getMessage()
