"""ReDrafter: Apple's cell. `test_family_rounds` checks its drafter."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters.redrafter import reference
from tests.compile.eager_rounds import plan_of
from tests.heads.redrafter import redrafter


@torch.no_grad()
def test_the_reference_is_a_gated_free_recurrent_network_of_torch(tmp_path):
    """torch's RNNCell has tanh or relu: with relu, and SiLU replaced by relu, both are one formula."""
    plan = plan_of(tmp_path, partial(redrafter, layers=0), "tokens: 3")
    context = drafter_context(open_round(plan).draft)
    (teacher,) = reference.teachers(context)
    weights, table = reference.weights_of(context.head), context.ends().embed.table
    hidden = context.head.hidden_size
    cell = nn.RNNCell(hidden, hidden, nonlinearity="relu")
    cell.weight_ih.copy_(weights["rnn_w.weight"])
    cell.weight_hh.copy_(weights["rnn_u.weight"])
    cell.bias_hh.copy_(weights["rnn_u.bias"])
    cell.bias_ih.zero_()
    features = torch.randn(5, hidden, generator=torch.Generator().manual_seed(3))
    state, expected = torch.zeros(hidden), []
    for token in (7, 3, 11):
        state = cell(table[token], state)
        expected.append(weights["output.weight"] @ torch.cat([features[-1], state]))
    fed = DrafterInputs([1, 2, 3, 4, 5, 7], features.numpy(), [2, 3, 4, 5, 7])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference.functional, "silu", torch.relu)
        found = teacher(fed, [3, 11])
    np.testing.assert_allclose(found, torch.stack(expected), rtol=1e-4, atol=1e-4)
