"""A build that fails says why, keeps nothing of its own, and leaves the bundle that was there as it was."""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest
import torch

from speccompile.bundle.cache import FolderCache, cache_folder
from speccompile.compiler.lower import files, neutral
from speccompile.compiler.lower.passes import attend_kernel
from speccompile.compiler.step import verify
from speccompile.compiler.step.verify.rules import Exact
from speccompile.compiler.step.verify.target import Target
from speccompile.drafters.prompt_lookup.drafter import PromptLookup
from speccompile.errors import BuildError
from tests import zoo
from tests.compile.tiny_bundles import contents
from tests.full_disk import largest_file

pytestmark = pytest.mark.builds(8)

NEW_TOKEN = r"prompt 1 \(token ids [\d, ]+(\.\.)?\): at new token \d+"
SIZE = r"[\d.]+ [GM]B"
FIGURES = (
    f"received {SIZE} free in /.*, expected about {SIZE}: {SIZE} for the bundle and {SIZE} for files until it is done"
)
"""What a full disk is told with."""
COMMAND_LINE = "from speccompile.cli import main; main()"


@pytest.fixture
def output(built, tmp_path):
    """Yield a good bundle in the place of the next one. Afterwards it must still be that bundle, and alone."""
    folder = tmp_path / "build" / "demo"
    shutil.copytree(built("lookup_3").path, folder)
    before = contents(tmp_path)
    yield folder
    assert contents(tmp_path) == before
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]


def forget(original, number):
    """Return what a destructor does to an interrupt that comes while it runs."""

    def interrupted(*arguments, **options):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        return original(*arguments, **options)

    return interrupted


def turn_into_an_error(original, number):
    """Return what torch's tracer does to it."""

    def interrupted(*_, **__):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise TypeError("'size' failed to unpack") from None

    return interrupted


@pytest.fixture
def kept_traces(built, tmp_path_factory, monkeypatch):
    """Let a build find graphs of `lookup_3` in its cache, as its own build has traced them, and nothing else."""

    def keep(*graphs: str) -> None:
        built("lookup_3")
        folder = tmp_path_factory.mktemp("cache")
        for entry in FolderCache.named("builds").entries():
            if entry.key and entry.key["step"] in {f"tracing {graph}" for graph in graphs}:
                shutil.copytree(cache_folder("builds") / entry.digest, folder / "builds" / entry.digest)
        monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(folder))

    return keep


def failure(cli, built, output, *arguments: object, cached: bool = False) -> tuple[int, str]:
    """Exit code and stderr of a build that must fail. cached: with what `kept_traces` has kept."""
    options = arguments if cached else ("--no-cache", *arguments)
    code, out, err = cli("build", built("lookup_3").folder, "--output", output, *options)
    assert out == ""
    assert "Traceback" not in err
    return code, err


def test_drafts_that_are_accepted_wrongly_fail_the_proof(
    cli, built, output, kept_traces, monkeypatch, tmp_path_factory
):
    kept_traces("draft")
    graphs = tmp_path_factory.mktemp("graphs")
    monkeypatch.setattr(Exact, "__call__", lambda rule, target, choices, drafts: drafts.tokens >= 0)
    code, err = failure(cli, built, output, "--dump-graphs", graphs, cached=True)
    assert code == 3
    assert list(graphs.glob("verify*.onnx")), "the graphs to look at are kept"
    numbers = (
        r"speculative decoding gives \d+, autoregressive \d+; the margin between the two is [\d.e+-]+ \(top-two margin"
    )
    assert re.search(f"^error: {NEW_TOKEN} {numbers} [\\d.e+-]+\\)$", err, re.M)
    assert "hint: speculation changed the output: please report it with the recipe" in err


def test_tokens_that_are_wrong_in_both_ways_fail_the_proof(cli, built, output, kept_traces, monkeypatch):
    kept_traces("draft")
    monkeypatch.setattr(
        verify, "greedy_target", lambda logits, *_: Target(logits, (logits.argmax(-1) + 1) % zoo.VOCABULARY)
    )
    code, err = failure(cli, built, output, cached=True)
    assert code == 3
    numbers = (
        r"speculative decoding gives \d+, transformers' greedy gives \d+; the reference's margin between the two is"
    )
    assert re.search(f"^error: {NEW_TOKEN} {numbers} [\\d.]+ \\(its top-two margin [\\d.]+\\)$", err, re.M)


def test_a_neutral_graph_that_computes_something_else_fails_the_proof(cli, built, output, kept_traces, monkeypatch):
    kept_traces("draft")
    right = neutral._attend

    def sees_one_more(*form, **named):
        return right(*form, **named).replace("is_committed = Less (column", "is_committed = LessOrEqual (column")

    monkeypatch.setattr(neutral, "_attend", sees_one_more)
    code, err = failure(cli, built, output, cached=True)
    assert code == 3
    assert re.search(
        r"^error: verify, window \d, row \d: differs by [\d.]+, more than 0.0002 of the largest value", err
    )


def test_a_lowered_graph_that_computes_something_else_fails_the_proof(cli, built, output, kept_traces, monkeypatch):
    kept_traces("verify", "draft")
    right = attend_kernel._attend

    def twice_as_sharp(nodes, node):
        context = right(nodes, node)
        found = next(made for made in nodes.nodes if made.op_type == "Attend")
        found.attributes["scale"] = ir.AttrFloat32("scale", 2 * found.attributes["scale"].as_float())
        return context

    monkeypatch.setattr(attend_kernel, "_attend", twice_as_sharp)
    code, err = failure(cli, built, output, cached=True)
    assert code == 3
    assert re.search(r"^error: verify, onnxruntime-cpu against neutral, (logits|path) after window \d: differs by", err)


