"""Prefix of a request's prompt."""

import json
from collections.abc import Mapping
from typing import Any


def prompt_prefix(body: Mapping[str, Any]) -> str:
    """Return the prompt or the conversation as one text, or "". Requests with a common prefix have texts with one."""
    prompt = body.get("prompt", body.get("messages"))
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False) if prompt else ""
