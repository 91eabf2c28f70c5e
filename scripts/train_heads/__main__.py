"""Train drafter heads on the demo's frozen target. Three kinds come with the project: EAGLE-3, DFlash and Medusa.

    .venv/bin/python scripts/train_heads --eagle3 20 --dflash 15 --medusa 6 --threads 1     # minutes each
    .venv/bin/python scripts/train_heads --eagle 5 --hydra 4 --kangaroo 3 --dspark 5 --p-eagle 4 --pard 4
    .venv/bin/python scripts/train_heads --evaluate                                         # figures again

The heads learn what the target says about its own continuations, three quarters of them greedy, of passages from the
training half of Python's library (see train_demo.py; files held out there are held out here). The loss is soft cross
entropy towards the target's distribution, half of whose mass is moved to the target's best token, because that alone is
accepted by a greedy round. Matrices are trained with Muon, the rest with AdamW. The continuations are made first, in
four to eight minutes, and kept in `--state`. Everything random comes from `--seed`; the number of steps depends on the
machine, because the budget is time.

Written are recipes/demo-*/head, in bfloat16, in the dialects of SpecForge (EAGLE-3), z-lab (DFlash) and vLLM (Medusa),
and the other kinds in build/heads/*, in the dialects of vLLM (EAGLE), DeepSpec (DSpark), and the publications' own code
(Hydra, Kangaroo, P-EAGLE, and PARD, which goes on from the demo's drafter). Beside each head is training.json: steps,
losses, and new tokens per round on the demo's prompts (64 tokens, greedy, bonus included), found without a cache by
walking over the target's own text.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

sys.path.append(str(Path(__file__).parents[1]))  # where train_demo.py is, which the files beside this one import

from heads import KINDS, SHIPPED, load, new_head, save
from measure import measure
from medusa import Medusa
from target import FOLDER, RECIPES, Target
from texts import KEPT_BACK, kept_texts
from training import train


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in KINDS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, metavar="MINUTES", help="train this head so long"
        )
    parser.add_argument("--evaluate", action="store_true", help="measure the heads which are there")
    parser.add_argument("--output", type=Path, default=RECIPES, help="where demo-eagle3, .. are, with a head each")
    parser.add_argument("--others", type=Path, default=Path("build") / "heads", help="where all other heads are")
    parser.add_argument("--state", type=Path, default=Path("build") / "train_heads", help="where the texts are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def train_head(name: str, minutes: float, target: Target, texts: dict[str, Tensor], folder: Path, seed: int) -> None:
    """The head and its training.json, as yet without figures, are in the folder afterwards."""
    head = new_head(name, target, texts, seed)
    report = train(head, target, texts, minutes * 60, seed)
    if isinstance(head, Medusa):
        with torch.no_grad():
            report["tree"] = head.choose_tree(target, texts["tokens"][-KEPT_BACK:])
    save(head, folder)
    (folder / "training.json").write_text(json.dumps(report) + "\n")


def measure_head(name: str, target: Target, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Its figures are in its training.json afterwards."""
    report = json.loads((folder / "training.json").read_text())
    report["tokens_per_round"] = measure(load(name, target, folder), target, tokenizer)
    text = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in report.items())
    (folder / "training.json").write_text("{\n  " + text + "\n}\n")
    print(name, json.dumps(report))


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    target, tokenizer = Target(), PreTrainedTokenizerFast.from_pretrained(FOLDER)
    for name in KINDS:
        folder = args.output / f"demo-{name}" / "head" if name in SHIPPED else args.others / name
        minutes = getattr(args, name)
        if minutes is not None:
            texts = kept_texts(args.state, target, tokenizer, args.seed)
            train_head(name, minutes, target, texts, folder, args.seed)
        if minutes is not None or (args.evaluate and folder.exists()):
            measure_head(name, target, tokenizer, folder)


if __name__ == "__main__":
    main()
