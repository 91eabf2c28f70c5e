#!/usr/bin/env python3
"""The demo's target, a small Llama that writes Python, and the texts that its drafters learn from.

    .venv/bin/python scripts/demo_target.py texts             # build/demo-texts: what recipes/demo*/train.yaml read
    .venv/bin/python scripts/demo_target.py target --steps 3334 --output build/demo-target

The text is the standard library of the Python that runs this script, tests included; one file in fifty is held out.
Prompts are whole lines from the beginning of a function or class on, or from anywhere; `texts` writes those of the
training half, which the target answers in `speccompile train`, and the held-out ones of the demo: the prompts of its
proofs, and passages on which precisions are measured. Like the library they are under the PSF licence.
"""

import argparse
import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY, SEQUENCE, BATCH, POSITIONS = 4096, 256, 16, 2048
PEAK_RATE, SMALLEST = 2e-3, {"min_lr_rate": 0.05}
PROMPTS = 24576
END = "<|endoftext|>"
# Tables rather than programs: they would teach the models nothing that looks like Python.
LEFT_OUT = {"site-packages", "pydoc_data", "encodings", "__pycache__", "data", "turtledemo"}


def library_files() -> Iterator[tuple[str, str]]:
    """Yield the relative name and text of every source file of the standard library, in a fixed order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if LEFT_OUT.isdisjoint(name.parts):
            try:
                yield name.as_posix(), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # test files of other encodings


def is_held_out(name: str) -> bool:
    """Return True for about one file in fifty, by its name alone, so that the split is the same on every machine."""
    return hashlib.blake2b(name.encode(), digest_size=4).digest()[0] % 50 == 0


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE with one special token, which is beginning, end and padding at once."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END, model_max_length=POSITIONS
    )


class Passages(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """So many windows of one stream of all texts, the end token after each text, drawn by a seed."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: list[str], count: int, seed: int) -> None:
        end = tokenizer.convert_tokens_to_ids(END)
        rows = tokenizer.backend_tokenizer.encode_batch(texts)
        self.stream = np.concatenate([np.array([*row.ids, end], np.int64) for row in rows])
        self.starts = np.random.default_rng(seed).integers(0, len(self.stream) - SEQUENCE, count)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        start = self.starts[index]
        tokens = torch.from_numpy(self.stream[start : start + SEQUENCE])
        return {"input_ids": tokens, "labels": tokens}


def train_target(texts: list[str], steps: int, seed: int, output: Path, resume: bool) -> None:
    """Train the model, and write it and its tokenizer to `output`."""
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(texts)
    shape = {"hidden_size": 256, "num_hidden_layers": 5, "intermediate_size": 480}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, **shape, **heads, **ends)
    )
    arguments = TrainingArguments(
        output_dir=str(output.with_name(f"{output.name}-checkpoints")), max_steps=steps, seed=seed,
        per_device_train_batch_size=BATCH, learning_rate=PEAK_RATE, lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs=SMALLEST, warmup_steps=100, weight_decay=0.1, adam_beta2=0.95, max_grad_norm=1.0,
        save_steps=250, save_total_limit=1, logging_steps=50, report_to="none",
    )  # fmt: skip
    training = Trainer(model, arguments, train_dataset=Passages(tokenizer, texts, steps * BATCH, seed))
    training.train(resume_from_checkpoint=resume)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


class Lines:
    """Texts of whole lines, by their tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, random: np.random.Generator) -> None:
        self.tokenizer, self.random = tokenizer, random

    def count(self, text: str) -> int:
        return len(self.tokenizer(text)["input_ids"])

    def text_of(self, lines: list[str], starts: list[int], most: int) -> str:
        """Return the lines from one of the starts on that have at most so many tokens."""
        text = ""
        for line in lines[int(self.random.choice(starts)) :]:
            if self.count(text + line) > most:
                break
            text += line
        return text

    def demo_prompts(self, texts: list[str], count: int) -> list[str]:
        """Return beginnings of functions and classes, 16 to 96 tokens long, one a file."""
        found = (self._prompt(texts[index], 1.0) for index in self.random.permutation(len(texts)))
        return [text for text in found if text][:count]

    def passages(self, texts: list[str], count: int) -> list[str]:
        """Yield passages that begin at a function or a class, of 192 to SEQUENCE tokens, one a file. None is longer
        than the texts that the models were trained on: behind that length their loss rises, whatever their
        precision."""
        found = []
        for index in self.random.permutation(len(texts)):
            lines = texts[index].splitlines(keepends=True)
            if starts := [i for i, line in enumerate(lines) if line.startswith(("def ", "class "))]:
                found.append(self.text_of(lines, starts, SEQUENCE))
        return [text for text in found if self.count(text) >= 192][:count]

    def training_prompts(self, texts: list[str], count: int, left_out: list[str]) -> Iterator[str]:
        """Return prompts of files drawn by their lengths; of beginnings of functions and classes, and some of any line.
        Not what is in `left_out` as well: files copy from each other."""
        shares = np.array([len(text) for text in texts], float)
        while count:
            text = self._prompt(texts[self.random.choice(len(texts), p=shares / shares.sum())], 0.6)
            if text and not any(text in each or each in text for each in left_out):
                count -= 1
                yield text

    def _prompt(self, text: str, share: float) -> str | None:
        """Return a prompt of a file, with that chance from a beginning of something on. None where none is long
        enough."""
        lines = text.splitlines(keepends=True)
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
        if self.random.random() >= share:
            starts = list(range(len(lines)))
        if not starts:
            return None
        found = self.text_of(lines, starts, int(self.random.integers(32, 97)))
        return found.rstrip() if self.count(found) >= 16 else None


def shipped(name: str) -> list[str]:
    """Return texts that the demo is judged by."""
    lines = (ROOT / "recipes/demo" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


def write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    print(f"{path}: {len(texts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["texts", "target"])
    parser.add_argument("--steps", type=int, default=3334, help="of the target's training")
    parser.add_argument("--output", type=Path, help="build/demo-texts, or build/demo-target")
    parser.add_argument("--target", type=Path, default=ROOT / "recipes/demo/target", help="whose tokens are counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on with the target from its last checkpoint")
    args = parser.parse_args()
    files = list(library_files())
    learnt, held_out = ([text for name, text in files if is_held_out(name) is wanted] for wanted in (False, True))
    output = args.output or ROOT / "build" / f"demo-{args.what}"
    if args.what == "target":
        train_target(learnt, args.steps, args.seed, output, args.resume)
        return
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.target)
    lines = [Lines(tokenizer, np.random.default_rng((args.seed, part))) for part in range(3)]
    chosen = {"prompts": lines[1].demo_prompts(held_out, 20), "held_out": lines[2].passages(held_out, 16)}
    judged = [text for texts in chosen.values() for text in texts] + shipped("prompts") + shipped("held_out")
    chosen["training"] = list(lines[0].training_prompts(learnt, PROMPTS, judged))
    for name, texts in chosen.items():
        write(output / f"{name}.jsonl", texts)


if __name__ == "__main__":
    main()
