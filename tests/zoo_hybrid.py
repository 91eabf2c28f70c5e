"""Rows of the zoo with layers that carry a state: convolutions and linear recurrences, alone, beside attention, or both
in one layer. Sizes that `zoo.SIZES` does not give, so small that every state still has several heads and groups."""

from typing import Any

FULL, LINEAR = "full_attention", "linear_attention"

_MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_chunk_size": 8}

HYBRIDS: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {
        "layer_types": [LINEAR, FULL], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    },
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"], "num_local_experts": 0, "shared_intermediate_size": 96, **_MAMBA_2
    },
    "falcon_h1": {"mamba_d_ssm": 128, **_MAMBA_2},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 2, "chunk_size": 8},
    "falcon_mamba": {"state_size": 8, "expand": 1},
}  # fmt: skip
"""Model type -> settings: Gated DeltaNet and Mamba 2, each beside attention; both in every layer; Mamba 2 alone;
Mamba 1 alone with norms inside its mixer."""
