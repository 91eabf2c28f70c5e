#!/usr/bin/env python3
"""Compare DFlash, DFlash2 and DSpark heads with the libraries that train them.

    python -m venv FOLDER && FOLDER/bin/pip install -e . openai datasets
    FOLDER/bin/pip install --no-deps dflash==0.1.0 specforge==0.2.0            # z-lab's, and SpecForge
    FOLDER/bin/pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0   # it declares an older transformers
    FOLDER/bin/python scripts/references/dflash_blocks.py                      # exit code 1 where the logits differ

A library saves a head with random weights, and a recipe reads it. The library's logits of a block after a random text,
given some drafts, are compared with those of our reference, and of the torch module that is traced into the graph,
which reads the text in several rounds. For DSpark, the confidence of each draft is compared as well.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from specforge.modeling.draft.dspark import DSparkDraftModel as SpecForge
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.dflash import DFlashDraftModel as SpeculatorsDFlash
from speculators.models.dflash import DFlashSpeculatorConfig
from speculators.models.dflash2 import DFlash2DraftModel as SpeculatorsDFlash2
from speculators.models.dflash2 import DFlash2SpeculatorConfig
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, MuseGlimmerAssistantConfig, Qwen3Config
from transformers import MuseGlimmerAssistantModel as Muse
from transformers import PreTrainedModel as Model
from transformers.cache_utils import DFlashCache

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.recipe import load_recipe, make_plan

WIDTH, VOCABULARY, OWN, LAYERS, BLOCK, MASK, ROUNDS = 32, 96, 40, 6, 5, 95, (7, 3, 1)
TEXT = sum(ROUNDS)
TOLERANCE = 1e-4
"""Of the largest logit."""
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 256, "num_hidden_layers": 2,
}  # fmt: skip
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
FULL = {"layer_types": ["full_attention"] * 2}
QWEN = {"use_sliding_window": True, "vocab_size": VOCABULARY}
TAPS = [1, 3]
BONUS, NOTHING = 17, torch.zeros(0)
BLOCK_TOKENS = torch.tensor([[BONUS, *[MASK] * (BLOCK - 1)]])
SELECTING = {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 8, "selector_top_k": 4}


class Case(NamedTuple):
    """features float32 [T, F] of a text, before BONUS, and drafts after that, as the target's tokens."""

    features: Tensor
    drafts: list[int]

    @property
    def before(self) -> Tensor:
        """int64 [1, drafts + 1]: the token before each slot that says a draft."""
        return torch.tensor([[BONUS, *self.drafts]])


Said = Callable[[Case], tuple[Tensor, Tensor]]
"""Function of a library: logits over its own tokens float32 [slots, Vd], or DFlash2's tokens int64 [slots]; and
DSpark's confidence of each draft [slots, 1], NOTHING for other heads."""


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    target = LlamaForCausalLM(LlamaConfig(**SIZES | {"vocab_size": VOCABULARY, "num_hidden_layers": LAYERS})).eval()
    _fill(target)
    worst = 0.0
    for name, kind, model, said in _heads(target):
        with TemporaryDirectory() as folder, torch.no_grad():
            difference = _compare(Path(folder), kind, target, model, said)
        print(f"{difference:.1e}  {name}")
        worst = max(worst, difference)
    print(f"largest difference: {worst:.2e} of the largest logit, {TOLERANCE:.0e} allowed")
    return 0 if worst <= TOLERANCE else 1