@pytest.mark.parametrize(
    ("module", "name", "graph"), [(PromptLookup, "PromptLookup", "draft"), (verify.Verify, "GPT2LMHeadModel", "verify")]
)
def test_a_module_that_cannot_be_traced_is_told(cli, built, output, kept_traces, monkeypatch, module, name, graph):
    kept_traces("draft" if graph == "verify" else "verify")
    export = torch.export.export

    def refuse(flat, *arguments, **options):
        if isinstance(flat.module, module):
            raise torch._dynamo.exc.UserError(torch._dynamo.exc.UserErrorType.DYNAMIC_CONTROL_FLOW, "it branches")
        return export(flat, *arguments, **options)

    monkeypatch.setattr(torch.export, "export", refuse)
    code, err = failure(cli, built, output, cached=True)
    assert code == 1
    assert f"error: {name} cannot be compiled: its {graph} graph cannot be traced: it branches" in err


@pytest.mark.parametrize("limit", [4096, 200_000])
def test_a_full_disk_is_told(cli, built, output, kept_traces, limit):
    """Let the disk refuse the tokenizer's file, then the weights' file."""
    kept_traces("verify", "draft")
    with largest_file(limit):
        code, err = failure(cli, built, output, "--skip-prove", cached=True)
    assert code == 1
    what = rf"(the bundle could not be written to {output}: File too large|target\..*weights could not be written: .*)"
    assert re.search(rf"^error: {what}: {FIGURES}\nhint: free some disk space", err, re.M)


@pytest.mark.parametrize(
    "step", ["onnx_ir.save", "speccompile.bundle.writer.write_hashes", "speccompile.bundle.writer.sync"]
)
def test_a_disk_that_fills_up_later_is_told(cli, built, output, kept_traces, monkeypatch, step):
    kept_traces("verify", "draft")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(step, fail)
    code, err = failure(cli, built, output, "--skip-prove", cached=True)
    assert code == 1
    assert re.search(
        f"^error: the bundle could not be written to {output}: No space left on device: {FIGURES}$", err, re.M
    )


def test_memory_that_runs_out_is_told(cli, built, output, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"
        )

    monkeypatch.setattr(torch.export, "export", fail)
    code, err = failure(cli, built, output, "--skip-prove")
    assert code == 1
    told = (
        f"^error: memory ran out: .*can't allocate memory: you tried: received {SIZE} \\(.*\\), expected about {SIZE}$"
    )
    assert re.search(told, err, re.M)


def test_a_build_with_too_little_address_space_is_refused(built, output):
    """Refuse before torch is imported."""
    arguments = ["build", str(built("lookup_3").folder), "--output", str(output)]
    code = f"import sys; {COMMAND_LINE}; assert 'torch' not in sys.modules"
    command = f'ulimit -Sv 1000000 && exec "{sys.executable}" -c "$0" "$@"'
    done = subprocess.run(["bash", "-c", command, code, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    error, hint, code = done.stderr.splitlines()
    assert error.startswith("error: `ulimit -v` is too small: received 1.0 GB of address space, expected about ")
    assert hint == "hint: raise it: `ulimit -v unlimited`, in the same shell"
    assert code == "help: speccompile explain SC501"


def test_a_full_disk_is_told_when_numpy_writes(tmp_path):
    """Recognize numpy's error for a full disk, which has no error number."""
    weight = ir.Value(name="weight", const_value=ir.tensor(np.ones((90, 90), np.float32)))
    graph = ir.Graph([], [], nodes=[], initializers=[weight], opset_imports={"": 24})
    message = r"target\.float16\.weights could not be written: 8100 requested and \d+ written"
    with largest_file(9000), pytest.raises(BuildError, match=message) as raised:
        files.save(ir.Model(graph, ir_version=10), tmp_path / "verify.onnx", "target.float16.weights")
    assert raised.value.hint == "free some disk space, or give another --output (output=..)"


@pytest.mark.sweep("a process each that imports torch; what a signal leaves is seen in this one in the first tier")
@pytest.mark.parametrize(("number", "line"), [(signal.SIGINT, "proving verify: neutral"), (signal.SIGTERM, "lowering")])
def test_an_interrupted_build_ends_cleanly(built, output, number, line):
    arguments = ["build", built("lookup_3").folder, "--output", output, "--no-cache"]  # else nothing is under way
    command = [sys.executable, "-c", COMMAND_LINE, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = next(told for told in process.stderr if told.startswith(line))
        assert len(list(output.parent.iterdir())) == 2, f"nothing was under way at {told}"
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (128 + number, "")
    assert err.endswith("\ninterrupted; nothing was kept\n")


@pytest.mark.parametrize(("number", "swallow"), [(signal.SIGINT, forget), (signal.SIGTERM, turn_into_an_error)])
def test_an_interrupt_that_a_library_swallows_still_ends_the_build(cli, built, output, monkeypatch, number, swallow):
    monkeypatch.setattr(torch.export, "export", swallow(torch.export.export, number))
    code, err = failure(cli, built, output, "--skip-prove")
    assert (code, err.splitlines()[-1]) == (128 + number, "interrupted; nothing was kept")


def test_graphs_that_cannot_be_dumped_are_refused_before_the_work(cli, built, output, tmp_path_factory):
    file = tmp_path_factory.mktemp("taken") / "file"
    file.write_text("")
    code, err = failure(cli, built, output, "--dump-graphs", file)
    assert code == 1
    assert f"error: the graphs cannot be dumped to {file}: File exists" in err
