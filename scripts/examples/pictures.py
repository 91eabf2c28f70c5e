#!/usr/bin/env python3
"""Make pictures of charts, texts and shapes, and prompts that show them, for `speccompile bench` and `compare`.

pictures.py FOLDER [--count N] [--placeholder TEXT]
"""

import argparse
import json
import random
from pathlib import Path

from PIL import Image, ImageDraw

SIZES = ((640, 480), (480, 640), (768, 256))
COLOURS = ("firebrick", "steelblue", "seagreen", "goldenrod", "indigo")
WORDS = ("river", "stone", "market", "window", "garden", "letter", "morning", "bridge", "paper", "number", "silver")
ASKED = {"chart": "What does this chart show?", "text": "What is written here?", "shapes": "What is on this picture?"}


def chart(draw: ImageDraw.ImageDraw, width: int, height: int, dice: random.Random) -> None:
    """Draw bars above an axis."""
    bars = dice.randint(3, 7)
    step = (width - 80) // bars
    for bar in range(bars):
        left, top = 50 + bar * step, dice.randint(30, height - 80)
        draw.rectangle((left, top, left + step * 2 // 3, height - 50), fill=dice.choice(COLOURS))
        draw.text((left, height - 40), dice.choice(WORDS)[:4], fill="black")
    draw.line((40, height - 50, width - 20, height - 50), fill="black", width=2)


def text(draw: ImageDraw.ImageDraw, width: int, height: int, dice: random.Random) -> None:
    """Write lines of words."""
    for top in range(20, height - 30, 28):
        draw.text((20, top), " ".join(dice.choice(WORDS) for _ in range(width // 70)), fill="black", font_size=20)


def shapes(draw: ImageDraw.ImageDraw, width: int, height: int, dice: random.Random) -> None:
    """Draw circles and rectangles."""
    for _ in range(dice.randint(2, 6)):
        left, top, size = dice.randint(0, width - 60), dice.randint(0, height - 60), dice.randint(30, 200)
        drawn = dice.choice((draw.ellipse, draw.rectangle))
        drawn((left, top, min(left + size, width - 1), min(top + size, height - 1)), fill=dice.choice(COLOURS))


KINDS = {"chart": chart, "text": text, "shapes": shapes}


def write(folder: Path, count: int, placeholder: str = "") -> None:
    """Write so many pictures and prompts.jsonl. placeholder: text of the target that stands before each prompt."""
    folder.mkdir(parents=True, exist_ok=True)
    dice, lines = random.Random(0), []
    for number in range(count):
        kind, (width, height) = list(KINDS)[number % len(KINDS)], SIZES[number // len(KINDS) % len(SIZES)]
        picture = Image.new("RGB", (width, height), "white")
        KINDS[kind](ImageDraw.Draw(picture), width, height, dice)
        name = f"{kind}-{number}.png"
        picture.save(folder / name)
        lines.append(json.dumps({"prompt": f"{placeholder}{ASKED[kind]}", "images": [name]}))
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--placeholder", default="", help="the target's, where a picture belongs in the prompt")
    args = parser.parse_args()
    write(args.folder, args.count, args.placeholder)


if __name__ == "__main__":
    main()