def _heads(target: Model) -> Iterator[tuple[str, str, Model, Said]]:
    """Yield name, drafter.kind, the library's model, and its function."""
    for layers, causal in ((FULL, None), (SLIDING, None), (SLIDING, False), (SLIDING, True), (FULL, True)):
        for more in ({}, {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "final_logit_softcapping": 3.0}):
            model = _zlab(DFlashDraftModel, layers, causal=causal, **more)
            name = f"z-lab, {_shown(layers)}, is_causal {causal}{', scaled' if more else ''}"
            yield name, "dflash", model, lambda case, model=model: _of_zlab(model, target, case)
        model = _zlab(DFlash2DraftModel, layers, causal=causal)
        name = f"z-lab's DFlash2, {_shown(layers)}, is_causal {causal}"
        yield name, "dflash", model, lambda case, model=model: _of_zlab(model, target, case)
    for layers in (FULL, SLIDING):
        muse = _muse(layers)
        yield f"transformers, {_shown(layers)}", "dflash", muse, lambda case, muse=muse: _of_muse(muse, target, case)
    for layers in (FULL, SLIDING):
        for size in (VOCABULARY, OWN):
            for switches in ({}, {"sample_from_anchor": True}, {"sliding_window_non_causal": True}):
                model = _speculator(DFlashSpeculatorConfig, SpeculatorsDFlash, target, layers, size, **switches)
                name = f"speculators, {_shown(layers)}, {size} tokens, {switches}"
                yield name, "dflash", model, lambda case, model=model: _of_speculator(model, case)
        model = _speculator(DFlash2SpeculatorConfig, SpeculatorsDFlash2, target, layers, VOCABULARY, **SELECTING)
        name = f"speculators' DFlash2, {_shown(layers)}"
        yield name, "dflash", model, lambda case, model=model: _of_speculator(model, case)
    yield from _dspark(target)


def _dspark(target: Model) -> Iterator[tuple[str, str, Model, Said]]:
    for kind in ("vanilla", "gated", "rnn"):
        cases = ((True, True, VOCABULARY), (True, False, OWN), (False, False, OWN))
        for anchor, with_markov, size in cases[: 2 if kind == "rnn" else 3]:
            said = {"markov_rank": 8, "markov_head_type": kind, "confidence_head_with_markov": with_markov}
            said |= {"sample_from_anchor": anchor}
            model = _speculator(DSparkSpeculatorConfig, DSparkDraftModel, target, FULL, size, **said)
            name = f"speculators' DSpark, {kind}, sample_from_anchor {anchor}, {size} tokens"
            yield name, "dspark", model, lambda case, model=model: _of_speculator(model, case)
        own = {"projector_type": "dspark", "markov_rank": 8, "markov_head_type": kind, "enable_confidence_head": True,
               "confidence_head_with_markov": True}  # fmt: skip
        forge = _zlab(SpecForge, FULL, **own)
        yield f"SpecForge's DSpark, {kind}", "dspark", forge, lambda case, forge=forge: _of_zlab(forge, target, case)


def _shown(layers: dict[str, Any]) -> str:
    return "sliding and full layers" if layers is SLIDING else "full layers"


def _fill(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5)
        else:
            nn.init.normal_(parameter, mean=1.0, std=0.1)


def _zlab(kind: type[Model], layers: dict[str, Any], causal: bool | None = None, **more: Any) -> Model:
    """Return a head of a library with z-lab's config. more: keys of `dflash_config`."""
    config = Qwen3Config(**SIZES | QWEN | layers)
    config.num_target_layers, config.block_size = LAYERS, BLOCK
    if causal is not None:
        config.is_causal = causal
    selecting = SELECTING if kind is DFlash2DraftModel else {}
    config.dflash_config = {"mask_token_id": MASK, "target_layer_ids": TAPS, **selecting, **more}
    config._attn_implementation = "sdpa"
    model = kind(config).eval()
    _fill(model)
    return model


