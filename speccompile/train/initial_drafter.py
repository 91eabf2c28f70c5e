"""Starting point of a training: the drafter of a folder, or a new one, whose vocabulary is selected from the data."""

import shutil
from pathlib import Path

from torch import Tensor, nn

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import text_config
from speccompile.drafters import module_of
from speccompile.drafters.initialization import MASK
from speccompile.drafters.sizes import UNUSED
from speccompile.drafters.trainable import NewDrafter
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import LOGGER
from speccompile.train.data.corpus import Dataset
from speccompile.train.vocabulary import count_learnt, coverage, select_tokens
from speccompile.train.work import BEGIN, disk_errors


def initial_drafter_folder(plan: TrainingPlan, model: nn.Module, corpus: Dataset) -> Path:
    """Return the folder of the drafter to train. A new drafter is written once, atomically."""
    if plan.begin is not None:
        return plan.begin
    folder = plan.work / BEGIN
    if folder.is_dir():
        return folder
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with disk_errors(folder):
            module_of(plan.kind, "training").new(part, _wanted(plan, model, corpus))
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _wanted(plan: TrainingPlan, model: nn.Module, corpus: Dataset) -> NewDrafter:
    whole = read_json_object(plan.target.folder / CONFIG) or {}
    kept = None
    if plan.vocabulary is not None:
        texts = ((text.tokens, text.learnt) for text in map(corpus.sample, range(len(corpus))))
        counts = count_learnt(texts, plan.target.facts.vocabulary_size)
        kept = select_tokens(counts, plan.vocabulary, plan.target.facts.eos_token_ids)
        LOGGER.info(
            "vocabulary: %d of the target's %d tokens, which cover %.2f %% of the training data",
            len(kept), len(counts), 100 * coverage(counts, kept),
        )  # fmt: skip
    return NewDrafter(
        config=text_config(whole, plan.target.folder) or whole,
        ends=TargetEmbeddings(lambda: model),
        depth=plan.depth,
        sizes=plan.sizes,
        taps=plan.taps,
        kept=kept,
        dialect=plan.dialect,
        # Other engines look the target up by this name: on the Hub, or in its folder.
        reference=plan.target.reference if plan.target.commit else str(plan.target.folder.resolve()),
        seed=plan.seed,
        target=plan.target.folder,
        counts=_counts(plan, corpus),
    )


def _counts(plan: TrainingPlan, corpus: Dataset) -> Tensor | None:
    """Return the number of occurrences of each of the target's tokens, if the drafter needs an unused mask token."""
    if plan.sizes.get(MASK) != UNUSED:
        return None
    texts = (text.tokens for text in map(corpus.sample, range(len(corpus))))
    return count_learnt(((tokens, tokens >= 0) for tokens in texts), plan.target.facts.vocabulary_size)
