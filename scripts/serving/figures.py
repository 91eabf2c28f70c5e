"""What a tool is asked for, and what it gives."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """`requests` requests by `users` at once, of `tokens` new tokens each. prompts: lines of JSON with `prompt` and
    `output_tokens_count`; tokenizer: a folder; scratch: where files may be left."""

    address: str
    tokenizer: Path
    prompts: Path
    users: int
    requests: int
    tokens: int
    scratch: Path


@dataclass(frozen=True)
class Figures:
    """Times in milliseconds. token: for each behind the first. tokens: mean length of an answer.

    spec: what the tool says of speculation, if anything.
    """

    requests_per_second: float
    first_token_p50: float
    first_token_p95: float
    token_p50: float
    token_p95: float
    tokens: float
    spec: dict[str, float] | None = None
