"""Say which rules of a checkpoint's generation_config.json a target with an encoder does not follow."""

from collections.abc import Iterator, Mapping
from typing import Any

from speccompile.compiler.checkpoints.json_files import CONFIG, generation_rules
from speccompile.machine.formats.json_files import read_json_object
from speccompile.plan.plan import ModelPlan

_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "forced_eos_token_id": (),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "bad_words_ids": ([],),
    "sequence_bias": ({}, []),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],),
}
"""Rules of transformers' `generate` that change greedy tokens, and the values at which each changes nothing, beside
null."""

_READ_BY_SPEECH = ("begin_suppress_tokens",)


def generation_rules_note(target: ModelPlan) -> str:
    """Return a note that names the rules that a target with an encoder has and its bundle does not follow; else
    nothing."""
    rules = [] if target.facts.source is None else list(_unread(target))
    if not rules:
        return ""
    return (
        f"'{target.reference}' asks transformers' generate for {', '.join(rules)}: a bundle has no such rules, and "
        "writes what generate writes without them"
    )


def _unread(target: ModelPlan) -> Iterator[str]:
    """Yield rules as `name: value`."""
    written = generation_rules(target.folder, read_json_object(target.folder / CONFIG) or {})
    hears = target.facts.source is not None and target.facts.source.audio is not None
    for name, neutral in _WITHOUT_EFFECT.items():
        value = written.get(name)
        if value is None or value in neutral or (hears and name in _READ_BY_SPEECH):
            continue
        if name == "bad_words_ids" and not hears and all(isinstance(word, list) and len(word) == 1 for word in value):
            continue  # tokens that no answer has
        text = str(value)
        yield f"{name}: {text if len(text) <= 40 else text[:40] + '..'}"
