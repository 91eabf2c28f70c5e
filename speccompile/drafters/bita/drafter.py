"""BiTA: the target reads the bonus token and mask tokens after it; only the mask tokens attend to a trained prefix."""

from pathlib import Path

import torch
from torch import Tensor, nn

from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.target_masks import MaskReader
from speccompile.drafters.bita.dialects import INNER, MASKS, OUTER, PREFIX
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.weights import load_head
from speccompile.errors import UnsupportedModelError
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain. Raise UnsupportedModelError for a target with sliding-window attention."""
    masks, prefix = parts(context.head)
    target = check_windows(context.target(), context.target_files.folder)
    return token_by_token(context, MaskReader(target, masks[: context.drafter.tokens - 1], prefix))


def check_windows(target: Decoder, folder: Path) -> Decoder:
    """Return the target. Raise UnsupportedModelError if it has sliding-window attention."""
    if not any(layer.window for layer in target.layers):
        return target
    raise UnsupportedModelError(
        f"received the target in {folder}, whose attention has a window, expected one without: BiTA does not say "
        "whether its prefix is seen from beyond",
        hint="use another drafter for this target",
    )


class Trained(nn.Module):
    """Trained parameters of the checkpoint."""

    def __init__(self, head: HeadPlan) -> None:
        super().__init__()
        self.count, self.heads, self.width = (
            int(head.switches[name] or 0) for name in ("mask_num", "key_heads", "head_dim")
        )
        shapes = {name: source.shape for name, source in head.tensors.items()}
        self.mask_tokens = nn.Embedding(*shapes[MASKS])
        self.prefix_encoder = nn.ModuleDict({"embedding": nn.Embedding(*shapes[PREFIX])})
        if f"{INNER}.weight" in shapes:
            (inner, hidden), (rows, _) = shapes[f"{INNER}.weight"], shapes[f"{OUTER}.weight"]
            self.prefix_encoder["trans"] = nn.Sequential(nn.Linear(hidden, inner), nn.Tanh(), nn.Linear(inner, rows))

    def masks(self) -> Tensor:
        """Return the embeddings of the mask tokens, float32 [L, H]."""
        return self.mask_tokens.weight.expand(self.count, -1)

    def prefix(self) -> list[Tensor]:
        """Return key and value float32 [G, P, D] of every layer in turn (P-tuning v2, Liu et al. 2021)."""
        rows = self.prefix_encoder["embedding"].weight
        if "trans" in self.prefix_encoder:
            rows = self.prefix_encoder["trans"](rows)
        prefix = rows.view(len(rows), -1, self.heads, self.width).permute(1, 2, 0, 3)
        return [each.contiguous() for each in prefix]


@torch.no_grad()
def parts(head: HeadPlan) -> tuple[Tensor, list[Tensor]]:
    """Return mask tokens and prefix, with the prefix's projection applied: it does not depend on the input."""
    trained = load_head(Trained(head), head)
    return trained.masks(), trained.prefix()
