"""Words of messages."""

from collections.abc import Collection

COMMANDS_ELSEWHERE = {
    "benchmark": "bench", "compile": "build", "convert": "build", "export": "build", "help": "--help",
    "ls": "cache", "prompt": "run", "pull": "run", "quantize": "build", "version": "--version",
}  # fmt: skip
"""Words of other programs' command lines -> the nearest of ours. `speccompile-native` has them from here."""


def options_elsewhere() -> dict[str, str]:
    """Return options that are called as keywords of transformers and of OpenAI's clients -> the nearest of ours."""
    from speccompile.machine.keywords import ELSEWHERE

    return {_option(word): _option(ours) for word, ours in ELSEWHERE.items()}


def option_elsewhere(word: str, known: Collection[str]) -> str | None:
    """Return the option among `known` that has this name in another program, None for another word."""
    ours = options_elsewhere().get(word)
    return ours if ours in known else None


def _option(keyword: str) -> str:
    return f"--{keyword.replace('_', '-')}"


def counted(number: int, word: str) -> str:
    """Return a number with its noun: "1 round", "2 rounds"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
