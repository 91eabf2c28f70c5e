"""speculators loads what training exports, and says the same: its EAGLE-3 and P-EAGLE, and its own converter of flat
heads. It runs where `scripts/references/speculators_heads.py` does, in an environment that is made as its text says."""

from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch

from tests.train import tiny_drafters

pytest.importorskip("speculators", reason="no speculators here: scripts/references/speculators_heads.py says how")

from speculators import SpeculatorModel, SpeculatorModelConfig
from speculators.convert.entrypoints import convert_model
from speculators.models.peagle import core

DEPTH = 3
KEPT = torch.arange(1, 200, 2)
TOLERANCE = 1e-4


@contextmanager
def logits_of(model):
    """Yield what its head says while this is open, one entry a call."""
    said = []
    hook = model.lm_head.register_forward_hook(lambda module, given, output: said.append(output.detach()))
    try:
        yield said
    finally:
        hook.remove()


def trained(folder: Path, kind: str, **asked) -> tuple:
    """Return a student whose head has moved from where it began, saved, and what the target makes of a text."""
    model = tiny_drafters.target(folder, num_hidden_layers=5)
    tiny_drafters.begin(folder, model, kind, name="head", **asked)
    student = tiny_drafters.student(tiny_drafters.context(folder, model, kind), DEPTH)
    with torch.no_grad():
        for place, parameter in enumerate(each for each in student.parameters() if each.requires_grad):
            random = torch.Generator().manual_seed(place)
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random) * parameter.std(unbiased=False))
    student.save(folder / "trained", torch.float32)
    return student, tiny_drafters.seen(model, student.taps, texts=1)


def loaded(folder: Path) -> torch.nn.Module:
    """Load it as its users load it, which looks at the target's folder as well; attention without what needs a
    compiler."""
    config = SpeculatorModelConfig.from_pretrained(str(folder))
    config.transformer_layer_config._attn_implementation = "eager"
    return SpeculatorModel.from_pretrained(str(folder), config=config).eval().float()


@pytest.mark.parametrize(
    "asked",
    [{}, {"kept": KEPT}, {"kept": KEPT, "sizes": {"layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 24}}],
    ids=["whole vocabulary", "own vocabulary", "two layers"],
)
def test_eagle3(tmp_path, asked):
    student, seen = trained(tmp_path, "eagle3", dialect="speculators", **asked)
    model = loaded(tmp_path / "trained")
    assert model.config.eagle_aux_hidden_state_layer_ids == [2, 3, 4]
    check_eagle3(student, seen, model)


def test_flat_eagle3_as_its_converter_reads_it(tmp_path):
    student, seen = trained(tmp_path, "eagle3", kept=KEPT)
    assert student.head.dialect == "SpecForge"
    convert_model(
        str(tmp_path / "trained"), str(tmp_path / "target"), "eagle3", str(tmp_path / "converted"),
        eagle_aux_hidden_state_layer_ids=[2, 3, 4],
    )  # fmt: skip
    model = loaded(tmp_path / "converted")
    # Its sign for a weight that is not there, NaN, is overwritten by transformers of later than it declares.
    model.embed_tokens.load_state_dict({"weight": student.network.embed_tokens.table})
    check_eagle3(student, seen, model)


def check_eagle3(student, seen, model) -> None:
    """Check that every step of its training-time test gives the logits of ours."""
    last = seen.tokens.shape[1] - 1
    anchors = torch.arange(1, last - DEPTH)[None]
    with logits_of(model) as said, torch.no_grad():
        model(seen.features[:, :last], seen.tokens[:, 1:], torch.zeros(1, last, dtype=torch.int64), ttt_steps=DEPTH)
        ours = student(seen, anchors, DEPTH)
    for step, mine in enumerate(ours):
        theirs = said[step][:, : anchors.shape[1]]
        torch.testing.assert_close(mine, theirs, rtol=0, atol=TOLERANCE * float(theirs.abs().max()))
    if student.vocabulary is not None:
        assert torch.equal(model.d2t + torch.arange(len(model.d2t)), student.vocabulary)


def test_p_eagle(tmp_path):
    student, seen = trained(tmp_path, "p_eagle", kept=KEPT, sizes={"mask_token": 7})
    model, last, sampled, sample = (
        loaded(tmp_path / "trained"),
        seen.tokens.shape[1] - 1,
        [],
        core.generate_cod_sample_indices,
    )

    def recorded(*arguments, **named):
        sampled.append(sample(*arguments, **named))
        return sampled[-1]

    with (
        logits_of(model) as said,
        mock.patch.object(core, "generate_cod_sample_indices", recorded),
        mock.patch.object(core, "compute_metrics", return_value=(None, {})),  # the loss needs Triton
        torch.no_grad(),
    ):
        model(
            seen.features[:, :last], seen.tokens[:, 1:], torch.zeros(1, last, dtype=torch.int64), num_depths=DEPTH,
            down_sample_ratio=1.0, verifier_last_hidden_states=torch.zeros(1, last, model.hidden_size),
        )  # fmt: skip
        ours = torch.stack(student(seen, torch.arange(1, last + 1)[None], DEPTH), 2)[0]
    (rows, depths), compared = sampled[0], 0
    for row in range(last):
        places = [int(place) for depth in range(DEPTH) for place in ((rows == row) & (depths == depth)).nonzero()]
        if len(places) == DEPTH:
            theirs = said[0][0, places]
            torch.testing.assert_close(ours[row], theirs, rtol=0, atol=TOLERANCE * float(theirs.abs().max()))
            compared += 1
    assert compared > last // 2
