"""Layouts of MTP layers among a target's tensors, and their names.

Normalised names of MTP layer k: `<k>.enorm`, `<k>.hnorm` and `<k>.eh_proj` (which join embedding and hidden state),
`<k>.norm` (before the head), `<k>.embed_tokens`, `<k>.head` (mostly copies of the target's) and `<k>.layers.<j>.*` (the
decoder layer, by the target's names). All MTP layers share tensors without a number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speccompile.drafters.dialects import Dialect
from speccompile.plan.head import HeadFolder, TensorSource

JOIN = "eh_proj.weight"
"""Tensor of every MTP layer, separate or shared; quantized checkpoints may have another name suffix."""
_JOIN = re.compile(r"(?:\d+\.)?eh_proj\.\w+")

_OUTER = r"(?:model\.)?(?:language_model\.)?(?:model\.)?"

_PARTS = {
    rf"(?:{old})\.(\w+)": new
    for old, new in {
        r"enorm(?:\.m)?|embed_norm|token_layernorm": r"enorm.\1",
        r"hnorm(?:\.m)?|hidden_norm|hidden_layernorm": r"hnorm.\1",
        r"eh_proj|input_proj": r"eh_proj.\1",
        r"shared_head\.norm|final_layernorm|post_norm": r"norm.\1",
        r"shared_head\.(?:head|output)|lm_head": r"head.\1",
        r"embed_tokens|tok_embeddings": r"embed_tokens.\1",
    }.items()
} | {r"pre_mlp_layernorm\.(.+)": r"layers.0.post_attention_layernorm.\1", r"(.+)": r"layers.0.\1"}
"""Published name after the number of an MTP layer -> normalised name; other names belong to its decoder layer."""


@dataclass(frozen=True)
class Layout(Dialect):
    """A dialect whose tensors may lie among those of a whole model.

    layers: regular expression of the names of an MTP layer, with groups for its number and the rest. shared: regular
    expression of a name without a number -> normalised name. behind: numbers continue those of the target's layers.
    blocks: the number is of a block; all blocks form one MTP layer. hidden_first: eh_proj reads [hidden ; embedding]
    instead of [embedding ; hidden]. has_norm: there is a norm before the head. attention: type of the layers' attention
    in the target's `layer_types`, if not full attention.
    """

    layers: str = ""
    shared: Mapping[str, str] | None = None
    behind: bool = False
    blocks: bool = False
    hidden_first: bool = False
    has_norm: bool = True
    attention: str | None = None
    within: bool = True

    def evidence(self, folder: HeadFolder) -> str | None:
        """Return a description of the eh_proj tensor if it is present and the dialect's keys match, else None."""
        found = next((s.name for n, s in sorted(self.rename(folder).items()) if _JOIN.fullmatch(n)), None)
        if found is None or (self.keys and super().evidence(folder) is None):
            return None
        return f"tensor {found}"

    def rename(self, folder: HeadFolder) -> dict[str, TensorSource]:
        """Return the MTP layers' tensors by normalised names, without the target's."""
        first = target_layers(folder) if self.behind else 0
        renamed = ((self.ours(name, first), source) for name, source in folder.tensors.items())
        return {name: source for name, source in renamed if name is not None}

    def ours(self, published: str, first: int) -> str | None:
        """Return the normalised name of a tensor, or None for the target's. first: number of the first MTP layer."""
        for pattern, new in (self.shared or {}).items():
            match = re.fullmatch(pattern, published)
            if match:
                return match.expand(new)
        match = re.fullmatch(self.layers, published)
        if match is None or int(match[1]) < first:
            return None
        number, part = int(match[1]) - first, _part(match[2])
        if self.blocks:
            return f"0.{part.replace('layers.0.', f'layers.{number}.', 1)}"
        return f"{number}.{part}"


def _part(name: str) -> str:
    for pattern, new in _PARTS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(new)
    return name


def target_layers(folder: HeadFolder) -> int:
    """Return the target's number of layers in a config, or 2^30 if it does not say."""
    counts = (folder.value(key) for key in ("text_config.num_hidden_layers", "num_hidden_layers"))
    return next((count for count in counts if isinstance(count, int)), 1 << 30)


