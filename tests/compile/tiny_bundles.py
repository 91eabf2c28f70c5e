"""Recipes of tiny models, one for each kind of drafter, and what transformers says about their targets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccompile.builder import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo

PROMPT_LENGTHS = (1, 2, 7, 16, 17, 33, 40)
NEW_TOKENS = 30
REPEATED = [17, 230, 45, 99, 101] * 6


@dataclass
class Built:
    """A bundle, and the folder of its recipe and models."""

    folder: Path
    _references: dict[tuple[tuple[int, ...], int], list[int]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / "bundle"

    @cached_property
    def bundle(self) -> Bundle:
        return Bundle.open(self.path, threads=1)

    @cached_property
    def target(self) -> PreTrainedModel:
        return AutoModelForCausalLM.from_pretrained(self.folder / "target", attn_implementation="eager").eval()

    def prompts(self) -> list[list[int]]:
        """Random token ids: one alone, around the chunk of the prefill, past two chunks; then a text that repeats."""
        random = np.random.default_rng(7)
        return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in PROMPT_LENGTHS] + [REPEATED]

    def reference(self, prompt: Sequence[int], new_tokens: int = NEW_TOKENS) -> list[int]:
        """transformers' own greedy continuation, an end token included."""
        key = (tuple(prompt), new_tokens)
        if key not in self._references:
            ids, eos = torch.tensor([list(prompt)]), list(self.bundle.manifest.eos_token_ids) or None
            output = self.target.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens, eos_token_id=eos
            )
            self._references[key] = output[0, ids.shape[1] :].tolist()
        return self._references[key]


def noisy(name: str, noise: float) -> PreTrainedModel:
    """A model that agrees with the one of the same name now and then."""
    model = zoo.model(name)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in model.parameters():
            parameter += noise * parameter.std() * torch.randn_like(parameter)
    return model


def end_tokens(name: str, *ends: int) -> list[int]:
    """Tokens that end the continuations of some prompts early: the one at `ends[i]` in that of the i-th long prompt."""
    model, built = zoo.model(name), Built(Path())
    continuations = [
        model.generate(torch.tensor([p]), attention_mask=torch.ones(1, len(p), dtype=torch.int64), do_sample=False,
                       max_new_tokens=NEW_TOKENS)[0, len(p):].tolist()
        for p in built.prompts()[2 : 2 + len(ends)]
    ]  # fmt: skip
    return [continuation[end] for continuation, end in zip(continuations, ends, strict=True)]


def save(model: PreTrainedModel, folder: Path, eos: list[int] | None = None, tokenizer: bool = True) -> None:
    model.config.eos_token_id = model.generation_config.eos_token_id = eos
    model.save_pretrained(folder)
    if tokenizer:
        zoo.byte_tokenizer().save_pretrained(folder)


def one_layer(name: str) -> PreTrainedModel:
    model = zoo.model(name)
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    return model


def _none(folder: Path) -> str:
    save(zoo.model("llama"), folder / "target", tokenizer=False)
    return "drafter: {kind: none}\ncache: {max_length: 96, prefill_chunk: 16}"


def _model_1(folder: Path) -> str:
    save(zoo.model("gpt2"), folder / "target")
    save(noisy("gpt2", 0.05), folder / "drafter")
    cache = "cache: {max_length: 256, prefill_chunk: 16, batch_size: 3}"
    return f"drafter: {{kind: model, model: drafter, tokens: 1}}\n{cache}\nprove: {{max_new_tokens: 16}}"


def _model_4(folder: Path) -> str:
    save(zoo.model("mistral"), folder / "target", eos=end_tokens("mistral", 5, 19))
    save(noisy("mistral", 0.03), folder / "drafter", eos=end_tokens("mistral", 5, 19))
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 3}"
    return f"drafter: {{kind: model, model: drafter, tokens: 4}}\n{cache}"


def _model_16(folder: Path) -> str:
    save(one_layer("llama_tied"), folder / "target")
    return "drafter: {kind: model, model: target, tokens: 16}\ncache: {max_length: 96, prefill_chunk: 16}"


def _lookup_1(folder: Path) -> str:
    save(zoo.model("opt"), folder / "target")
    cache = "cache: {max_length: 256, prefill_chunk: 16}"
    return f"drafter: {{kind: prompt_lookup, tokens: 16, ngram: 1}}\n{cache}"


def _lookup_3(folder: Path) -> str:
    save(zoo.model("gpt2"), folder / "target", eos=end_tokens("gpt2", 5, 19))
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 3}"
    return f"drafter: {{kind: prompt_lookup, tokens: 4, ngram: 3}}\n{cache}"


def _lookup_5(folder: Path) -> str:
    save(zoo.model("gpt2", seed=1), folder / "target")
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 3}"
    return f"drafter: {{kind: prompt_lookup, tokens: 1, ngram: 5}}\n{cache}"


RECIPES: dict[str, Callable[[Path], str]] = {
    "none": _none,
    "model_1": _model_1,
    "model_4": _model_4,
    "model_16": _model_16,
    "lookup_1": _lookup_1,
    "lookup_3": _lookup_3,
    "lookup_5": _lookup_5,
}
"""Name (drafter, and drafts per round or ngram) -> what writes the models and returns the rest of the recipe."""

PROVEN = ("model_1",)
"""Those that are built with their proof: it takes as long as the rest, and the tests compare with the reference."""


def make(name: str, folder: Path) -> None:
    """Models, recipe and bundle of a name in RECIPES."""
    rest = RECIPES[name](folder)
    (folder / "recipe.yaml").write_text(f"name: {name}\ntarget: {{model: target}}\n{rest}\n")
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=name in PROVEN)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