def _muse(layers: dict[str, Any]) -> Model:
    config = MuseGlimmerAssistantConfig(
        **SIZES | layers | {"sliding_window": 6}, block_size=BLOCK, mask_token_id=MASK, target_layer_ids=TAPS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    model = Muse(config).eval()
    _fill(model)
    return model


def _speculator(
    kind: type[Any], model: type[Any], target: Model, layers: dict[str, Any], size: int, **switches: Any
) -> Model:
    config = Qwen3Config(**SIZES | QWEN | layers)
    config._attn_implementation = "eager"
    name = kind.model_fields["speculators_model_type"].default
    drafts = BLOCK if switches.get("sample_from_anchor") else BLOCK - 1
    proposals = SpeculatorsConfig(
        algorithm=name, proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=drafts)],
        default_proposal_method="greedy", verifier=VerifierConfig(name_or_path=None, architectures=[]),
    )  # fmt: skip
    made = model(kind(
        transformer_layer_config=config, draft_vocab_size=size, block_size=BLOCK, mask_token_id=MASK,
        aux_hidden_state_layer_ids=[tap + 1 for tap in TAPS], speculators_config=proposals, **switches,
    )).eval()  # fmt: skip
    _fill(made)
    made.embed_tokens.weight.data = target.get_input_embeddings().weight.data.clone()
    if size == VOCABULARY:
        made.lm_head.weight.data = target.lm_head.weight.data.clone()
    else:
        ids = 2 * torch.arange(size) + 1
        made.d2t.copy_(ids - torch.arange(size))
        made.t2d.zero_()
        made.t2d[ids] = True
    return made


def _of_zlab(model: Model, target: Model, case: Case) -> tuple[Tensor, Tensor]:
    scale = model.config.dflash_config.get("input_embedding_scale", 1.0)
    block, places = target.get_input_embeddings()(BLOCK_TOKENS) * scale, torch.arange(TEXT + BLOCK)[None]
    hidden = model(target_hidden=case.features[None], noise_embedding=block, position_ids=places)
    if isinstance(model, SpecForge):
        logits = model.apply_logits_head(target.lm_head(hidden), prev_token_ids=case.before, hidden_states=hidden)[0]
        return logits, model.predict_confidence(hidden, prev_token_ids=case.before)[0, :, None].sigmoid()
    if isinstance(model, DFlash2DraftModel):
        return model.propose(hidden[:, 1:], BLOCK_TOKENS[:, 0], target.lm_head, 0.0)[0][0], NOTHING
    return model.compute_logits(hidden[:, 1:], target.lm_head)[0], NOTHING


def _of_muse(model: Model, target: Model, case: Case) -> tuple[Tensor, Tensor]:
    cache = DFlashCache(config=model.config)
    cache.set_previous_accepted_tokens(TEXT)
    output = model(
        noise_embeds=target.get_input_embeddings()(BLOCK_TOKENS), context_hidden_states=case.features[None],
        position_ids=torch.arange(TEXT + BLOCK)[None], cache=cache,
    )  # fmt: skip
    return target.lm_head(output.last_hidden_state[0, 1:]), NOTHING


def _of_speculator(model: Any, case: Case) -> tuple[Tensor, Tensor]:
    """Draft by the forward pass of its training, over a text with one anchor: the token behind the features."""
    length = TEXT + 2 * BLOCK
    features = torch.cat([case.features, torch.randn(2 * BLOCK, case.features.shape[1])])[None]
    tokens, mask = torch.full((1, length), BONUS), torch.zeros(1, length)
    mask[:, TEXT] = 1
    hidden, logits, *_ = model._backbone_forward(
        features, tokens, mask, torch.randn(1, length, WIDTH), torch.zeros(1, length, dtype=torch.int64), max_anchors=1
    )
    first = 0 if model.config.sample_from_anchor else 1
    hidden, logits = hidden[:, first:], logits[:, first:]
    if isinstance(model, SpeculatorsDFlash2):
        candidates, scores = model.candidate_selector.select(logits, hidden, case.before)
        return torch.full_like(logits, -torch.inf).scatter(2, candidates, scores)[0], NOTHING
    if not isinstance(model, DSparkDraftModel):
        return logits[0], NOTHING
    logits = logits + model.markov_head.block_bias(prev_token_ids=case.before, hidden_states=hidden)
    own = [model.markov_head.prev_embeddings(case.before)] if model.config.confidence_head_with_markov else []
    return logits[0], model.confidence_head(torch.cat([hidden, *own], -1))[0, :, None].sigmoid()


