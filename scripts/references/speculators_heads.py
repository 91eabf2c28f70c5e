#!/usr/bin/env python3
"""Compare EAGLE-3 and P-EAGLE heads with the speculators library, which trains them: its own folders, its own numbers.

    python -m venv FOLDER && FOLDER/bin/pip install -e .[compile] openai datasets loguru pytest
    FOLDER/bin/pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0   # it declares an older transformers
    FOLDER/bin/python scripts/references/speculators_heads.py                  # exit code 1 where the logits differ

Heads with random weights are saved by speculators and read as a recipe would. Its logits, of every step after every row
of a random text, are compared with those of the method's reference, and of its module as the graph is made of it.
The other way round, heads that `speccompile train` exports are loaded by speculators, in the same environment:
`FOLDER/bin/python -m pytest tests/train/test_speculators.py`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig, core
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, Qwen3Config

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.network import DraftNetwork
from speccompile.drafters import module_of
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.weights import load_head
from speccompile.recipe import load_recipe, make_plan

WIDTH, VOCABULARY, OWN, ROWS, STEPS, MASK = 32, 96, 40, 9, 3, 7
TOLERANCE = 1e-4
"""Of the largest logit."""
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": VOCABULARY, "max_position_embeddings": 128,
}  # fmt: skip


@dataclass(frozen=True)
class Text:
    """features float32 [T, 3H] of its tokens, and the tokens behind them int64 [T + STEPS]."""

    features: Tensor
    following: Tensor


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    worst = 0.0
    for layers, (residual, output) in product((1, 2), product((False, True), repeat=2)):
        switches = {"norm_before_residual": residual, "norm_output": output}
        for more in ({}, {"norm_before_fc": True}, {"fc_norm": True}):
            worst = max(worst, check_eagle3(LlamaConfig, layers, switches | more))
    worst = max(worst, check_eagle3(Qwen3Config, 1, {}))
    for kind, layers, residual in product((LlamaConfig, Qwen3Config), (1, 2), (False, True)):
        worst = max(worst, check_p_eagle(kind, layers, {"norm_before_residual": residual}))
    print(f"largest difference: {worst:.2e} of the largest logit, {TOLERANCE:.0e} allowed")
    return 0 if worst <= TOLERANCE else 1


def check_eagle3(kind: type[PreTrainedConfig], layers: int, switches: dict[str, bool]) -> float:
    """Return the largest difference from the library's logits, which it makes for all rows at once, step after step."""
    model = Eagle3DraftModel(_config(Eagle3SpeculatorConfig, "eagle3", kind, layers, switches)).eval()
    _fill(model)
    text = _text()
    with _logits(model) as said, torch.no_grad():
        model(text.features[None], text.following[None, :ROWS], _document(), ttt_steps=STEPS)
    # Its last rows lack the tokens behind the text.
    expected = {row: torch.stack([step[0, row] for step in said]) for row in range(ROWS - STEPS)}
    return _compare("eagle3", model, f"{kind.__name__}, {layers} layers, {switches}", text, expected)


