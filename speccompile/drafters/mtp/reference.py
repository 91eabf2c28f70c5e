"""Reference: MTP's formula (DeepSeek-V3, section 2.2) over the whole text without a cache, by transformers' layers.

The numbering is the paper's: row p of layer k is (output of layer k - 1 at p, token p + k + 1), for every p of a text.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from speccompile.bundle.media import AXES
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.compiler.step.layers import find_layers
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import following
from speccompile.drafters.mtp.layer import MtpLayer, load_layers
from speccompile.drafters.mtp.layouts import PLAIN
from speccompile.drafters.mtp.reading import count_layers
from speccompile.drafters.probe import before_norm, flipped
from speccompile.drafters.small import WEIGHTS, small_layers, write_small
from speccompile.drafters.target import NORM
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import LayerShape


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the MTP layers between the target's embedding and head."""
    head, layers = context.head, load_layers(context.head, context.target_files.folder, context.shape.max_length)
    axes = context.inputs.media.axes if context.inputs.media else ()
    for layer in layers:
        layer.model.set_attn_implementation("eager")
        for module in layer.model.modules() if axes else ():
            if hasattr(module, "mrope_section"):  # the decoder's own config has none, as texts need none
                module.mrope_section = [axes.count(axis) for axis in range(AXES)]

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        n, found = len(fed.following), list[Tensor]()
        embedded = [following(fed, drafts, layer.model.get_input_embeddings()) for layer in layers]
        x = torch.tensor(fed.features)
        rows: list[tuple[Tensor, Tensor]] = []  # of every layer: inputs, and the next tokens' embeddings
        for draft in range(len(drafts) + 1):
            number = draft % len(layers)
            if draft == number:
                rows.append((x, embedded[number][draft : draft + n]))
            else:  # recycled outputs of drafts: a row after all others, at its position
                before, own = rows[number]
                gap = n + draft - 1 - number - len(before)
                missing = torch.cat([own.new_zeros(gap, own.shape[1]), embedded[number][n + draft - 1][None]])
                rows[number] = (
                    torch.cat([before, x.new_full((gap, x.shape[1]), NONE), x[-1:]]),
                    torch.cat([own, missing]),
                )
            places = positions_of(fed, len(rows[number][0]))
            x, said = run(layers[number], *rows[number], places, head)
            found.append(said)
        return torch.stack(found).numpy()

    return [logits]


def positions_of(fed: DrafterInputs, count: int) -> Tensor:
    """Return transformers' positions of the first `count` tokens, int64 [1, count], or [3, 1, count] on three axes."""
    if fed.pictures is None or fed.pictures.positions is None:
        return torch.arange(count)[None]
    return torch.tensor(fed.pictures.positions[:, None, :count])


def run(layer: MtpLayer, x: Tensor, embedded: Tensor, places: Tensor, head: HeadPlan) -> tuple[Tensor, Tensor]:
    """Run a layer over rows [n, H] and the next tokens' embeddings [n, H]. places: see `positions_of`. Return the
    fed-back outputs [n, H] and the last row's logits [V]. Rows of NONE are masked out.
    """
    is_there, embedded = x[:, 0] != NONE, layer.enorm(embedded)
    parts = [layer.hnorm(x), embedded] if head.switches["hidden_first"] else [embedded, layer.hnorm(x)]
    last = f"layers.{len(find_layers(layer.model)) - 1}.output"
    taps = Taps(layer.model, (NORM if head.switches.get("norm_feedback") else last,))
    with taps.open():
        said = layer.model(
            inputs_embeds=layer.eh_proj(torch.cat(parts, -1))[None], position_ids=places,
            attention_mask=is_there[None].long(), use_cache=False,
        ).logits  # fmt: skip
    return taps.features()[0], said[0, -1].float()


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Write as many layers in Llama's architecture for a small target. Return their plan."""
    kind: LayerShape = small_layers(_LLAMA, hidden_size)
    shapes: dict[str, tuple[int, ...]] = {}
    for number in range(count_layers(head)):
        own = {"enorm": (hidden_size,), "hnorm": (hidden_size,), "eh_proj": (hidden_size, 2 * hidden_size)}
        own |= {"norm": (hidden_size,)} if "norm_feedback" in head.switches else {}
        shapes |= {f"{number}.{name}.weight": shape for name, shape in own.items()}
        shapes |= {f"{number}.{name}": shape for name, shape in kind.tensors(0).items()}
    return replace(
        head, dialect=PLAIN.name, folder=folder, files=(Path(WEIGHTS),), taps=(NORM,), hidden_size=hidden_size,
        vocabulary_size=vocabulary_size, tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return plans with other readings of the settings that implementations disagree on: the order of the
    concatenation, and whether features and fed-back outputs are normed."""
    return {**before_norm(head, layers), **flipped(head, *head.switches)}


NONE = 1e6
"""Fill value of missing rows: larger than any feature."""
_LLAMA = LayerShape(64, 48, 2, 1, 16, 1e-6, "silu", {"rope_type": "default", "rope_theta": 10000.0}, 64, (0,))
