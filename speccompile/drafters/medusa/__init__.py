"""Medusa (Cai et al. 2024): a head for every token ahead, all on the target's last hidden state."""

from speccompile.drafters.family import FIXED, HEAD, Family, Training, certain, sampled
from speccompile.drafters.medusa.dialects import DIALECTS, MEDUSA_2, VLLM
from speccompile.drafters.medusa.reading import read
from speccompile.drafters.medusa.sizes import SIZES
from speccompile.drafters.target import final_norm, norm_alone

FAMILY = Family(
    "medusa",
    "Medusa: a head for every token ahead, all of them on the target's last hidden state",
    ("model", "revision", "tokens", "sample", "tree"),
    (
        certain(FIXED, ("exact",)),
        sampled(FIXED, ("exact",)),
        certain(FIXED, ("typical", "top_k")),
        certain(("chain",), ("lenience",)),
        sampled(("chain",), ("lenience",)),
    ),
    weights=HEAD,
    needs={"model": ("the folder of the heads", "demo/head")},
    graphs="separate",
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes=SIZES,
        dialects=(VLLM,),
        depth=4,
        taps=final_norm,
        vocabulary=True,
        bounded=True,
        refusal=norm_alone,
        unwritable={MEDUSA_2: "its heads lie among the weights of the target, which were trained with them"},
    ),
)
