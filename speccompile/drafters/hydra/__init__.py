"""Hydra and Hydra++ (Ankner et al. 2024): heads on the target's hidden state and all drafts before."""

from speccompile.drafters.family import GROWING, HEAD, Family, Training
from speccompile.drafters.hydra.dialects import DIALECTS, HYDRA, MLP, PREFIX_MLP
from speccompile.drafters.hydra.reading import read
from speccompile.drafters.sizes import Size
from speccompile.drafters.target import final_norm, norm_alone

FAMILY = Family(
    "hydra",
    "Hydra and Hydra++: a head for every token ahead, which reads the drafts before it as well",
    ("model", "revision", "tokens", "sample", "tree", "taps"),
    GROWING,
    weights=HEAD,
    needs={"model": ("the folder of the heads", "demo/head")},
    graphs="fused",
    dialects=DIALECTS,
    read=read,
    training=Training(
        sizes={"layers": Size(1), "arch": Size(MLP, words=(MLP, PREFIX_MLP))},
        dialects=(HYDRA,),
        depth=4,
        taps=final_norm,
        bounded=True,
        refusal=norm_alone,
    ),
)
