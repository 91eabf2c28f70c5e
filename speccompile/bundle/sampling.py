"""Sampling options in one table, which every place that takes them reads: the runtime, the command line, HTTP, Triton,
and C++ (`scripts/sampling_header.py`). Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MIN_TEMPERATURE, PENALTY_RANGE = 1e-4, (1e-3, 1e3)
"""Lowest temperature above 0, and range of the repetition penalty: beyond these, logits exceed float32."""

_INFINITY, _SMALLEST, _LARGEST = float("inf"), 2.0**-126, (2 - 2**-23) * 2.0**127
"""Infinity, and the smallest and the largest normal float32."""

SEEDS = 2**64
"""Number of seeds."""

LOGIT_BIAS = "logit_bias"
"""Name of the option whose values are numbers by token."""

MOST_BIASES, LARGEST_BIAS = 1024, 100
"""Largest number of tokens of a logit bias, and its largest value: OpenAI's, which takes 300 tokens."""

ADJUSTED = "adjusted"
"""Name of the input that graphs have whose host writes logit biases, frequency and presence penalties."""


@dataclass(frozen=True, kw_only=True)
class SamplingOption:
    """A sampling option of one sequence."""

    kind: Literal["number", "count", "seed"] = "number"
    """Type of its values: float; int, a number of tokens of the vocabulary; int, which is not an input of graphs."""
    is_input: bool = True
    """False for a number that the host turns into others: see `ADJUSTED`."""
    neutral: float | None = None
    """Default, which changes nothing. None for a seed, which is drawn."""
    changes_greedy: bool = False
    """True if some values change greedy decoding. Greedy bundles accept the neutral value of such an option, and no
    value of other options."""
    least: float = 0
    greatest: float = _INFINITY
    expected: str
    """The range, in messages."""
    hint: str
    metavar: str
    """Placeholder of the value in the command line's help."""
    help: str
    http: Mapping[str, Any] | None = None
    """Rules of the field of HTTP requests as JSON Schema, where OpenAI's or vLLM's differ from these."""


def _penalty_of_new_text(help_text: str) -> SamplingOption:
    """Return the option of a penalty in OpenAI's range, which the host counts for tokens of the new text."""
    return SamplingOption(
        neutral=0.0,
        is_input=False,
        changes_greedy=True,
        least=-2,
        greatest=2,
        expected="a number from -2 to 2",
        hint="0 is none, more repeats less",
        metavar="F",
        help=help_text,
    )


SAMPLING_OPTIONS = {
    "temperature": SamplingOption(
        neutral=0.0,
        changes_greedy=True,
        greatest=_LARGEST,
        expected="a number from 0 on",
        hint="0 is greedy, 1 the target's own probabilities",
        metavar="T",
        help="0 is greedy decoding, 1 draws from the target's own probabilities.",
        http={
            "description": "1 by default, and 0 where the bundle was compiled for greedy decoding, which takes no "
            "other. Below 0.0001 it is 0.",
            "maximum": 2,
        },
    ),
    "top_k": SamplingOption(
        kind="count",
        neutral=0,
        expected="a whole number from 0 on",
        hint="0 keeps all tokens",
        metavar="N",
        help="Draw from this many of the most probable tokens; 0 is all.",
        http={"description": "Draw from this many of the most probable tokens; 0 and -1 are all.", "minimum": -1},
    ),
    "top_p": SamplingOption(
        neutral=1.0,
        least=_SMALLEST,
        greatest=1,
        expected="a number above 0 and at most 1",
        hint="1 keeps all tokens",
        metavar="P",
        help="Draw from the fewest tokens that have this probability together.",
        http={"exclusiveMinimum": 0},
    ),
    "min_p": SamplingOption(
        neutral=0.0,
        greatest=1,
        expected="a number from 0 to 1",
        hint="0 keeps all tokens",
        metavar="P",
        help="Draw from tokens with at least this share of the best one's probability.",
    ),
    "repetition_penalty": SamplingOption(
        neutral=1.0,
        changes_greedy=True,
        least=PENALTY_RANGE[0],
        greatest=int(PENALTY_RANGE[1]),
        expected="a number from 0.001 to 1000",
        hint="1 is none, more repeats less",
        metavar="R",
        help="Above 1, makes tokens less likely that were there before; 1 is the default.",
    ),
    "frequency_penalty": _penalty_of_new_text(
        "Subtracted from the logit of a token once for each time that the new text has it; 0 is none."
    ),
    "presence_penalty": _penalty_of_new_text(
        "Subtracted once from the logits of all tokens that the new text has; 0 is none."
    ),
    "seed": SamplingOption(
        kind="seed",
        greatest=SEEDS - 1,
        expected="a whole number from 0 to 2**64 - 1",
        hint="leave it out, and one is drawn",
        metavar="N",
        help="Equal seeds give equal tokens; by default a new one is drawn.",
        http={"minimum": -(2**63)},
    ),
}
"""Name -> option. All are fields of `SamplingParams`."""

_DTYPES = {"number": "float32", "count": "int64"}
SETTINGS = {
    name: _DTYPES[option.kind]
    for name, option in SAMPLING_OPTIONS.items()
    if option.kind in _DTYPES and option.is_input
}
"""Name of an option that graphs read -> dtype of its input [B]."""


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of one sequence. The fields up to `repetition_penalty` are inputs of the graphs: see
    `contract`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    sequence: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Tokens, in their order, and what is added to the logit of each."""

    @property
    def counts_tokens(self) -> bool:
        """Return whether logits depend on the number of times that the new text has each token."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0

    @property
    def adjusts_logits(self) -> bool:
        """Return whether the host adds anything to logits."""
        return self.counts_tokens or bool(self.logit_bias)

    def penalty(self, count: int) -> float:
        """Return the number to add to the logit of a token that occurs `count` times in the new text."""
        return -(self.frequency_penalty * count) - self.presence_penalty if count else 0.0

    @property
    def shown_seed(self) -> int | None:
        """Seed, or None if it decides nothing."""
        return self.seed if self.temperature > 0 else None


NARROWEST_ADJUSTED = 2
"""Minimum width of the adjustment inputs in runs that adjust logits. Inputs of width 1 are never written: they hold
zeros, which change nothing."""


def most_adjusted(vocabulary: int, max_length: int, tokens: int) -> int:
    """Return the maximum width of the adjustment inputs: logit biases, new tokens, and `tokens` drafts."""
    return max(NARROWEST_ADJUSTED, min(vocabulary, MOST_BIASES + max_length + tokens))


GREEDY = SamplingParams()