def _compare(folder: Path, kind: str, target: Model, model: Model, said: Said) -> float:
    """Return the largest difference from the library's logits, relative to its largest logit."""
    target.save_pretrained(folder / "target")
    model.save_pretrained(folder / "head")
    models = f"target: {{model: target}}\ndrafter: {{kind: {kind}, model: head}}"
    (folder / "recipe.yaml").write_text(f"name: compared\n{models}\ncache: {{max_length: 64, prefill_chunk: 16}}\n")
    context = drafter_context(open_round(make_plan(load_recipe(folder))).draft)
    slots = context.drafter.tokens
    case = Case(torch.randn(TEXT, len(TAPS) * WIDTH), torch.randint(0, VOCABULARY, (slots - 1,)).tolist())
    expected, sure = said(case)
    if expected.dtype == torch.int64:  # a chain of its own, which ours must follow
        ours = _found(context, kind, case._replace(drafts=expected[:-1].tolist()))
        return 0.0 if all(torch.equal(each.argmax(-1), expected) for each, _ in ours) else float("inf")
    if "d2t" in context.head.tensors:
        ids = torch.arange(len(model.d2t)) + model.d2t
        expected = torch.full((slots, VOCABULARY), -torch.inf).index_copy(1, ids, expected)
    is_there = expected.isfinite()
    largest = expected[is_there].abs().max()
    worst = 0.0
    for logits, its in _found(context, kind, case):
        assert torch.equal(logits.isfinite(), is_there), "other candidates"
        worst = max(worst, float((logits[is_there] - expected[is_there]).abs().max() / largest))
        worst = max(worst, float((its - sure).abs().max()) if kind == "dspark" else 0.0)
    return worst


def _found(context: DrafterContext, kind: str, case: Case) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits over the target's tokens, and confidences, of the reference and of the module."""
    known, reference = [*[0] * TEXT, BONUS], module_of(kind, "reference")
    fed = DrafterInputs(known, case.features.numpy(), known[1:])
    sure = reference.confidences(context)(fed, case.drafts)[:, None] if kind == "dspark" else NOTHING
    yield torch.tensor(reference.teachers(context)[0](fed, case.drafts)), torch.as_tensor(sure)
    yield _of_module(context, kind, case)


def _of_module(context: DrafterContext, kind: str, case: Case) -> tuple[Tensor, Tensor]:
    drafter = module_of(kind, "drafter").make(context)
    assert isinstance(drafter, FixedDrafter)
    states, reader, length = [torch.zeros(state.shape) for state in drafter.states()], drafter.reader, 0
    for rows in ROUNDS:
        path = torch.full((1, rows + 2), BONUS)  # one row of padding
        features = torch.cat([case.features[length : length + rows], torch.randn(1, case.features.shape[1])])[None]
        count, catch_up = torch.tensor([rows]), torch.arange(rows + 2)
        reading = reader.begin(Accepted(path, count, torch.tensor([length]), catch_up, features), states)
        states, length = reading.commit(), length + rows
    unused, logits = torch.zeros(1, 1, dtype=torch.int64), [reading.logits]
    sure = [reader.confidence(reading, reading.logits)]
    for depth, draft in enumerate(case.drafts, 1):
        logits.append(reading.forward_drafts(torch.tensor([[draft]]), depth, unused.bool(), unused))
        sure.append(reader.confidence(reading, logits[-1]))
    found = torch.cat(logits, 1)[0]
    if reader.vocabulary is not None:
        found = torch.full((len(found), VOCABULARY), -torch.inf).index_copy(1, reader.vocabulary.ids, found)
    return found, torch.cat(sure)


if __name__ == "__main__":
    sys.exit(main())
