"""What a user may write in recipe.yaml. Names, types and ranges only: defaults and refusals belong to the plan.

Every field says in `description` what is expected there and in `examples` how that looks; messages are made of both.
A key that is left out, or null, is None.
"""

from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr
from pydantic.fields import FieldInfo

from speccompile.recipe.refusal import Origin

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_EXPECTED = "a name of letters, digits, '.', '_' and '-' that begins with a letter or digit"


def _optional(expected: str, example: object, **limits: Any) -> Any:
    return Field(None, description=expected, examples=[example], **limits)


def _required(expected: str, example: object, **limits: Any) -> Any:
    return Field(description=expected, examples=[example], **limits)


class Section(BaseModel):
    """A mapping of the recipe."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Target(Section):
    model: str = _required("a folder in Hugging Face layout or a Hub id", "demo/target", min_length=1)
    revision: str | None = _optional("a commit, branch or tag of the Hub as text", "main", min_length=1)


class Drafter(Section):
    kind: str | None = _optional("the name of a drafter kind", "model")
    model: str | None = _optional("a folder in Hugging Face layout or a Hub id", "demo/drafter", min_length=1)
    revision: str | None = _optional("a commit, branch or tag of the Hub as text", "main", min_length=1)
    tokens: int | None = _optional("a whole number from 1 to 16", 4, ge=1, le=16)
    ngram: int | None = _optional("a whole number from 1 to 5", 3, ge=1, le=5)
    sample: bool | None = _optional("true or false", "false")
    tree: Any = _optional("a tree", "chain")


class Verify(Section):
    method: str | None = _optional("the name of a verification method", "exact")


class Cache(Section):
    max_length: int | None = _optional("a whole number of tokens from 2 on", 2048, ge=2)
    batch_size: int | None = _optional("a whole number from 1 to 256", 1, ge=1, le=256)
    prefill_chunk: int | None = _optional("a whole number of tokens from 1 on", 128, ge=1)


class Precision(Section):
    target: str | None = _optional("the name of a precision", "float32")
    drafter: str | None = _optional("the name of a precision", "float32")
    block_size: int | None = _optional("a whole number of weights that share a scale", 32)


def _list_of_texts(value: Any) -> Any:
    """One capability as a list of one, and 8.9 as "8.9": YAML reads it as a number, and nothing else is meant. The
    plan knows which there are; it says so of 89 too."""
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    return [str(each) if type(each) in (int, float) else each for each in values]


class Engine(Section):
    backend: str | None = _optional("the name of a backend", "onnxruntime")
    provider: str | None = _optional("the name of a provider", "cpu")
    compute_capability: Annotated[list[str] | None, BeforeValidator(_list_of_texts)] = _optional(
        "a compute capability such as 8.9, or a list of some", '["8.6", "8.9"]', min_length=1
    )
    precision: Precision | None = _optional("a mapping with the keys target and drafter", "{target: float16}")
    defer: bool | None = _optional("true or false", "false")
    name: str | None = _optional(NAME_EXPECTED, "cpu", pattern=NAME)


class Prove(Section):
    prompts: str | None = _optional("a file with one prompt a line", "prompts.jsonl", min_length=1)
    max_new_tokens: int | None = _optional("a whole number from 1 on", 64, ge=1)


class Recipe(Section):
    """A recipe as its user wrote it. `origin` says which file and overrides it came from."""

    name: str = _required(NAME_EXPECTED, "demo", pattern=NAME)
    target: Target = _required("a mapping with the key model", "{model: demo/target}")
    drafter: Drafter | None = _optional("a mapping with the key kind", "{kind: none}")
    decoding: str | None = _optional("the name of a decoding", "greedy")
    graphs: str | None = _optional("the name of a cut into graphs", "separate")
    verify: Verify | None = _optional("a mapping with the key method", "{method: exact}")
    cache: Cache | None = _optional("a mapping with the key max_length", "{max_length: 2048}")
    precision: Precision | None = _optional("a mapping with the keys target and drafter", "{target: float32}")
    engines: list[Engine] | None = _optional(
        "a list of one engine or more", "[{backend: onnxruntime, provider: cpu}]", min_length=1
    )
    prove: Prove | None = _optional("a mapping with the key prompts", "{prompts: prompts.jsonl}")

    _origin: Origin = PrivateAttr(default=Origin(Path("recipe.yaml")))

    @property
    def origin(self) -> Origin:
        return self._origin

    def source(self, key: str) -> str:
        """Who decided the value at a key path such as "cache.max_length": "recipe", "--set" or "default"."""
        value: Any = self
        for part in key.split("."):
            value = None if value is None else value[int(part)] if part.isdecimal() else getattr(value, part)
        if value is None:
            return "default"
        return "--set" if self._origin.is_overridden(key) else "recipe"


def field_at(location: tuple[int | str, ...]) -> FieldInfo:
    """The field at a location such as ("engines", 0, "provider"); of a list's entry, the field of the list."""
    *parents, last = (part for part in location if isinstance(part, str))
    return section_at(tuple(parents)).model_fields[last]


def section_at(location: tuple[int | str, ...]) -> type[Section]:
    """The section that a location such as ("engines", 0) names."""
    section: type[Section] = Recipe
    for part in location:
        if isinstance(part, str):
            section = _section_of(section.model_fields[part].annotation) or section
    return section


def key_paths(section: type[Section] = Recipe, prefix: str = "") -> list[str]:
    """Every key path of the schema, a list's entries without their index."""
    paths = []
    for name, field in section.model_fields.items():
        below = _section_of(field.annotation)
        paths += [prefix + name, *(key_paths(below, f"{prefix}{name}.") if below else [])]
    return paths


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)
