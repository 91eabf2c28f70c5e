"""Tiny checkpoint folders and recipes beside them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from speccompile.errors import SpeccompileError
from speccompile.plan.head import HeadPlan
from speccompile.plan.training_plan import TrainingPlan
from speccompile.recipe import Plan, Recipe, load_recipe
from speccompile.recipe.training import plan_training
from tests.light.suite_example import suite  # noqa: F401 - for tests in here

TRAINED = {"hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
           "intermediate_size": 64}  # fmt: skip
"""Sizes of the target whose drafter a recipe trains."""
WORDS = ("<s>", "</s>", "def", "return", "self", "import", "if", "else")


def _save_tokenizer(folder: Path, words: tuple[str, ...]) -> None:
    vocabulary = {word: token_id for token_id, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=words[0]))
    tokenizer.add_special_tokens(list(words[:2]))
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def make_checkpoint() -> Callable[..., Path]:
    """Write a checkpoint of a few hundred bytes; `words=None` leaves the tokenizer out, keywords go to the config."""

    def make(folder: Path, words: tuple[str, ...] | None = WORDS, **config: Any) -> Path:
        folder.mkdir(parents=True)
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(WORDS),
            "max_position_embeddings": 64,
            "eos_token_id": 1,
        } | config
        (folder / "config.json").write_text(json.dumps(config))
        weights = {"embed.weight": np.zeros((8, 4), np.float32), "norm.weight": np.ones(4, np.float16)}
        save_file(weights, folder / "model.safetensors")
        if words is not None:
            _save_tokenizer(folder, words)
        return folder

    return make


@pytest.fixture
def make_recipe(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Callable[..., Path]:
    """Write recipe.yaml, a mapping or YAML text, in `tmp_path` beside the checkpoints `target` and `drafter`."""
    for name in ("target", "drafter"):
        make_checkpoint(tmp_path / name)

    def make(text: str = "", **keys: Any) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text or yaml.safe_dump({"name": "demo", "target": {"model": "target"}} | keys))
        return path

    return make


@pytest.fixture
def read(plan: Callable[..., Plan]) -> Callable[..., HeadPlan]:
    """Return the head of what `plan` plans, which a test file says itself."""

    def read(**keys: Any) -> HeadPlan:
        head = plan(**keys).drafter.head
        assert head is not None
        return head

    return read


@pytest.fixture
def refusal(plan: Callable[..., Plan]) -> Callable[..., str]:
    """Return the message, beside which there is a hint, with which `plan` refuses."""

    def refusal(*arguments: Any, **keys: Any) -> str:
        with pytest.raises(SpeccompileError) as caught:
            plan(*arguments, **keys)
        assert caught.value.hint
        return str(caught.value)

    return refusal


@pytest.fixture
def written(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Callable[..., Recipe]:
    """Return a recipe over a target of eight layers, with a section `train` for which everything is there."""
    make_checkpoint(tmp_path / "target", **TRAINED)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("def return self\n")

    def write(*overrides: str, kind: str = "eagle3", **train: Any) -> Recipe:
        section = {"data": {"files": "docs"}, "schedule": {"seconds": 60}} | train
        keys = {"name": "t", "target": {"model": "target"}, "drafter": {"kind": kind, "model": "new"}}
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(keys | {"train": section}))
        return load_recipe(path, overrides)

    return write


@pytest.fixture
def planned(written: Callable[..., Recipe]) -> Callable[..., TrainingPlan]:
    return lambda *overrides, **train: plan_training(written(*overrides, **train))


@pytest.fixture
def refused(written: Callable[..., Recipe]) -> Callable[..., str]:
    """Return the message, beside which there is a hint, with which a training is refused."""

    def refused(*overrides: str, **train: Any) -> str:
        with pytest.raises(SpeccompileError) as caught:
            plan_training(written(*overrides, **train))
        assert caught.value.hint
        return str(caught.value)

    return refused


@pytest.fixture(scope="session")
def text() -> Any:
    """Return the toy bundles' tokenizer, open."""
    from tests.light.serve_example import toy_text

    return toy_text()


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Yield Chromium without a window, for the tests of a page."""
    from tests.light.page_example import chromium

    with chromium("--window-size=1000,800") as found:
        yield found
