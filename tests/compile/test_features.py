"""A drafter of a later method: it reads the target's taps, has rows of its own in the window, and no language model."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor

from speccompile.compiler.build.traced_graphs import neutral_engine
from speccompile.compiler.lower import onnxruntime, static_cache
from speccompile.compiler.lower.compose import compose_step, step_graph
from speccompile.compiler.lower.export import export_draft, export_verify
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.lower.signatures import DraftWidth
from speccompile.compiler.models.probe import probe
from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.prove.schedule_runs import Outputs, run_schedule
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter, State
from speccompile.compiler.step.verify import Verify
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.contract import Graph
from speccompile.tree import Tree, from_branching
from tests import zoo

pytestmark = pytest.mark.builds(2)

DRAFTS, EXTRA, WIDTHS = 3, 2, [9, 4, 1, 6]
MASK = 5
"""Token of the extra rows."""


class Heads(Drafter):
    """Drafts by one matrix a depth from the taps at the end of the path; its extra rows are masks to be filled in."""

    taps = ("layers.1.input", "norm.output")
    tokens, n_unaccepted_rows = DRAFTS, EXTRA

    def __init__(self, hidden: int, shape: Tree) -> None:
        super().__init__()
        self.shape = shape
        random = torch.Generator().manual_seed(0)
        weights = torch.randn(DRAFTS, len(self.taps) * hidden, zoo.VOCABULARY, generator=random)
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def states(self) -> list[State]:
        return []

    def forward(self, accepted: Accepted, states: list[Tensor]) -> Drafted:
        assert accepted.features is not None
        last = (accepted.n_path - 1).clamp(min=0)[:, None, None]
        feature = accepted.features.gather(1, last.expand(-1, 1, accepted.features.shape[2]))[:, 0]
        drafts = torch.einsum("bf,dfv->bdv", feature, self.weights).argmax(-1)
        bonus = accepted.path.gather(1, accepted.n_path[:, None])
        window = torch.cat([bonus, drafts, torch.full_like(drafts[:, :EXTRA], MASK)], 1)
        return Drafted(window, torch.where(accepted.n_path > 0, 1 + DRAFTS, 1), states)


@pytest.fixture(scope="module", params=["tree", pytest.param("chain", marks=pytest.mark.sweep("two traces more"))])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Graph], Verify]:
    folder = tmp_path_factory.mktemp("features")
    model = zoo.model("qwen3").requires_grad_(False)
    is_chain = request.param == "chain"
    drafter = Heads(model.config.hidden_size, Tree((-1, 0, 1, 2)) if is_chain else Tree((-1, 0, 0, 1)))
    whole = None if is_chain else Tree((*drafter.shape.parents, 2, 4))  # the extra rows follow the second branch
    shape = ChainLayout() if whole is None else TreeLayout(whole, DRAFTS + EXTRA + 1, whole.depth)
    verify = Verify(probe(model, CacheShape(1, 48, 32)), shape, taps=Heads.taps)
    graphs = []
    for exported, weights in (
        (export_verify(verify, DraftWidth.of(drafter)), "target.weights"),
        (export_draft(drafter, 1, verify.n_features), "drafter.weights"),
    ):
        write_neutral(exported.model, exported.graph, folder, weights)
        graphs.append(exported.graph)
    return folder, graphs, verify


def text() -> list[int]:
    found: list[int] = np.random.default_rng(3).integers(3, zoo.VOCABULARY, sum(WIDTHS) + 1).tolist()
    return found


def run(folder: Path, graphs: list[Graph], files: list[str], verify: Verify) -> Outputs:
    tree = (
        from_branching([1] * (DRAFTS + EXTRA)) if isinstance(verify.shape, ChainLayout) else Tree((-1, 0, 0, 1, 2, 4))
    )
    script = Schedule([text()], WIDTHS, tree, 12, (((7, 8, 9, 10, MASK, MASK),),))
    return run_schedule(neutral_engine(list(zip(graphs, files, strict=True)), folder), script, graphs)


def test_the_features_of_the_path_reach_the_drafter(built: tuple[Path, list[Graph], Verify]) -> None:
    folder, graphs, verify = built
    outputs = run(folder, graphs, [neutral_file(graph) for graph in graphs], verify)
    model = verify.decoder.model
    model.set_attn_implementation("eager")
    hidden = model(input_ids=torch.tensor([text()]), output_hidden_states=True).hidden_states
    start = 0
    for width, found in zip(WIDTHS, outputs, strict=False):
        expected = torch.cat([hidden[1], hidden[-1]], 2)[0, start : start + width]
        accepted = int(found["n_path"][0])
        np.testing.assert_allclose(found["features"][0, :accepted], expected[:accepted], rtol=2e-4, atol=2e-4)
        start += width
    rounds = outputs[-1]  # drafts and extra rows
    assert rounds["next_window"].shape == (1, DRAFTS + EXTRA + 1)
    assert int(rounds["n_path"][0]) <= 1 + DRAFTS  # an extra row is never accepted
    assert rounds["next_window"][0, -EXTRA:].tolist() == [MASK] * EXTRA


@pytest.mark.parametrize("lower", [onnxruntime.lower, static_cache.lower])
def test_a_fused_step_hands_them_on_inside(built: tuple[Path, list[Graph], Verify], lower) -> None:
    folder, graphs, verify = built
    expected = run(folder, graphs, [neutral_file(graph) for graph in graphs], verify)
    graph = step_graph(*graphs)
    assert "features" not in {tensor.name for tensor in (*graph.inputs, *graph.outputs)}
    model = compose_step(*(ir.load(folder / neutral_file(each)) for each in graphs), graph)
    lower(model)
    ir.save(model, folder / neutral_file(graph))
    got = run(folder, [graph], [neutral_file(graph)], verify)
    for one, other in zip(got, expected, strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-4)
