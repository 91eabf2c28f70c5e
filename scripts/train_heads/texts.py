"""The texts the heads learn from: passages of Python's library, continued by the target."""

from pathlib import Path

import numpy as np
import torch
from target import Target
from torch import Tensor
from train_demo import is_held_out, library_files
from transformers import PreTrainedTokenizerFast

SEQUENCE, TEXTS = 160, 12288
KEPT_BACK = 256  # the last texts, of which nothing is learnt but Medusa's tree


def make_texts(target: Target, tokenizer: PreTrainedTokenizerFast, seed: int) -> dict[str, Tensor]:
    """tokens [TEXTS, SEQUENCE], continued by the target behind the first prompt [TEXTS] of them."""
    random = np.random.default_rng((seed, 7))
    torch.manual_seed(seed)
    library = [text.splitlines(keepends=True) for name, text in library_files() if not is_held_out(name)]
    shares = np.array([len(lines) for lines in library], float)
    tokens, prompts = [], []
    while len(tokens) * 256 < TEXTS:
        length, rows = int(random.integers(16, 97)), []
        while len(rows) < 256:
            lines = library[random.choice(len(library), p=shares / shares.sum())]
            starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
            start = int(random.choice(starts) if starts and random.random() < 0.6 else random.integers(len(lines)))
            ids = tokenizer("".join(lines[start : start + 40]))["input_ids"][:length]
            if len(ids) == length:
                rows.append(ids)
        temperature = torch.tensor([0.0, 0.0, 0.0, 0.8] * 64)[:, None]
        tokens.append(target.continued(torch.tensor(rows), SEQUENCE, temperature))
        prompts += [length] * 256
        print(f"texts: {len(prompts)}/{TEXTS}", flush=True)
    order = torch.from_numpy(random.permutation(len(prompts)))
    return {"tokens": torch.cat(tokens)[order], "prompts": torch.tensor(prompts)[order]}


def kept_texts(folder: Path, target: Target, tokenizer: PreTrainedTokenizerFast, seed: int) -> dict[str, Tensor]:
    """The texts in the folder, made where there are none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "texts.pt"
    if not kept.exists():
        torch.save(make_texts(target, tokenizer, seed), kept)
    return torch.load(kept, weights_only=True)
