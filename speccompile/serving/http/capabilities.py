"""Capabilities of the served bundle, for clients that show only settings that it takes."""

from typing import Any

from speccompile.errors import SpeccompileError
from speccompile.runtime import Bundle
from speccompile.runtime.text.chat import apply_chat_template

_PROBE = "a system prompt 1f0b"
"""Text that no chat template writes by itself."""


def capabilities(bundle: Bundle, *, model: str, speculative: bool) -> dict[str, Any]:
    """Return the body of /bundle.

    model: name that clients use. speculative: whether requests that do not say it draft."""
    manifest = bundle.manifest
    return {
        "model": model,
        "chat": bundle.text is not None and bundle.chat_template is not None,
        "system_prompt": _takes_system_prompt(bundle),
        "text": bundle.text is not None,
        "images": bundle.vision is not None,
        "decoding": manifest.decoding,
        "drafting_method": manifest.plan.get("drafter", {}).get("kind") if manifest.tokens else None,
        "draft_tokens": manifest.tokens,
        "draft_depth": manifest.depth,
        "speculative": speculative and manifest.tokens > 0,
        "max_model_len": manifest.max_length,
    }


def _takes_system_prompt(bundle: Bundle) -> bool:
    """Return whether the chat template writes a system message: some refuse it, and some leave it out."""
    if bundle.chat_template is None:
        return False
    template, special_tokens = bundle.chat_template
    messages = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "a question"}]
    try:
        return _PROBE in apply_chat_template(template, messages, special_tokens)
    except SpeccompileError:
        return False
