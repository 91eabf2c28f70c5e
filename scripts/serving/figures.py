"""Input and output of the tools that measure a server."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """Load of a server: `requests` requests of `tokens` new tokens each, by `users` concurrent clients. prompts: file
    of JSON lines with `prompt` and `output_tokens_count`; tokenizer: its folder; scratch: for temporary files."""

    address: str
    tokenizer: Path
    prompts: Path
    users: int
    requests: int
    tokens: int
    scratch: Path


@dataclass(frozen=True)
class Figures:
    """Times in milliseconds. first_token: time to first token; token: time per output token after the first; tokens:
    mean tokens of an answer. spec: figures of speculative decoding, if the tool reports any.
    """

    requests_per_second: float
    first_token_p50: float
    first_token_p95: float
    token_p50: float
    token_p95: float
    tokens: float
    spec: dict[str, float] | None = None
