#!/usr/bin/env python3
"""Train the demo pair: a small Llama target and a smaller drafter with one tokenizer, on Python's own library.

    .venv/bin/python scripts/train_demo.py 60                 # minutes: 60 % target, 40 % drafter
    .venv/bin/python scripts/train_demo.py 60 --resume        # go on after an interruption
    .venv/bin/python scripts/train_demo.py --texts-only       # prompts.jsonl and held_out.jsonl again, no training

The text is the standard library of the Python that runs this script, tests included; one file in fifty is held out.
The drafter learns from the target's probabilities (distillation), because it is asked to guess the target, not the
text. Everything random comes from `--seed`; the number of steps still depends on the machine, because the budget is
time. What was reached is written to `training.json`, beside the two folders in Hugging Face layout.

The prompts, and the passages on which the quality of precisions is measured, come from the held-out files. Like the
library they are under the PSF licence.
"""

import argparse
import hashlib
import json
import math
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, SEQUENCE, BATCH, POSITIONS = 4096, 256, 16, 2048
END = "<|endoftext|>"
SHAPES = {
    "target": {"hidden_size": 256, "num_hidden_layers": 5, "intermediate_size": 480, "num_attention_heads": 4},
    "drafter": {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 256, "num_attention_heads": 2},
}
SHARE_OF_TIME = {"target": 0.6, "drafter": 0.4}
PEAK_RATE = {"target": 2e-3, "drafter": 3e-3}
# Tables rather than programs: they would teach the models nothing that looks like Python.
LEFT_OUT = {"site-packages", "pydoc_data", "encodings", "__pycache__", "data", "turtledemo"}


def library_files() -> Iterator[tuple[str, str]]:
    """Relative name and text of every source file of the standard library, in a fixed order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if LEFT_OUT.isdisjoint(name.parts):
            try:
                yield name.as_posix(), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # test files of other encodings


def is_held_out(name: str) -> bool:
    """True for about one file in fifty, by its name alone, so that the split is the same on every machine."""
    return hashlib.blake2b(name.encode(), digest_size=4).digest()[0] % 50 == 0


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with one special token, which is beginning, end and padding at once."""
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


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> np.ndarray:
    """All texts as one int64 stream, the end token after each."""
    end = tokenizer.convert_tokens_to_ids(END)
    rows = tokenizer.backend_tokenizer.encode_batch(texts)
    return np.concatenate([np.array([*row.ids, end], np.int64) for row in rows])


def new_model(role: str, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    shape = SHAPES[role]
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=POSITIONS,
            num_key_value_heads=max(1, shape["num_attention_heads"] // 2),
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            **shape,
        )
    )


def batch_at(stream: np.ndarray, seed: int, step: int, device: str) -> torch.Tensor:
    """[BATCH, SEQUENCE + 1] tokens; a function of seed and step alone, so that resuming repeats nothing."""
    starts = np.random.default_rng((seed, step)).integers(0, len(stream) - SEQUENCE - 1, BATCH)
    return torch.from_numpy(np.stack([stream[s : s + SEQUENCE + 1] for s in starts])).to(device)


def next_token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats. logits [B, T, V], tokens [B, T + 1]."""
    return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def distillation_loss(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(target || drafter), mean over positions, in nats (Hinton et al. 2015; DistillSpec's forward KL)."""
    wanted = functional.log_softmax(teacher.float(), -1)
    got = functional.log_softmax(logits.float(), -1)
    return functional.kl_div(got, wanted, log_target=True, reduction="none").sum(-1).mean()


