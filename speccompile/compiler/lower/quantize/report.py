"""What became of the weights of a graph."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class QuantizeReport:
    """quantized: weight -> its format, as in "int4 in blocks of 32". left: weight -> why it is a float still."""

    quantized: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people: how many weights have which format, then those that were left, with their reasons."""
        counts = Counter(self.quantized.values()).items()
        formats = [f"{count} weight{'s' if count > 1 else ''}: {text}" for text, count in counts]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            reasons.setdefault(reason, []).append(name)
        left = [f"{len(names)} left ({reason}): {', '.join(names[:2])}{', ..' if len(names) > 2 else ''}"
                for reason, names in reasons.items()]  # fmt: skip
        return formats + left
