"""Recipes of tiny models, one for each kind of drafter, and what transformers says about their targets."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccompile.compiler.build import build
from speccompile.compiler.prove.quality import engine_logits
from speccompile.index.files import SEPARATOR, tokenizer_hash
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.light.index_example import write_index
from tests.suite import counting
from tests.suite.selection import sweep_but

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
        """Return random token ids: one, around a prefill chunk, past two chunks; then a text that repeats."""
        random = np.random.default_rng(7)
        return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in PROMPT_LENGTHS] + [REPEATED]

    def reference(self, prompt: Sequence[int], new_tokens: int = NEW_TOKENS) -> list[int]:
        """Return transformers' own greedy continuation, an end token included."""
        key = (tuple(prompt), new_tokens)
        if key not in self._references:
            ids, eos = torch.tensor([list(prompt)]), list(self.bundle.manifest.eos_token_ids) or None
            output = self.target.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens, eos_token_id=eos
            )
            self._references[key] = output[0, ids.shape[1] :].tolist()
        return self._references[key]


def noisy(name: str, noise: float) -> PreTrainedModel:
    """Return a model that agrees with the one of the same name now and then."""
    model = zoo.model(name)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in model.parameters():
            parameter += noise * parameter.std() * torch.randn_like(parameter)
    return model


def end_tokens(name: str, *ends: int) -> list[int]:
    """Return tokens that end some continuations early: the one at `ends[i]` in that of the i-th long prompt."""
    prompts = Built(Path()).prompts()[2 : 2 + len(ends)]
    return [zoo_continuation(name, prompt)[end] for prompt, end in zip(prompts, ends, strict=True)]


def zoo_continuation(name: str, prompt: Sequence[int]) -> list[int]:
    """Return what a model of the zoo says greedily, with no token at which it ends."""
    ids = torch.tensor([list(prompt)])
    output = zoo.model(name).generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS
    )
    return output[0, ids.shape[1] :].tolist()


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


def _model_8(folder: Path) -> str:
    """Return a model whose window is longer than a chunk of the prefill."""
    save(one_layer("llama_tied"), folder / "target")
    return "drafter: {kind: model, model: target, tokens: 8}\ncache: {max_length: 96, prefill_chunk: 8}"


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
    "model_8": _model_8,
    "lookup_1": _lookup_1,
    "lookup_3": _lookup_3,
    "lookup_5": _lookup_5,
}
"""Name (drafter, and drafts per round or ngram) -> what writes the models and returns the rest of the recipe."""
FIRST = [name for name in RECIPES if name != "lookup_1"]
"""Those of the first tier."""


def each(names: Iterable[str] = RECIPES) -> list[Any]:
    """Return names as parameters of a test, those that are not in `FIRST` marked for the sweep."""
    return sweep_but(FIRST, names, "one more look-up in the text, of single tokens")


def _recycling(folder: Path) -> str:
    save(zoo.model("gpt2"), folder / "target")
    cache = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 3}"
    return f"drafter: {{kind: token_recycling, nodes: 8, top_k: 4}}\n{cache}"


def _retrieval(folder: Path) -> str:
    """Index some of what the target says, in two chunks, and the same with an end of its own; of the rest of its texts
    the index knows nothing."""
    save(zoo.model("gpt2"), folder / "target", eos=end_tokens("gpt2", 5, 19))
    said = [np.array([*prompt, *zoo_continuation("gpt2", prompt), SEPARATOR]) for prompt in Built(folder).prompts()[2:]]
    other = said[2].copy()
    other[-NEW_TOKENS // 2 - 1 : -1] ^= 1
    chunks = [np.concatenate(part).astype(np.uint32) for part in ([said[0], said[2]], [other, said[4]])]
    vocabulary = zoo.byte_tokenizer().backend_tokenizer.get_vocab(with_added_tokens=False)
    write_index(folder / "index", chunks, tokenizer_hash(vocabulary), zoo.VOCABULARY)
    drafter = "drafter: {kind: retrieval, index: index, match: [2, 8], tree: {depth: 3, nodes: 6}}"
    return f"{drafter}\ncache: {{max_length: 96, prefill_chunk: 16, batch_size: 3}}"


def _constrained(rest: str) -> Callable[[Path], str]:
    """Return a drafter that mostly says what the target does, and an end token at which grammars may end."""

    def write(folder: Path) -> str:
        save(zoo.model("gpt2"), folder / "target", eos=[zoo.PAD])
        save(noisy("gpt2", 0.02), folder / "drafter", eos=[zoo.PAD])
        cache = "cache: {max_length: 256, prefill_chunk: 16, batch_size: 3}"
        return f"drafter: {{kind: model, model: drafter, {rest}\nconstraints: true\n{cache}"

    return write


CONSTRAINED: dict[str, Callable[[Path], str]] = {
    "constrained_chain": _constrained("tokens: 2, sample: true}\ndecoding: sampling"),
    "constrained_tree": _constrained("tree: [2, 1]}\ngraphs: fused"),
    "constrained_dynamic": _constrained("tree: {depth: 2, top_k: 2, nodes: 5}}\ndecoding: sampling"),
}
"""The same, of bundles that take constraints: drafts that are drawn, that are certain, that make their tree."""


def each_constrained() -> list[Any]:
    """Return their names as parameters of a test or a fixture."""
    return sweep_but(("constrained_chain", "constrained_tree"), CONSTRAINED, "a bundle more, with a tree of its own")


OTHERS: dict[str, Callable[[Path], str]] = {"recycling": _recycling, "retrieval": _retrieval, **CONSTRAINED}
"""The same, of drafters that learn or are no graph's. Tests ask for them by name."""

PROVEN = ("model_1",)
"""Those that are built with their proof: it takes as long as the rest, and the tests compare with the reference."""


def make(name: str, folder: Path) -> None:
    """Make models, recipe and bundle of a name in RECIPES or OTHERS."""
    rest = (RECIPES | OTHERS)[name](folder)
    (folder / "recipe.yaml").write_text(f"name: {name}\ntarget: {{model: target}}\n{rest}\n")
    with counting.shared("tiny bundles"):
        build(make_plan(load_recipe(folder)), folder / "bundle", prove=name in PROVEN)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def window_logits(bundle, texts, width: int) -> np.ndarray:
    """Return a bundle's logits over texts, float32, two slots of which it reads in windows of so many tokens."""
    verify = next(graph for graph in bundle.manifest.graphs if graph.name == "verify")
    blocks = dict(engine_logits(bundle.engine, verify, texts, width, 2))
    return np.concatenate([blocks[start] for start in sorted(blocks)])
