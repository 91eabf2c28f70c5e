"""Report on the quantization of a graph's weights."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class QuantizeReport:
    """Quantized weights of a graph. quantized: weight -> its format, as in "int4 in blocks of 32". left: weight -> the
    reason why it stays a float."""

    quantized: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return lines for messages: number of weights in each format, then the unquantized ones with their reasons."""
        counts = Counter(self.quantized.values()).items()
        formats = [f"{count} weight{'s' if count > 1 else ''}: {text}" for text, count in counts]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.left.items():
            reasons.setdefault(reason, []).append(name)
        left = [f"{len(names)} left ({reason}): {', '.join(names[:2])}{', ..' if len(names) > 2 else ''}"
                for reason, names in reasons.items()]  # fmt: skip
        return formats + left
