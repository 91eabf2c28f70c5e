"""Compare what a student says with its method's formula, which other tests compare with the rounds."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle3.taps import IDS as TAP_IDS
from speccompile.drafters.eagle3.taps import boundary
from speccompile.drafters.trainable import EMBEDDING, TeacherBatch, TrainableDrafter, TrainableHead
from speccompile.drafters.weights import IDS
from tests.heads.eagle import eagle
from tests.heads.eagle3 import eagle3, of_norms
from tests.heads.hydra import hydra
from tests.heads.medusa import faster_decoding, vllm
from tests.heads.p_eagle import p_eagle
from tests.heads.pard2 import pard2
from tests.heads.redrafter import redrafter
from tests.train import tiny_drafters

ANCHORS = (1, 2, 7, 11)
DEPTH = 3
UNSAID = ("SafeAILab", "AngelSlim", "nebius")
EAGLE3 = partial(eagle3, boundaries=(1, 2, 2))
HEADS = {
    "eagle3 SpecForge": ("eagle3", partial(EAGLE3, draft_size=60)),
    "eagle3 speculators": ("eagle3", partial(EAGLE3, dialect="speculators", norm_before_residual=True, layers=2)),
    "eagle3 window": ("eagle3", partial(
        EAGLE3, dialect="DeepSpec", qk_norm=True, sliding_window=5, use_sliding_window=True)),
    "eagle3 norms": ("eagle3", lambda folder, target: EAGLE3(
        folder, target, dialect="speculators", norm_before_fc=True, fc_norm=True, norm_output=True,
        tensors=of_norms(target))),
    "eagle3 pickle": ("eagle3", partial(EAGLE3, dialect="SpecForge", pickle="pytorch_model.bin", draft_size=40)),
    "eagle": ("eagle", eagle),
    "eagle biases": ("eagle", partial(eagle, dialect="vllm", qkv_bias=True, layers=2)),
    "eagle nested": ("eagle", partial(eagle, dialect="nested")),
    "eagle speculators": ("eagle", partial(eagle, dialect="speculators")),
    "medusa": ("medusa", vllm),
    "medusa shared": ("medusa", partial(vllm, shared=True, own=50, narrowed=False)),
    "medusa narrowed": ("medusa", partial(vllm, own=50, prefix="medusa_heads.")),
    "medusa pickle": ("medusa", faster_decoding),
    "medusa of TGI": ("medusa", partial(faster_decoding, pickle=False)),
    "medusa target's head": ("medusa", partial(faster_decoding, projections=False)),
    "hydra": ("hydra", hydra),
    "hydra ungrounded": ("hydra", partial(hydra, grounded=False)),
    "hydra++": ("hydra", partial(hydra, prefix=True)),
    "redrafter": ("redrafter", redrafter),
    "redrafter sum, projected": ("redrafter", partial(redrafter, rnn=False, exit_dim=24, prefix="drafter.")),
    "pard2": ("pard2", partial(pard2, model_type="qwen3", bias=True, checkpoint=True)),
    "p_eagle vLLM": ("p_eagle", partial(p_eagle, dialect="vllm", draft_size=60)),
    "p_eagle SpecForge": ("p_eagle", partial(p_eagle, dialect="specforge", layers=1)),
}  # fmt: skip
"""A head of each form, as somebody publishes it."""


@pytest.fixture(params=HEADS)
def case(request, tmp_path) -> DrafterContext:
    kind, write = HEADS[request.param]
    return tiny_drafters.written(tmp_path, write, kind)


def said(student: TrainableDrafter, seen: TeacherBatch) -> list[torch.Tensor]:
    return student(seen, torch.tensor(ANCHORS).expand(len(seen.tokens), -1), DEPTH)


def test_drafts_are_those_of_the_formula(case):
    student = tiny_drafters.student(case, DEPTH)
    seen = tiny_drafters.seen(case.model, student.taps)
    (teacher,) = module_of(case.drafter.kind, "reference").teachers(case)
    with torch.no_grad():
        found = torch.stack(said(student, seen), 2).numpy()  # [B, A, depth, Vd]
    ids = slice(None) if student.vocabulary is None else student.vocabulary.numpy()
    for row, tokens in enumerate(seen.tokens.tolist()):
        for place, anchor in enumerate(ANCHORS):
            fed = DrafterInputs(tokens[: anchor + 1], seen.features[row, :anchor].numpy(), tokens[1 : anchor + 1])
            expected = np.asarray(teacher(fed, tokens[anchor + 1 : anchor + DEPTH]))
            np.testing.assert_allclose(found[row, place], expected[:, ids], rtol=1e-4, atol=1e-4 * abs(found).max())


def test_what_is_trained_gets_gradients_and_nothing_else(case):
    student = tiny_drafters.student(case, DEPTH)
    assert isinstance(student, TrainableHead)
    seen = tiny_drafters.seen(case.model, student.taps)
    sum(logits.logsumexp(-1).sum() for logits in said(student, seen)).backward()
    trained = {name for name, each in student.network.named_parameters() if each.requires_grad}
    moved = {name for name, each in student.network.named_parameters() if each.grad is not None and each.grad.any()}
    assert moved == trained
    embedding = student.head.tensors.get(EMBEDDING)
    is_copy = embedding is not None and embedding.shape[1] == student.head.hidden_size
    assert trained == set(student.head.tensors) - {*IDS, *([EMBEDDING] if is_copy else [])}
    assert not any(each.grad is not None or each.requires_grad for each in case.model.parameters())


def test_saved_in_its_own_dialect_it_says_the_same(case, tmp_path):
    student = tiny_drafters.student(case, DEPTH)
    with torch.no_grad():
        for parameter in student.parameters():
            if parameter.requires_grad:
                parameter.mul_(1.01)
    head, before = case.head, said(student, tiny_drafters.seen(case.model, student.taps))
    (tmp_path / "head").rename(tmp_path / "published")
    object.__setattr__(head, "folder", tmp_path / "published")
    student.save(tmp_path / "head", torch.float32)
    again = tiny_drafters.context(tmp_path, case.model, case.drafter.kind)
    assert (again.head.dialect, again.head.taps, again.head.switches) == (head.dialect, head.taps, head.switches)
    after = said(tiny_drafters.student(again, DEPTH), tiny_drafters.seen(case.model, student.taps))
    for mine, theirs in zip(before, after, strict=True):
        assert torch.equal(mine, theirs)
    assert not list((tmp_path / "head").glob("*.pt")) + list((tmp_path / "head").glob("*.bin"))


@pytest.mark.parametrize(
    "dialect", ["SafeAILab", "AngelSlim", "nebius", "ModelOpt", "SpecForge", "speculators", "DeepSpec"]
)
def test_what_is_read_of_the_target_is_always_said(tmp_path, dialect):
    """Write the taps that engines would otherwise guess; a folder that says them stays as it is."""
    case = tiny_drafters.written(tmp_path, partial(eagle3, dialect=dialect), "eagle3", num_hidden_layers=7)
    student = tiny_drafters.student(case, DEPTH)
    student.save(tmp_path / "saved", torch.float32)
    before, after = (json.loads((tmp_path / each / "config.json").read_text()) for each in ("head", "saved"))
    added = {} if before == after else after["eagle_config"]
    assert added == ({TAP_IDS: [1, 2, 3], "use_aux_hidden_state": True} if dialect in UNSAID else {})
    (tmp_path / "head").rename(tmp_path / "published")
    (tmp_path / "saved").rename(tmp_path / "head")
    again = tiny_drafters.context(tmp_path, case.model, "eagle3").head
    assert [boundary(tap) for tap in again.taps] == [boundary(tap) for tap in case.head.taps]
    # AngelSlim's is SpecForge's without ids.
    assert again.dialect == ("SpecForge" if dialect == "AngelSlim" else case.head.dialect)


def test_p_eagle_blocks_do_not_see_each_other(tmp_path):
    """Compare an anchor's drafts with and without other anchors."""
    case = tiny_drafters.written(tmp_path, partial(p_eagle, dialect="vllm"), "p_eagle")
    student = tiny_drafters.student(case, DEPTH)
    seen = tiny_drafters.seen(case.model, student.taps, texts=1)
    with torch.no_grad():
        together = student(seen, torch.tensor([[3, 4, 9]]), DEPTH)
        alone = student(seen, torch.tensor([[4]]), DEPTH)
    for mine, theirs in zip(alone, together, strict=True):
        torch.testing.assert_close(mine[:, 0], theirs[:, 1])


def test_half_precision_of_activations_is_near(case):
    """bfloat16 by autocast, weights and gradients float32."""
    student = tiny_drafters.student(case, DEPTH)
    seen = tiny_drafters.seen(case.model, student.taps)
    with torch.no_grad():
        whole = said(student, seen)
    with torch.autocast("cpu", torch.bfloat16):
        half = said(student, seen)
        loss = sum(logits.float().logsumexp(-1).mean() for logits in half)
    loss.backward()
    for mine, theirs in zip(half, whole, strict=True):
        assert float((mine.detach().float() - theirs).std() / theirs.std()) < 0.1
    assert {each.grad.dtype for each in student.parameters() if each.requires_grad} == {torch.float32}
