"""The training of a head until its time is used: Muon for the matrices, AdamW for the rest."""

import math
import time
from typing import Any

import numpy as np
import torch
from head import Head
from target import Target
from texts import KEPT_BACK, SEQUENCE, TEXTS
from torch import Tensor
from train_demo import low_precision

BATCH, PROMPT_WEIGHT = 16, 0.25
MUON_RATE, ADAM_RATE = 6e-3, 1e-3
OVER_TOKENS = ("lm_head", "embed_tokens", "markov")  # matrices with a row for every token, which AdamW trains


def train(head: Head, target: Target, texts: dict[str, Tensor], seconds: float, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    is_matrix = {n: p.ndim == 2 and not any(word in n for word in OVER_TOKENS) for n, p in head.named_parameters()}
    matrices, others = ([p for n, p in head.named_parameters() if is_matrix[n] is wanted] for wanted in (True, False))
    muon = torch.optim.Muon(matrices, weight_decay=0.02, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    step, elapsed, shown, started, losses = 0, 0.0, 0.0, time.monotonic(), []
    while elapsed < seconds:
        share = min(1.0, (step + 1) / 50) * (0.51 + 0.49 * math.cos(math.pi * elapsed / seconds))
        for optimizer, peak in ((muon, MUON_RATE), (adam, ADAM_RATE)):
            optimizer.param_groups[0]["lr"] = peak * share * head.rate
        rows = torch.from_numpy(np.random.default_rng((seed, step)).integers(0, TEXTS - KEPT_BACK, BATCH))
        weights = torch.where(torch.arange(SEQUENCE) + 1 >= texts["prompts"][rows, None], 1.0, PROMPT_WEIGHT)
        with low_precision("cpu"):
            loss = head.loss(target.read(texts["tokens"][rows]), weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer in (muon, adam):
            optimizer.step()
        head.zero_grad(set_to_none=True)
        losses.append(loss.item())
        step, elapsed = step + 1, time.monotonic() - started
        if elapsed - shown > 15:
            shown = elapsed
            loss_now, name = np.mean(losses[-30:]), type(head).__name__
            print(f"{name}: {elapsed:.0f}/{seconds:.0f} s, step {step}, loss {loss_now:.3f}", flush=True)
    marks = [round(float(np.mean(part)), 4) for part in np.array_split(losses, 10)]
    return {"minutes": round(seconds / 60, 2), "seed": seed, "threads": torch.get_num_threads(), "steps": step,
            "sequences": step * BATCH, "losses": marks}  # fmt: skip
