"""A drafting method's student against its reference: logits at anchors of whole texts, how it learns, its export."""

from dataclasses import replace

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.trainable import TeacherBatch, TrainableDrafter
from speccompile.recipe import Plan, load_recipe, make_plan
from speccompile.train.loop import checkpoint_activations
from speccompile.train.teacher import Teacher

LENGTH, SHORTER = 23, 17
"""Tokens of the two texts; the second is padded."""
BUILT = "a bundle for each kind of drafter; one that was trained is built in test_pard.py, and every kind as published"
"""Why the second tier alone builds what training exports: the first reads it back, and compares it in eager."""
ANCHORS = torch.tensor([[1, 4, 5, 11], [2, 3, 9, 12]])
TOLERANCE = {"rtol": 1e-4, "atol": 2e-4}
"""Of logits, float32: the reference adds up in another order."""


def context_of(plan: Plan) -> DrafterContext:
    """Return it as a training makes it: with the target in torch."""
    model = AutoModelForCausalLM.from_pretrained(plan.target.folder, attn_implementation="eager").eval()
    return replace(drafter_context(open_round(plan).draft), model=model)


def student_of(plan: Plan, depth: int) -> TrainableDrafter:
    torch.manual_seed(0)
    return module_of(plan.drafter.kind, "training").student(context_of(plan), depth)


def seen_by(plan: Plan, student: TrainableDrafter) -> TeacherBatch:
    """Return two random texts, and what the target makes of them."""
    model = AutoModelForCausalLM.from_pretrained(plan.target.folder, attn_implementation="eager")
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, plan.target.facts.vocabulary_size, (2, LENGTH), generator=random)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, SHORTER:] = False
    return Teacher(model, student.taps).forward(tokens, real, real)


def check_said(plan: Plan, depth: int) -> None:
    """Compare drafts at several anchors and depths with the reference of the method, behind the text's own tokens."""
    student = student_of(plan, depth)
    seen = seen_by(plan, student)
    (teacher,) = module_of(plan.drafter.kind, "reference").teachers(drafter_context(open_round(plan).draft))
    with torch.no_grad():
        said = [over_target(each, student, seen) for each in student(seen, ANCHORS, depth)]
    assert len(said) == depth
    for row, anchors in enumerate(ANCHORS.tolist()):
        text, features = seen.tokens[row].tolist(), seen.features[row].numpy()
        for place, anchor in enumerate(anchors):
            fed = DrafterInputs(text[: anchor + 1], features[:anchor], text[1 : anchor + 1])
            expected = torch.as_tensor(teacher(fed, text[anchor + 1 : anchor + depth]))
            found = torch.stack([each[row, place] for each in said])
            torch.testing.assert_close(found, expected, **TOLERANCE)


def over_target(logits: Tensor, student: TrainableDrafter, seen: TeacherBatch) -> Tensor:
    """Return scores over the target's tokens, -inf for those that the student does not have."""
    if student.vocabulary is None:
        return logits
    whole = torch.full((*logits.shape[:-1], seen.logits.shape[-1]), -torch.inf)
    whole[..., student.vocabulary] = logits
    return whole


def check_learns(plan: Plan, depth: int, later: tuple[str, ...] = ()) -> TrainableDrafter:
    """Check that every tensor that is trained has a gradient that is not zero, and nothing of the target has one; a
    step down the gradient makes the loss smaller. later: parts of names that move once others have."""
    student = student_of(plan, depth)
    seen = seen_by(plan, student)
    trained = {name: each for name, each in student.named_parameters() if each.requires_grad}
    assert trained
    before = loss_of(student, seen, depth)
    before.backward()
    unmoved = {name for name, each in trained.items() if each.grad is None or not each.grad.abs().sum() > 0}
    assert {name for name in unmoved if not any(part in name for part in later)} == set()
    others = {name for name, each in student.named_parameters() if each.grad is not None and name not in trained}
    assert others == set()
    with torch.no_grad():
        size = sum(float(each.grad.square().sum()) for each in trained.values()) ** 0.5
        for each in trained.values():
            each -= 1e-2 * each.grad / size
        assert loss_of(student, seen, depth) < before
    return student


def check_computed_again(plan: Plan, depth: int) -> None:
    """Check that with activations that are computed again for the way back, gradients are the same."""
    gradients = []
    for again in (False, True):
        student = student_of(plan, depth).train()
        if again:
            checkpoint_activations(student)
        loss_of(student, seen_by(plan, student), depth).backward()
        gradients.append({name: each.grad for name, each in student.named_parameters() if each.grad is not None})
    plain, found = gradients
    assert plain
    torch.testing.assert_close(found, plain, rtol=0, atol=0)


def loss_of(student: TrainableDrafter, seen: TeacherBatch, depth: int) -> Tensor:
    """Cross entropy of the text's tokens, and what it learns besides."""
    said = student(seen, ANCHORS, depth)
    losses = []
    for draft, logits in enumerate(said):
        wanted = seen.tokens.gather(1, ANCHORS + 1 + draft)
        wanted = wanted if student.vocabulary is None else wanted % len(student.vocabulary)
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()))
    own = student.own_loss(seen, ANCHORS, said, [torch.full(ANCHORS.shape, 0.25) for _ in said])
    assert own is None or own.shape == (*ANCHORS.shape, depth)
    return torch.stack(losses).sum() + (0 if own is None else own.mean())


def check_saved(plan: Plan, student: TrainableDrafter, depth: int) -> Plan:
    """Check that saving and loading changes no bit of its logits. Return the plan of a recipe that drafts with it."""
    folder = plan.drafter.head.folder.parent
    student.save(folder / "exported", torch.float32)
    recipe = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(recipe.replace("model: head", "model: exported"))
    exported = make_plan(load_recipe(folder))
    seen = seen_by(plan, student)
    with torch.no_grad():
        pairs = zip(student(seen, ANCHORS, depth), student_of(exported, depth)(seen, ANCHORS, depth), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert exported.drafter.head.dialect == plan.drafter.head.dialect
    return exported
