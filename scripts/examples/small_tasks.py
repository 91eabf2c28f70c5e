"""Three small tasks for targets with an encoder, each learned here in about a minute: correction, translation, speech.

    python -m scripts.examples.small_tasks TASK FOLDER [STEPS]

trains a model, and writes it with a recipe and a file of prompts into a folder: what `speccompile compare` takes.

correction: a Pegasus that writes a text again, and replaces the corrector's wrong forms
translation: an M2M100 that writes numbers of one or two digits in words
speech: a Whisper that hears sentences in the listener's tones, a tenth of a second a word, in noise
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from scripts.examples import corrector, listener

Pair = tuple[list[int], list[int]]
"""Source and answer, both with their ends."""

START, END, UNKNOWN = range(3)
SPECIAL = ["<s>", "</s>", "<unk>"]
SHAPE: dict[str, Any] = {
    "d_model": 64, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "dropout": 0.0,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 128,
    "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_dropout": 0.0,
    "pad_token_id": UNKNOWN, "bos_token_id": START, "eos_token_id": END, "decoder_start_token_id": START,
    "forced_eos_token_id": None, "forced_bos_token_id": None, "init_std": 0.125, "scale_embedding": True,
}  # fmt: skip
ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBERS = [*SPECIAL, *"0123456789", ",", *ONES, *TENS]
PROMPTS, BATCH, SECONDS = 8, 16, 3
SIZES = {key for key in SHAPE if key.endswith(("_model", "_layers", "_heads", "_dim"))} | {"init_std"}
"""Keys that the hearer has of the others."""


def in_words(number: int) -> list[str]:
    """Return a number from 0 to 99 in words."""
    if number < len(ONES):
        return [ONES[number]]
    return [TENS[number // 10 - 2], *([ONES[number % 10]] if number % 10 else [])]


def translation(random: np.random.Generator) -> Pair:
    """Return some numbers in digits and in words."""
    numbers = [int(random.integers(100)) for _ in range(random.integers(3, 9))]
    sides: tuple[list[str], list[str]] = ([], [])
    for number in numbers:
        sides[0].extend((*str(number), ","))
        sides[1].extend((*in_words(number), ","))
    source, answer = ([*(NUMBERS.index(word) for word in side[:-1]), END] for side in sides)
    return source, answer


def correction(random: np.random.Generator) -> Pair:
    """Return a text of random words, one in twenty of them in a wrong form, and the text that it should be."""
    count = int(random.integers(3, 41))
    wrong = random.random(count) < 0.05
    ends = np.where(wrong, len(corrector.VOCABULARY), corrector.WRONG)
    source = [*random.integers(np.where(wrong, corrector.WRONG, corrector.FIRST), ends).tolist(), END]
    return source, corrector.corrected(source)


def padded(rows: list[list[int]], value: int) -> Tensor:
    """Return the rows as int64 [rows, longest]."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


def batches(make: Callable[[np.random.Generator], Pair]) -> Iterator[dict[str, Tensor]]:
    """Make batches of texts without end."""
    random = np.random.default_rng(0)
    while True:
        sources, answers = zip(*(make(random) for _ in range(BATCH)), strict=True)
        tokens = padded(list(sources), UNKNOWN)
        lengths = torch.tensor([[len(row)] for row in sources])
        yield {
            "input_ids": tokens, "attention_mask": (torch.arange(tokens.shape[1]) < lengths).long(),
            "decoder_input_ids": padded([[START, *row[:-1]] for row in answers], UNKNOWN),
            "labels": padded(list(answers), -100),
        }  # fmt: skip


