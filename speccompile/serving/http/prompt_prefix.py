"""What the prompt of a request begins with."""

import json
from collections.abc import Mapping
from typing import Any


def prompt_prefix(body: Mapping[str, Any]) -> str:
    """The prompt or the conversation as one text, "" where there is none: what begins alike has texts that do."""
    prompt = body.get("prompt", body.get("messages"))
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False) if prompt else ""
