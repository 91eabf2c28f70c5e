"""Train larger versions of the demo's drafters, and print a row for each: python scripts/gpu/drafters.py

Each gets the same time. A row: what was trained, its steps, and its new tokens a round in chains, the bonus token
included: simulated over the target's own held-out text, and compiled and run on the processor.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = (
    "train.schedule.batch_size=128",
    "train.schedule.warmup=100",
    "train.data.answers.by=transformers",
    "train.data.answers.batch_size=256",
)


@dataclass(frozen=True)
class Drafter:
    """Training of a drafter. recipe: path of the training recipe; sizes: overrides that enlarge the drafter."""

    recipe: str
    sizes: tuple[str, ...]


DRAFTERS = {
    "model": Drafter("recipes/demo/train.yaml", ("train.shape={layers: 4}",)),
    "eagle3": Drafter("recipes/demo-eagle3/train.yaml", ("train.shape={intermediate_size: 1024}", "train.depth=6")),
    "medusa": Drafter("recipes/demo-medusa/train.yaml", ("train.shape={layers: 4, projection: own}",)),
    "dflash": Drafter("recipes/demo-dflash/train.yaml", ("train.shape={layers: 5}",)),
}


def settings(kind: str, seconds: float, output: Path) -> list[str]:
    """Return the overrides of a drafter's recipe, as KEY=VALUE."""
    own = (f"train.schedule.seconds={seconds}", f"drafter.model={(output / kind).resolve()}")
    return [*COMMON, *DRAFTERS[kind].sizes, *own]


def trained(kind: str, seconds: float, output: Path) -> dict[str, object]:
    """Train a drafter, and return the report of `speccompile train`."""
    command = [sys.executable, "-m", "speccompile", "train", str(ROOT / DRAFTERS[kind].recipe), "--json", "--restart"]
    command += ["--work", str(output / f"{kind}-work")]
    for each in settings(kind, seconds, output):
        command += ["--set", each]
    report: dict[str, object] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of each training")
    parser.add_argument("--only", default=",".join(DRAFTERS), help="of " + ", ".join(DRAFTERS))
    parser.add_argument("--output", type=Path, default=ROOT / "build/gpu-drafters")
    args = parser.parse_args()
    asked = args.only.split(",")
    if unknown := [each for each in asked if each not in DRAFTERS]:
        parser.error(f"--only: received {', '.join(unknown)}, expected some of {', '.join(DRAFTERS)}")
    print(f"{'drafter':<10}{'steps':>8}{'simulated':>11}{'compiled':>10}")
    for kind in asked:
        report = trained(kind, args.seconds, args.output)
        best = report["best"]
        assert isinstance(best, dict)
        print(f"{kind:<10}{report['steps']:>8}{best['simulated']:>11.3f}{best['compiled']:>10.3f}", flush=True)


if __name__ == "__main__":
    main()
