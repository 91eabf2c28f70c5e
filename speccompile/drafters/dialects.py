"""Dialects: published layouts of heads, as data, and the code that maps a folder's tensors to normalised names.

Nothing is dropped: a tensor or a switch that the dialect does not name raises an error with its name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, TensorSource
from speccompile.plan.layers import Shapes

LLAMA_CPP = "llama.cpp"
"""Dialect of heads in GGUF files: `speccompile.compiler.checkpoints.gguf.heads` writes their config."""
DUPLICATE = "copy or download the folder again, or report the dialect with its config.json"


@dataclass(frozen=True)
class Dialect:
    """A published layout of a head.

    architectures: fnmatch patterns, of which the config's `architectures` match one (none: any). keys: dotted keys that
    the config has, or such keys with their value, as in "speculators_model_type=eagle3"; lacks: keys that it has not.
    tensors: fnmatch patterns that each match some tensor; without: that match none. names: regular expression of a
    published name -> normalised name, where \\1 is a group; None for tensors that the formula does not use. within: the
    head may lie among the tensors of a whole model; the folder then counts as the model unless the recipe asks for this
    kind. is_model: the folder is a whole language model as well, which drafts alone. refused: the reason why a
    recognised dialect is not compiled, or None.
    """

    name: str
    architectures: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    names: Mapping[str, str | None] | None = None
    refused: str | None = None
    within: bool = False
    is_model: bool = False

    def evidence(self, folder: HeadFolder) -> str | None:
        """Return a description of the properties that identify this dialect in a folder, or None if it differs."""
        said = folder.config.get("architectures") or ()
        found = [
            f"architecture {name}"
            for name in (said if isinstance(said, list) else ())
            if any(fnmatchcase(str(name), pattern) for pattern in self.architectures)
        ]
        if self.architectures and not found:
            return None
        if not all(_has(folder, key) for key in self.keys) or any(_has(folder, key) for key in self.lacks):
            return None
        for pattern in self.tensors:
            match = next((name for name in sorted(folder.tensors) if fnmatchcase(name, pattern)), None)
            if match is None:
                return None
            found.append(f"tensor {match}")
        if any(fnmatchcase(name, pattern) for pattern in self.without for name in folder.tensors):
            return None
        return ", ".join([*found[:1], *(f"key {key}" for key in self.keys), *found[1:]]) or None

    def rename(self, folder: HeadFolder) -> dict[str, TensorSource]:
        """Return the folder's tensors by normalised names. Raise CheckpointError for a tensor that the dialect does not
        have, and for two tensors with one normalised name."""
        renamed: dict[str, TensorSource] = {}
        for published, source in folder.tensors.items():
            for pattern, ours in (self.names or {}).items():
                match = re.fullmatch(pattern, published)
                if match:
                    if ours is not None:
                        _add(folder, renamed, match.expand(ours), source)
                    break
            else:
                raise CheckpointError(
                    f"{folder.path / source.file}: received the tensor '{published}', which the dialect {self.name} "
                    "does not have: expected no other tensors than those that its formula reads",
                    hint=DUPLICATE,
                )
        return renamed


def _add(folder: HeadFolder, renamed: dict[str, TensorSource], name: str, source: TensorSource) -> None:
    other = renamed.setdefault(name, source)
    if other is not source:
        raise CheckpointError(
            f"{folder.path / source.file}: received the tensors '{other.name}' and '{source.name}', which are both "
            f"{name}; expected one of them",
            hint="remove the one that nobody reads",
        )


def _has(folder: HeadFolder, key: str) -> bool:
    name, separator, wanted = key.partition("=")
    value = folder.value(name)
    return value is not None and (not separator or str(value).lower() == wanted)


def find_dialect(dialects: Iterable[Dialect], folder: HeadFolder) -> tuple[Dialect, str] | None:
    """Return the first dialect that matches a folder, and its evidence; None if no dialect matches."""
    for dialect in dialects:
        evidence = dialect.evidence(folder)
        if evidence is not None:
            return dialect, evidence
    return None


def check_tensors(
    folder: HeadFolder, found: Mapping[str, TensorSource], expected: Shapes, optional: Iterable[str] = ()
) -> dict[str, TensorSource]:
    """Return `found` after a check that it has the expected tensors and shapes; the optional ones may be missing.

    Raise CheckpointError that names file and tensor.
    """
    for name, shape in expected.items():
        if name in found:
            source = found[name]
            if source.shape != shape:
                raise CheckpointError(
                    f"{folder.path / source.file}: received tensor '{source.name}' of shape {list(source.shape)}, "
                    f"expected {list(shape)} as {folder.config_file.name} says",
                    hint="check that config.json belongs to these weights, and that the head was made for this target",
                )
        elif name not in optional:
            files = ", ".join(sorted({source.file for source in folder.tensors.values()})) or "no file"
            raise CheckpointError(
                f"{folder.path}: received no tensor '{name}' in {files}, expected one of shape {list(shape)}",
                hint=DUPLICATE,
            )
    unknown = next((name for name in found if name not in expected), None)
    if unknown is not None:
        source = found[unknown]
        raise CheckpointError(
            f"{folder.path / source.file}: received the tensor '{source.name}', which nothing of this head reads as "
            f"its {folder.config_file.name} describes it; expected no tensor that would be dropped",
            hint=DUPLICATE,
        )
    return dict(found)


def check_vocabulary(folder: HeadFolder, found: dict[str, TensorSource], vocabulary: int) -> None:
    """Take a vocabulary map without effect from `found`. Raise CheckpointError for a head over a part of the target's
    `vocabulary` tokens without a map."""
    head = found.get("lm_head.weight")
    if head is None or head.shape[0] == vocabulary:
        found.pop("d2t", None)  # the vocabularies are the same, so a map has no effect
    elif "d2t" not in found:
        raise CheckpointError(
            f"{folder.path / head.file}: received '{head.name}' over {head.shape[0]} tokens and no 'd2t', expected the "
            f"offsets that lead to the target's {vocabulary} tokens",
            hint="copy or download the folder again",
        )


class Keys:
    """Reader of a config that records the keys it has read: the remaining keys are unknown."""

    def __init__(self, folder: HeadFolder, section: str = "") -> None:
        """Read the mapping at the dotted key `section`, by default the whole config."""
        self.folder, self.section = folder, section
        values = folder.value(section) if section else folder.config
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        self.read: set[str] = set()

    def path(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first name that has one; all of the names count as read."""
        self.read.update(names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer of at least `least`. Raise CheckpointError for another value."""
        value = self.get(*names, default=default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise self.wrong(names[0], value, f"a whole number from {least} on")

    def flag(self, *names: str, default: bool) -> bool:
        value = self.get(*names, default=default)
        if isinstance(value, bool):
            return value
        raise self.wrong(names[0], value, "true or false")

    def number(self, *names: str, default: float | None = None) -> float:
        value = self.get(*names, default=default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        raise self.wrong(names[0], value, "a number")

    def word(self, *names: str, default: str, known: Iterable[str] = ()) -> str:
        value, known = self.get(*names, default=default), tuple(known)
        if isinstance(value, str) and (not known or value in known):
            return value
        raise self.wrong(names[0], value, f"one of {', '.join(known)}" if known else "text")

    def counts(self, *names: str, least: int = 0) -> tuple[int, ...] | None:
        """Return a list of integers of at least `least`, or None if the key is absent. Raise CheckpointError."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, list) and value and all(type(each) is int and each >= least for each in value):
            return tuple(value)
        raise self.wrong(names[0], value, f"a list of whole numbers from {least} on")

    def ignore(self, *names: str) -> None:
        """Count keys as read that do not change the formula."""
        self.read.update(names)

    def expect(self, name: str, *allowed: Any, reason: str) -> None:
        """Raise CheckpointError if a switch has a value that is not compiled."""
        value = self.get(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, value, f"{' or '.join(map(repr, allowed)) or 'nothing'}: {reason}")

    def wrong(self, key: str, received: Any, expected: str) -> CheckpointError:
        shown = "nothing" if received is None else repr(received)
        return CheckpointError(
            f"{self.folder.config_file}: {self.path(key)}: received {shown}, expected {expected}",
            hint="check the config against the head as it was published",
        )

    def refuse_unknown(self) -> None:
        """Raise CheckpointError for a key that was not read: it may change the result of the head."""
        left = sorted(key for key in self.values if key not in self.read | STANDARD and self.values[key] is not None)
        if left:
            raise CheckpointError(
                f"{self.folder.config_file}: received the unknown switch {self.path(left[0])}: "
                f"{self.values[left[0]]!r}, expected none that this version does not know: it may change what the head "
                "computes",
                hint="remove the key where you know that it changes nothing, or report the dialect",
            )


STANDARD = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path add_cross_attention
    architectures attention_dropout attn_implementation auto_map bad_words_ids begin_suppress_tokens
    bos_token_id chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id diversity_penalty
    do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id id2label initializer_range is_decoder
    is_encoder_decoder label2id length_penalty max_length max_window_layers min_length model_type
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states
    output_router_logits output_scores pad_token_id prefix pretraining_tp problem_type pruned_heads
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class
    top_k top_p torch_dtype torchscript transformers_version typical_p use_bfloat16 use_cache hidden_dropout
    resid_pdrop embd_pdrop attn_pdrop rope_interleaved
    """.split()  # noqa: SIM905 (a table of words)
)
"""Keys that transformers writes into any config, and that do not change the result of a layer."""