_ONE_LEVEL_UP = {
    r"(?:language_model\.)?mtp\.fc\.(.+)": r"eh_proj.\1",
    r"(?:language_model\.)?mtp\.pre_fc_norm_embedding\.(.+)": r"enorm.\1",
    r"(?:language_model\.)?mtp\.pre_fc_norm_hidden\.(.+)": r"hnorm.\1",
    r"(?:language_model\.)?mtp\.norm\.(.+)": r"norm.\1",
    r"(?:language_model\.)?mtp\.embed_tokens\.(.+)": r"embed_tokens.\1",
    r"(?:language_model\.)?mtp\.lm_head\.(.+)": r"head.\1",
}

LAYOUTS = (
    Layout("speculators", keys=("speculators_model_type=mtp",), layers=r"mtp_layers\.(\d+)\.(.+)", within=False,
           shared={r"embed_tokens\.(.+)": r"embed_tokens.\1", r"lm_head\.(.+)": r"head.\1"}),
    # MiMo 7B, and Hunyuan's later models.
    Layout("MiMo", layers=rf"{_OUTER}mtp_layers\.(\d+)\.(.+)", hidden_first=True),
    Layout("ERNIE 4.5", layers=rf"{_OUTER}mtp_block\.(\d+)\.(.+)", has_norm=False, shared={
        rf"{_OUTER}mtp_emb_norm\.(\d+)\.(.+)": r"\1.enorm.\2",
        rf"{_OUTER}mtp_hidden_norm\.(\d+)\.(.+)": r"\1.hnorm.\2",
        rf"{_OUTER}mtp_linear_proj\.(\d+)\.(.+)": r"\1.eh_proj.\2",
    }),
    Layout("Inkling", layers=r"model\.mtp\.layers\.(\d+)\.(?:transformer_block\.)?(.+)", keys=("mtp_config",),
           refused="its MTP layers keep states of convolutions"),
    Layout("MiMo V2", layers=r"model\.mtp\.layers\.(\d+)\.(.+)", attention="sliding_attention"),
    Layout("Nemotron-H", layers=r"(?:language_model\.)?mtp\.layers\.(\d+)\.(.+)", blocks=True,
           keys=("mtp_hybrid_override_pattern",)),
    Layout("Nemotron-H", layers=r"(?:language_model\.)?mtp\.layers\.(\d+)\.(.+)", blocks=True,
           keys=("mtp_layers_block_type", "model_type=nemotron_h")),
    # Qwen 3.5 and Qwen3-Next; Mellum and EXAONE as well.
    Layout("Qwen 3.5", layers=r"(?:language_model\.)?mtp\.layers\.(\d+)\.(.+)", shared=_ONE_LEVEL_UP),
    # DeepSeek V3, GLM 4.5 and its kin, Hunyuan 3, Bailing, Step.
    Layout("DeepSeek", layers=rf"{_OUTER}layers\.(\d+)\.(?:transformer\.)?(.+)", behind=True),
)  # fmt: skip
"""Layouts in the order of recognition, each by the matrix that joins the embedding and the hidden state."""

DIALECTS = (
    *LAYOUTS,
    Dialect("MTP in a folder of its own", ("*MTP*",), refused="of such folders only those of speculators are compiled"),
)

PLAIN = Layout("our names")
"""Layout of the small layers that a proof writes."""

BY_NAME = {layout.name: layout for layout in (*LAYOUTS, PLAIN)}


def switches_of(layout: Layout, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the formula's switches: `hidden_first`, and `norm_feedback`, whether the fed-back output is normed."""
    section = config.get("transformer_layer_config")
    # The first release of speculators used Qwen 2's layers, with the hidden state first.
    early = not layout.within and isinstance(section, Mapping) and section.get("model_type") == "qwen2"
    said = config.get("mtp_hidden_states_first")
    hidden_first = said if isinstance(said, bool) else layout.hidden_first or early
    return {"hidden_first": hidden_first} | ({"norm_feedback": True} if layout.has_norm else {})