class Training:
    """One model on its way: the optimizer, the clock, and the file from which it can be resumed."""

    def __init__(self, role: str, model: LlamaForCausalLM, seconds: float, seed: int, state: Path, device: str) -> None:
        self.role, self.model, self.seconds, self.seed, self.state = role, model.to(device), seconds, seed, state
        self.device = device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1)
        self.step, self.elapsed = 0, 0.0

    def resume(self) -> None:
        if self.state.exists():
            saved = torch.load(self.state, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.elapsed = saved["step"], saved["elapsed"]
            print(f"{self.role}: resumed at step {self.step}, {self.elapsed:.0f} s", file=sys.stderr)

    def save(self) -> None:
        saved = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        part = self.state.with_suffix(".part")
        torch.save({**saved, "step": self.step, "elapsed": self.elapsed}, part)
        part.replace(self.state)

    def rate(self) -> float:
        """Warm-up over 100 steps, then a cosine to a twentieth of the peak, by the share of time used."""
        used = min(1.0, self.elapsed / self.seconds)
        return PEAK_RATE[self.role] * min(1.0, (self.step + 1) / 100) * (0.525 + 0.475 * math.cos(math.pi * used))

    def run(self, stream: np.ndarray, loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """Train until the time is used. loss_of(logits, tokens) is a scalar."""
        shown, kept, started = 0.0, self.elapsed, time.monotonic() - self.elapsed
        while self.elapsed < self.seconds:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            tokens = batch_at(stream, self.seed, self.step, self.device)
            with low_precision(self.device):
                loss = loss_of(self.model(tokens[:, :-1]).logits, tokens)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step, self.elapsed = self.step + 1, time.monotonic() - started
            if self.elapsed - shown > 15:
                shown = self.elapsed
                print(f"{self.role}: {self.elapsed:.0f}/{self.seconds:.0f} s, step {self.step}, loss {loss.item():.3f}")
                sys.stdout.flush()
            if self.elapsed - kept > 120:
                kept = self.elapsed
                self.save()
        self.save()


def low_precision(device: str) -> torch.autocast:
    """bfloat16 where the processor multiplies it natively, else float32."""
    native = device == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.autocast(device, dtype=torch.bfloat16, enabled=native)


@torch.no_grad()
def held_out_figures(
    target: LlamaForCausalLM, drafter: LlamaForCausalLM, stream: np.ndarray, device: str
) -> dict[str, float]:
    """Held-out loss of both in nats per token, and how often their argmax is the same."""
    target_loss = drafter_loss = same = count = 0.0
    for start in range(0, min(len(stream), 100_000) - SEQUENCE * 8 - 1, SEQUENCE * 8):
        rows = [stream[start + i * SEQUENCE : start + (i + 1) * SEQUENCE + 1] for i in range(8)]
        tokens = torch.from_numpy(np.stack(rows)).to(device)
        a, b = target(tokens[:, :-1]).logits, drafter(tokens[:, :-1]).logits
        target_loss += next_token_loss(a, tokens).item()
        drafter_loss += next_token_loss(b, tokens).item()
        same += (a.argmax(-1) == b.argmax(-1)).float().mean().item()
        count += 1
    figures = {"target_loss": target_loss / count, "drafter_loss": drafter_loss / count, "same_argmax": same / count}
    return {name: round(value, 4) for name, value in figures.items()}


def prompts_from(tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, count: int) -> list[str]:
    """Beginnings of functions and classes in held-out files, 32 to 96 tokens long, one a file."""
    random = np.random.default_rng(seed)
    found: list[str] = []
    for index in random.permutation(len(texts)):
        lines = texts[index].splitlines(keepends=True)
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
        if not starts:
            continue
        start = int(random.choice(starts))
        text, wanted = "", random.integers(32, 97)
        for line in lines[start:]:
            if text and len(tokenizer(text + line)["input_ids"]) > wanted:
                break
            text += line
        if 16 <= len(tokenizer(text)["input_ids"]) <= 96:
            found.append(text.rstrip())
    return found[:count]


def passages_from(tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, count: int) -> list[str]:
    """Whole lines of held-out files from some function or class on, 192 to SEQUENCE tokens long, one a file.

    No longer than what the models were trained on: behind it their loss rises, whatever their precision.
    """
    random = np.random.default_rng((seed, 1))
    found: list[str] = []
    for index in random.permutation(len(texts)):
        lines = texts[index].splitlines(keepends=True)
        starts = [i for i, line in enumerate(lines) if line.startswith(("def ", "class "))]
        if not starts:
            continue
        text = ""
        for line in lines[int(random.choice(starts)) :]:
            if len(tokenizer(text + line)["input_ids"]) > SEQUENCE:
                break
            text += line
        if len(tokenizer(text)["input_ids"]) >= 192:
            found.append(text)
    return found[:count]


def write_texts(tokenizer: PreTrainedTokenizerFast, held_out: list[str], seed: int, output: Path) -> None:
    """prompts.jsonl and held_out.jsonl, a function of the held-out files, the tokenizer and the seed."""
    texts = {
        "prompts": prompts_from(tokenizer, held_out, seed, 20),
        "held_out": passages_from(tokenizer, held_out, seed, 16),
    }
    for name, found in texts.items():
        (output / f"{name}.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", help="time budget for both models together")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "recipes" / "demo")
    parser.add_argument("--state", type=Path, default=Path("build") / "train_demo", help="where it can be resumed from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--texts-only", action="store_true", help="choose the texts of --output again, train nothing")
    args = parser.parse_args()
    if args.minutes is None and not args.texts_only:
        parser.error("give a time budget in minutes, or --texts-only")
    files = list(library_files())
    train, held_out = [t for n, t in files if not is_held_out(n)], [t for n, t in files if is_held_out(n)]
    if args.texts_only:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.output / "target")
        write_texts(tokenizer, held_out, args.seed, args.output)
        return
    torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args.state.mkdir(parents=True, exist_ok=True)

    tokenizer = train_tokenizer(train)
    stream, held_out_stream = encode(tokenizer, train), encode(tokenizer, held_out)
    print(f"{len(train)} files, {len(stream)} tokens to learn; {len(held_out)} files, {len(held_out_stream)} held out")

    trained: dict[str, LlamaForCausalLM] = {}

    def taught(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            teacher = trained["target"](tokens[:, :-1]).logits
        return distillation_loss(logits, teacher)

    steps = {}
    for role, loss in (("target", next_token_loss), ("drafter", taught)):
        seconds = args.minutes * 60 * SHARE_OF_TIME[role]
        state = args.state / f"{role}.pt"
        training = Training(role, new_model(role, args.seed), seconds, args.seed, state, device)
        if args.resume:
            training.resume()
        training.run(stream, loss)
        trained[role], steps[role] = training.model.eval(), training.step

    figures = held_out_figures(trained["target"], trained["drafter"], held_out_stream, device)
    report = {"minutes": args.minutes, "seed": args.seed, "threads": args.threads, "steps": steps, **figures}
    for role, model in trained.items():
        model.cpu().save_pretrained(args.output / role, safe_serialization=True)
        tokenizer.save_pretrained(args.output / role)
    write_texts(tokenizer, held_out, args.seed, args.output)
    (args.output / "training.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
