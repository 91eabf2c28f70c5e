"""States that move on along the paths of a static or dynamic tree: at each node what its path alone gives."""

import pytest
import torch
from torch.nn import functional
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from speccompile.compiler.step import ops
from speccompile.compiler.step.recurrent_state import Convolution, Recurrence
from speccompile.compiler.step.window import TreeLayout
from speccompile.tree import Tree

TREE = Tree((-1, 0, 0, 1, 1, 2, 3))  # leaves at depths 2 and 3
GIVEN, WIDTH = (1, 3, 0), 10
"""Given tokens of each batch slot, one of them idle, and tokens of the window: some are padding."""


@pytest.fixture(params=["static", "dynamic"])
def branches(request):
    """Return the paths of the tree, whose parents a dynamic one is given beside those of other slots."""
    window, size = torch.zeros(len(GIVEN), WIDTH, dtype=torch.long), len(TREE.parents)
    layout = TreeLayout(TREE if request.param == "static" else None, size, TREE.depth)
    nodes = layout.nodes(torch.tensor(TREE.parents).clamp(min=0).expand(len(GIVEN), -1), len(GIVEN))
    return layout.branches(window, torch.tensor(GIVEN), nodes)


def test_each_slot_has_the_paths_of_its_own_tree():
    other = (0, 0, 0, 0, 1, 1, 4)
    layout = TreeLayout(None, len(other), 3)
    nodes = layout.nodes(torch.tensor([[0, *TREE.parents[1:]], other]), 2)
    paths, home = layout._paths(nodes)
    for slot, tree in enumerate((TREE, Tree((-1, *other[1:])))):
        for node in range(1, len(other)):
            path = tree.root_paths[node]
            assert paths[slot, home[0, node]].tolist() == [*path, *[node] * (4 - len(path))]


def rows(*shape):
    return torch.randn(len(GIVEN), *shape, generator=torch.Generator().manual_seed(sum(shape)))


def paths():
    """Yield batch slot, position of a token in the window, and positions of the tokens up to it."""
    for slot, given in enumerate(GIVEN):
        if given:
            yield from ((slot, place, list(range(place + 1))) for place in range(given))
            root = given - 1
            for node, path in enumerate(TREE.root_paths):
                yield slot, root + node, [*range(given), *(root + each for each in path[1:])]


@pytest.mark.parametrize("beta", [False, True], ids=["Mamba 2", "delta rule"])
def test_a_recurrence_is_that_of_each_path(branches, beta):
    """Compare with the bits of the chain of a node's path, and with transformers' rule; the state is that of a
    chain."""
    query, key, value = rows(2, WIDTH, 8), rows(2, WIDTH, 8) / 3, rows(4, WIDTH, 6)
    its = [key, value, -rows(4, WIDTH, 1).abs()] + ([rows(4, WIDTH, 1).sigmoid()] if beta else [])
    state, length = rows(4, 8, 6), torch.tensor([0, 7, 7])
    steps = Recurrence(state, length)
    found = steps.run(query, its, None, branches)
    assert all(ours is theirs for ours, theirs in zip(steps.rows, its, strict=True))
    for slot, place, path in paths():
        own = [each[slot : slot + 1, :, path] for each in (query, *its)]
        alone = ops.recur(*own[:4], own[4] if beta else None, state[slot : slot + 1], length[slot : slot + 1])
        assert torch.equal(found[slot, :, place], alone[0, :, -1])
        if beta:
            spread = [each.repeat_interleave(4 // each.shape[1], 1).transpose(1, 2) for each in own]
            wanted, _ = torch_recurrent_gated_delta_rule(
                spread[0] * 8**0.5, spread[1], spread[2], spread[3][..., 0], spread[4][..., 0],
                initial_state=torch.where(length[slot] > 0, state[slot : slot + 1], 0.0), output_final_state=False,
            )  # fmt: skip
            torch.testing.assert_close(found[slot, :, place], wanted[0, -1])


def test_a_convolution_is_that_of_each_path(branches):
    inputs, weight, state = rows(1, WIDTH, 12), torch.randn(12, 4), rows(1, 3, 12)
    found = Convolution(state, torch.tensor([0, 7, 7])).run(inputs, weight, None, branches)
    for slot, place, path in paths():
        begun = state[slot] if slot else torch.zeros_like(state[slot])
        whole = torch.cat([begun, inputs[slot, :, path]], 1)[0].T[None]
        wanted = functional.conv1d(whole, weight[:, None], groups=12)[0, :, -1]
        torch.testing.assert_close(found[slot, 0, place], wanted)
