"""What stands around a drafter that carries states lets it read whole paths."""

import pytest

from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft.cascade import HostFillableDrafter, LookupGate, LookupTail
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.tree import chain
from tests import zoo

DRAFTS, ADDED = 2, 3


@pytest.fixture(scope="module", params=["lfm2", "llama"])
def drafter(request):
    model = zoo.model(request.param).requires_grad_(False)
    return FixedDrafter(DecoderReader(probe(model, CacheShape(1, 48, 32))), chain(DRAFTS))


@pytest.mark.parametrize(("wrap", "longest"), [
    (lambda drafter, lookup: LookupTail(drafter, lookup, (1, 48), zoo.VOCABULARY), DRAFTS + ADDED),
    (lambda drafter, lookup: LookupGate(drafter, lookup, 2, (1, 48), zoo.VOCABULARY), ADDED),
    (lambda drafter, _: HostFillableDrafter(drafter, ADDED), ADDED),
], ids=["then", "gate", "host"])  # fmt: skip
def test_a_path_and_the_bonus_token_fit_into_what_is_read(drafter, wrap, longest):
    around = wrap(drafter, Lookup(chain(ADDED), 2))
    if drafter.is_recurrent:  # the token that was pending, all drafts and the bonus token
        assert around.catch_up == longest + 2
    else:  # the row of the token that was pending is there
        assert drafter.catch_up == 2
        assert 2 <= around.catch_up <= longest + 1
