"""Words of messages."""


def counted(number: int, word: str) -> str:
    """Return a number with its noun: "1 round", "2 rounds"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