def check_p_eagle(kind: type[PreTrainedConfig], layers: int, switches: dict[str, bool]) -> float:
    """Return the same, where a row and the masks behind it are one pass of the library's, of which it takes samples."""
    model = PEagleDraftModel(
        _config(PEagleSpeculatorConfig, "peagle", kind, layers, switches, mask_token_id=MASK)
    ).eval()
    _fill(model)
    text, sampled, sample = _text(), list[tuple[Tensor, Tensor]](), core.generate_cod_sample_indices

    def recorded(*arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
        sampled.append(sample(*arguments, **named))
        return sampled[-1]

    with (
        _logits(model) as said,
        mock.patch.object(core, "generate_cod_sample_indices", recorded),
        mock.patch.object(core, "compute_metrics", return_value=(None, {})),  # the loss needs Triton
        torch.no_grad(),
    ):
        model(
            text.features[None], text.following[None, :ROWS], _document(), num_depths=STEPS, down_sample_ratio=1.0,
            verifier_last_hidden_states=torch.zeros(1, ROWS, WIDTH),
        )  # fmt: skip
    (rows, depths), expected = sampled[0], dict[int, Tensor]()
    for row in range(ROWS):
        places = [int(place) for d in range(STEPS) for place in ((rows == row) & (depths == d)).nonzero()]
        expected |= {row: said[0][0, places]} if len(places) == STEPS else {}
    return _compare("p_eagle", model, f"{kind.__name__}, {layers} layers, {switches}", text, expected)


def _compare(kind: str, model: torch.nn.Module, what: str, text: Text, expected: dict[int, Tensor]) -> float:
    """Return the largest difference of ours from the logits [STEPS, Vd] behind each row, of the largest logit."""
    with TemporaryDirectory() as folder:
        context = _context(Path(folder), model, kind)
        (teacher,) = module_of(kind, "reference").teachers(context)
        reader, ids = _reader(kind, context), torch.arange(OWN) + model.d2t
        worst = [0.0, 0.0]
        for row, wanted in expected.items():
            known, drafts = [0, *text.following[: row + 1].tolist()], text.following[row + 1 : row + STEPS].tolist()
            whole = teacher(DrafterInputs(known, text.features[: row + 1].numpy(), known[1:]), drafts)
            ours = (torch.from_numpy(np.asarray(whole))[:, ids], _read(reader, known, text.features, drafts))
            for place, each in enumerate(ours):
                worst[place] = max(worst[place], float((each - wanted).abs().max() / wanted.abs().max()))
    print(f"{kind}: {what}: {len(expected)} rows, reference {worst[0]:.1e}, module {worst[1]:.1e}")
    assert expected, "the library gave no row with all its steps"
    return max(worst)


def _reader(kind: str, context: DrafterContext) -> DraftNetwork:
    drafter = module_of(kind, "drafter")
    if kind == "eagle3":
        reader: DraftNetwork = drafter.load_reader(context)
        return reader
    reader = load_head(drafter.PEagleReader(context.head, context.shape, context.ends(), STEPS - 1), context.head)
    reader.fold()
    return reader


@torch.no_grad()
def _read(reader: DraftNetwork, known: list[int], features: Tensor, drafts: list[int]) -> Tensor:
    """Return logits [1 + drafts, Vd] in one round that commits the whole text, which has some padding behind it."""
    n_path, window = len(known) - 1, ROWS
    path = torch.zeros(1, window + 1, dtype=torch.int64)
    path[0, : len(known)] = torch.tensor(known)
    lengths = torch.tensor([n_path]), torch.tensor([0])
    states = [torch.zeros(state.shape, dtype=state.dtype) for state in reader.states()]
    reading = reader.begin(Accepted(path, *lengths, torch.arange(window + 1), features[None, :window]), states)
    found = [reading.logits[0]]
    for depth, draft in enumerate(drafts, 1):
        ancestors = torch.ones(1, 1, depth, dtype=torch.bool)
        found.append(
            reading.forward_drafts(torch.tensor([[draft]]), depth, ancestors, torch.zeros(1, 1, dtype=torch.int64))[0]
        )
    return torch.cat(found)


def _context(folder: Path, model: torch.nn.Module, kind: str) -> DrafterContext:
    """Return the head as speculators saves it, beside a random target, planned as a recipe is."""
    target = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=4, bos_token_id=None, eos_token_id=None))
    target.save_pretrained(folder / "target")
    model.save_pretrained(folder / "head")
    (folder / "recipe.yaml").write_text(
        f"name: compared\ntarget: {{model: target}}\ndrafter: {{model: head, tokens: {STEPS}}}\n"
        "cache: {max_length: 64}\n"
    )
    plan = make_plan(load_recipe(folder))
    assert plan.drafter.kind == kind, plan.drafter.kind
    return drafter_context(open_round(plan).draft)


def _config(config: Any, name: str, kind: Any, layers: int, switches: dict[str, bool], **more: Any) -> Any:
    layer = kind(**SIZES, num_hidden_layers=layers)
    layer._attn_implementation = "eager"
    return config(
        transformer_layer_config=layer, draft_vocab_size=OWN, eagle_aux_hidden_state_layer_ids=[1, 2, 3], **switches,
        **more,
        speculators_config=SpeculatorsConfig(
            algorithm=name, proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
    )  # fmt: skip


@torch.no_grad()
def _fill(model: torch.nn.Module) -> None:
    """Set random weights, and every other token as its own vocabulary."""
    for parameter in model.parameters():
        parameter.normal_(std=0.3) if parameter.dim() > 1 else parameter.normal_(mean=1.0, std=0.1)
    ids = 2 * torch.arange(OWN) + 1
    model.d2t.copy_(ids - torch.arange(OWN))
    model.t2d.zero_()
    model.t2d[ids] = True


def _text() -> Text:
    return Text(torch.randn(ROWS, 3 * WIDTH), torch.randint(0, VOCABULARY, (ROWS + STEPS,)))


def _document() -> Tensor:
    return torch.zeros(1, ROWS, dtype=torch.int64)


@contextmanager
def _logits(model: torch.nn.Module) -> Iterator[list[Tensor]]:
    """Yield what the head says while this is open, one entry a call."""
    said = list[Tensor]()
    hook = model.lm_head.register_forward_hook(lambda module, given, output: said.append(output.detach()))
    try:
        yield said
    finally:
        hook.remove()


if __name__ == "__main__":
    sys.exit(main())
