"""A plan of a training on the demo's target, chat templates, and files to learn from."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from speccompile.plan.plan import CheckpointFacts, ModelPlan
from speccompile.plan.training_plan import DataPlan, EvaluatePlan, LossPlan, SchedulePlan, TrainingPlan
from speccompile.train.data.corpus import Dataset

TARGET = Path(__file__).resolve().parents[2] / "recipes/demo/target"
VOCABULARY = 4096

TEXTS = [f"def function_{number}(self):\n    return {number} + self.value\n" for number in range(40)]

MARKED = (
    "{% for message in messages %}{{ '<' + message.role + '>' }}{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + eos_token }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}"
    "{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")


@cache
def _tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TARGET)


def tokenizer(template: str | None = None) -> PreTrainedTokenizerBase:
    """Return the demo's, with this chat template."""
    made = _tokenizer()
    made.chat_template = template
    return made


def plan(files: Iterable[Path | str], kind: str = "text", **keys: Any) -> TrainingPlan:
    """keys: of the plan's data, `taps`, `precision`, `vocabulary` and `target`."""
    size = keys.pop("vocabulary", VOCABULARY)
    facts = CheckpointFacts("LlamaForCausalLM", "llama", size, 2048, 5, (0,), 0, True, 256)
    folder = keys.pop("target", TARGET)
    weights = (Path("model.safetensors"),)
    taps, precision = tuple(keys.pop("taps", ())), keys.pop("precision", "float32")
    data = DataPlan(**{
        "kind": kind, "files": tuple(map(str, files)), "answers": "given", "temperature": 0.0, "max_new_tokens": 16,
        "batch_size": 8, "endpoint": None, "endpoint_model": None, "length": 64, "held_out": 0.2, "features": "online",
        "packing": "buckets", "last_turn": False,
    } | keys)  # fmt: skip
    return TrainingPlan(
        name="demo", kind="eagle3", target=ModelPlan("target", None, None, folder, weights, "float32", facts),
        max_length=256, output=folder, work=folder, begin=None, sizes={}, vocabulary=None, taps=taps, dialect="eagle3",
        depth=3, data=data, loss=LossPlan("fkl", 0.5, 0.0, "decay", 0.8, "target", 0.5, 8, None),
        schedule=SchedulePlan(10, None, 4, 1, "adamw", 1e-3, None, 0.0, 0, 0.1, 1.0, precision, False),
        evaluate=EvaluatePlan(60.0, 8, 3, False, 2, 16), save_every=60.0, keep=1, dtype="float32", seed=0,
    )  # fmt: skip


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Return a .jsonl file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chat(number: int, turns: int = 1) -> dict[str, Any]:
    """Return a conversation of so many questions and answers."""
    pairs = [
        ({"role": "user", "content": f"def f{number}_{turn}("}, {"role": "assistant", "content": f"return {number}"})
        for turn in range(turns)
    ]
    return {"messages": [message for pair in pairs for message in pair]}


def words(corpus: Dataset) -> list[str]:
    """Return the texts of a corpus, decoded."""
    return [tokenizer().decode(corpus.sample(number).tokens) for number in range(len(corpus))]


def both(pair: tuple[Dataset, Dataset]) -> list[str]:
    return sorted(words(pair[0]) + words(pair[1]))


def learnt(corpus: Dataset) -> list[str]:
    samples = [corpus.sample(number) for number in range(len(corpus))]
    return [tokenizer().decode(sample.tokens[sample.learnt]) for sample in samples]