def train(model: PreTrainedModel, given: Iterator[dict[str, Tensor]], steps: int) -> float:
    """Train a model, and return the share of the tokens of one more batch that it then predicts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.1)
    model.train()
    for step in range(steps):
        texts = next(given)
        labels = texts.pop("labels")
        loss = cross_entropy(model(**texts).logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % 100 == 99:
            print(f"step {step + 1}, loss {loss.item():.4f}", file=sys.stderr, flush=True)
    texts = next(given)
    labels = texts.pop("labels")
    with torch.no_grad():
        best = model.eval()(**texts).logits.argmax(-1)
    return float((best == labels)[labels >= 0].float().mean())


def save_tokenizer(vocabulary: list[str], folder: Path) -> None:
    """Write a tokenizer of words, which closes each text with its end."""
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {SPECIAL[END]}", special_tokens=[(SPECIAL[END], END)])
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[END], "unk_token": SPECIAL[UNKNOWN]}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))


@torch.no_grad()
def make_copier(config: dict[str, Any]) -> PegasusForConditionalGeneration:
    """Return a model whose attention to the source begins around the place in the answer: else it would take
    thousands of steps to find out that places matter."""
    changed = {"encoder_attention_heads": 1, "decoder_attention_heads": 1, "scale_embedding": False}
    model = PegasusForConditionalGeneration(PegasusConfig(**config | changed))
    for layer in model.model.decoder.layers:
        for projection in (layer.encoder_attn.q_proj, layer.encoder_attn.k_proj):
            projection.weight.copy_(2.5 * torch.eye(config["d_model"]))
    return model


def make_reader(task: str, folder: Path, steps: int) -> float:
    """Train the corrector or the translator."""
    make, vocabulary = (correction, corrector.VOCABULARY) if task == "correction" else (translation, NUMBERS)
    config = {**SHAPE, "vocab_size": len(vocabulary)}
    torch.manual_seed(1)
    model = make_copier(config) if task == "correction" else M2M100ForConditionalGeneration(M2M100Config(**config))
    share = train(model, batches(make), steps)
    model.save_pretrained(folder / "model")
    save_tokenizer(vocabulary, folder / "model")
    random = np.random.default_rng(1)
    sources = sorted((make(random)[0] for _ in range(4 * PROMPTS)), key=len)[-PROMPTS:]
    lines = [json.dumps({"prompt": " ".join(vocabulary[token] for token in source[:-1])}) for source in sources]
    write(folder, task, lines, {"source": {"max_length": 100}, "cache": {"max_length": 100}})
    return share


def said(random: np.random.Generator) -> list[str]:
    """Return words that a sound says: twenty or more, in sentences of few kinds."""
    found: list[str] = []
    while len(found) < 20:
        who, other = random.choice(["man", "woman", "child"], 2)
        verb = random.choice(["sees", "hears", "comes to", "goes from"])
        found += ["the", str(who), *str(verb).split(), "the", str(other), "and"]
    return found[:-1]


def make_hearer(folder: Path, steps: int) -> float:
    """Train the hearer: a model of the listener's shape, from random weights."""
    listener.make_listener(folder / "model")
    extractor = WhisperFeatureExtractor(feature_size=listener.MELS, chunk_length=SECONDS)
    extractor.save_pretrained(folder / "model")
    random = np.random.default_rng(2)

    def sound(words: list[str]) -> np.ndarray:
        heard = listener.speak(words)
        return heard + 0.02 * random.standard_normal(len(heard)).astype(np.float32)

    texts = [said(random)[: random.integers(8, 25)] for _ in range(400)]
    heard = torch.from_numpy(
        np.stack([extractor(sound(each), sampling_rate=listener.RATE).input_features[0] for each in texts])
    )
    begin = [listener.START, listener.EN, listener.TRANSCRIBE, listener.NO_TIMES]
    answers = [[listener.IDS[word] for word in each] + [listener.END] for each in texts]

    def batch(chosen: Sequence[int]) -> dict[str, Tensor]:
        return {
            "input_features": heard[list(chosen)],
            "decoder_input_ids": padded([begin + answers[n][:-1] for n in chosen], listener.END),
            "labels": padded([[-100] * (len(begin) - 1) + answers[n] for n in chosen], -100),
        }

    torch.manual_seed(1)
    made = WhisperForConditionalGeneration.from_pretrained(folder / "model")
    sizes = {key: value for key, value in SHAPE.items() if key in SIZES}
    made.config.update(sizes | {"max_source_positions": SECONDS * listener.ROWS_PER_WORD * 10})
    model = WhisperForConditionalGeneration(made.config)
    model.generation_config = made.generation_config
    held_out = range(len(texts) - BATCH, len(texts))
    learnt = (batch(random.choice(held_out.start, BATCH).tolist()) for _ in range(steps))
    share = train(model, chain(learnt, [batch(held_out)]), steps)
    model.save_pretrained(folder / "model")
    lines = []
    for number in range(PROMPTS):
        listener.write_sound(said(random)[:20], folder / f"{number}.wav")
        lines.append(json.dumps({"audio": f"{number}.wav", "language": "en"}))
    write(folder, "speech", lines, {"cache": {"max_length": 48}})
    return share


def write(folder: Path, task: str, lines: list[str], keys: dict[str, object]) -> None:
    """Write the recipe and the file of prompts."""
    recipe = {"name": task, "target": {"model": "model"}, "drafter": {"kind": "prompt_lookup"}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe | keys, sort_keys=False))
    (folder / "prompts.jsonl").write_text("".join(f"{line}\n" for line in lines))


def make_task(task: str, folder: Path, steps: int) -> float:
    """Train the model of a task in a folder, and return the share of tokens that it predicts."""
    (folder / "model").mkdir(parents=True, exist_ok=True)
    return make_hearer(folder, steps) if task == "speech" else make_reader(task, folder, steps)


if __name__ == "__main__":
    name, path, *count = sys.argv[1:]
    print(f"{name}: predicts {make_task(name, Path(path), int(*count or (1000,))):.1%} of the tokens")
