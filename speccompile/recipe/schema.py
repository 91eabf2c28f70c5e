"""Schema of recipe.yaml: names, types and ranges only. `make_plan` decides defaults and makes the other checks.

A field's `description` states the expected value and its `examples` show one; messages consist of both. A key that is
left out, or null, is None.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, create_model
from pydantic.fields import FieldInfo

from speccompile.drafters import DRAFTING_METHODS, kind_called
from speccompile.plan.precisions import precision_called
from speccompile.plan.recipe_source import RecipeSource
from speccompile.plan.section import Section
from speccompile.plan.section import optional as _optional
from speccompile.plan.section import required as _required
from speccompile.recipe.acceptance_methods import PARAMETERS
from speccompile.recipe.adapter_slots_schema import Adapters
from speccompile.recipe.cache_schema import Cache, DrafterCache
from speccompile.recipe.prefix_schema import NAME, NAME_EXPECTED, Prefix
from speccompile.recipe.prove_schema import Prove
from speccompile.recipe.source_schema import Source
from speccompile.recipe.training_schema import HELD_OUT_FORMS, TRAIN_EXAMPLE, Train

TREE_EXPECTED = (
    "a tree: a name, branching factors such as [4, 2, 1], paths such as [[0], [1], [0, 0]], {parents: [-1, 0, 0, 1]} "
    "{depth: 5, top_k: 4, nodes: 24} or {kind: blocks, nodes: 16}"
)
NAMED, BRANCHING, PATHS, MAPPING = TREE_FORMS = ("(name)", "(branching)", "(paths)", "(mapping)")
WHOLE, HALVES = LAYERS_FORMS = ("(layers)", "(halves)")
MOST, BOTH = MATCH_FORMS = ("(most)", "(both)")
FORMS = (*TREE_FORMS, *LAYERS_FORMS, *MATCH_FORMS, *HELD_OUT_FORMS)
"""Tags of union members in the locations of pydantic's errors; no key of the recipe has such a name."""

Node = Annotated[int, Field(ge=-1, le=1_000_000)]
"""A number in a tree: a node, a rank or a branching factor. `make_plan` checks whether it fits the tree."""

Match = Annotated[int, Field(ge=1, le=64)]
"""Number of last tokens of the text to search for."""


class Model(Section):
    model: str = _required("a folder in Hugging Face layout, a GGUF file or a Hub id", "demo/target", min_length=1)
    revision: str | None = _optional("a commit, branch or tag of the Hub as text", "main", min_length=1)


class Target(Model):
    adapter: str | None = _optional("a folder with an adapter of PEFT", "adapter", min_length=1)
    tokenizer: str | None = _optional("a folder with a tokenizer.json, for a GGUF file", "tokenizer", min_length=1)
    images: bool | None = _optional("true or false", "true")
    encoder_precision: Literal["float32", "bfloat16", "int8"] | None = _optional("float32, bfloat16 or int8", "int8")


def _model_of_text(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


class TreeMapping(Section):
    """A tree: `parents` alone; `depth`, `top_k` and `nodes`; or `kind` and `nodes`. `make_plan` checks which."""

    kind: Literal["blocks"] | None = _optional("blocks", "blocks")
    parents: list[Node] | None = _optional("a list of nodes, -1 for the root", "[-1, 0, 0, 1]")
    depth: int | None = _optional("a whole number from 1 to 16", 5, ge=1, le=16)
    top_k: int | None = _optional("a whole number from 1 to 127", 4, ge=1, le=127)
    nodes: int | None = _optional("a whole number from 1 to 127", 24, ge=1, le=127)


Layer = Annotated[int, Field(ge=0)]


class LayersMapping(Section):
    """Layers whose attention or MLP half drafts. `make_plan` checks that there is at least one."""

    attention: list[Layer] | None = _optional("a list of layers, counted from 0", "[0, 1, 3]")
    mlp: list[Layer] | None = _optional("a list of layers, counted from 0", "[0, 2]")


def _form_of_layers(value: Any) -> str | None:
    return HALVES if isinstance(value, dict | LayersMapping) else WHOLE if isinstance(value, list) else None


def _form(value: Any) -> str | None:
    """Return the form of a tree's value, one of TREE_FORMS, or None."""
    match value:
        case str():
            return NAMED
        case dict() | TreeMapping():
            return MAPPING
        case list():
            return PATHS if any(isinstance(each, list) for each in value) else BRANCHING
    return None


def _section_of_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _kind_of_name(value: Any) -> Any:
    return kind_called(value) if isinstance(value, str) else value


Kind = Annotated[str | None, BeforeValidator(_kind_of_name)]
"""Name of a drafter kind; aliases become the kind."""


def _precision_of_name(value: Any) -> Any:
    return precision_called(value) if isinstance(value, str) else value


Word = Annotated[str | None, BeforeValidator(_precision_of_name)]


class Tail(Section):
    """Lookup that drafts after the drafter's chain. Its kind alone is a short form."""

    kind: Kind = _optional("the name of a drafter kind that looks up in the text", "prompt_lookup", min_length=1)
    tokens: int | None = _optional("a whole number from 1 to 15", 4, ge=1, le=15)
    ngram: int | None = _optional("a whole number from 1 to 5", 3, ge=1, le=5)


class Gate(Section):
    """Lookup that drafts instead of the drafter if it finds a long match."""

    kind: Kind = _optional(
        "the name of a drafter kind that looks up in the text, or retrieval", "retrieval", min_length=1
    )
    index: str | None = _optional("the folder of an index that `speccompile index` made", "build/index", min_length=1)
    match: int | None = _optional("a whole number of tokens from 1 to 16", 5, ge=1, le=16)
    tokens: int | None = _optional("a whole number from 1 to 16", 8, ge=1, le=16)
    ngram: int | None = _optional("a whole number from 1 to 16", 8, ge=1, le=16)


class Inner(Section):
    """Lookup that drafts for the drafter, inside its graph."""

    kind: Kind = _optional("the name of a drafter kind that looks up in the text", "prompt_lookup", min_length=1)
    tokens: int | None = _optional("a whole number from 1 to 15", 4, ge=1, le=15)
    ngram: int | None = _optional("a whole number from 1 to 5", 3, ge=1, le=5)
    passes: int | None = _optional("a whole number from 1 to 15", 3, ge=1, le=15)
    lenience: float | None = _optional("a number above 0, at most 1", 0.5, gt=0, le=1)


def _form_of_match(value: Any) -> str | None:
    return BOTH if isinstance(value, list) else MOST if type(value) is int else None


class _Drafter(Section):
    kind: Kind = _optional("the name of a drafter kind", "model", min_length=1)
    model: str | None = _optional("a folder in Hugging Face layout or a Hub id", "demo/drafter", min_length=1)
    revision: str | None = _optional("a commit, branch or tag of the Hub as text", "main", min_length=1)
    adapter: str | None = _optional("a folder with an adapter of PEFT", "adapter", min_length=1)
    tokenizer: Literal["map", "text"] | None = _optional("map or text", "map")
    tokens: int | None = _optional("a whole number from 1 to 16", 4, ge=1, le=16)
    models: list[Annotated[Model, BeforeValidator(_model_of_text)]] | None = _optional(
        "a list of models, each a folder or Hub id, or a mapping with the keys model and revision", "[small, smaller]"
    )
    index: str | None = _optional("the folder of an index that `speccompile index` made", "build/index", min_length=1)
    match: (
        Annotated[
            Annotated[Match, Tag(MOST)] | Annotated[list[Match], Tag(BOTH), Field(min_length=2, max_length=2)],
            Discriminator(_form_of_match),
        ]
        | None
    ) = _optional("a whole number from 1 to 64, the most tokens to look for; or the fewest and the most", "[2, 16]")
    occurrences: int | None = _optional("a whole number from 1 to 5000", 256, ge=1, le=5000)
    layers: (
        Annotated[
            Annotated[list[Layer], Tag(WHOLE)] | Annotated[LayersMapping, Tag(HALVES)],
            Discriminator(_form_of_layers),
        ]
        | None
    ) = _optional("a list of layers, counted from 0, or {attention: [0, 1, 3], mlp: [0, 2]}", "[0, 2]")
    ngram: int | None = _optional("a whole number from 1 to 5", 3, ge=1, le=5)
    nodes: int | None = _optional("a whole number from 8 to 80", 24, ge=8, le=80)
    top_k: int | None = _optional("a whole number from 1 to 64", 8, ge=1, le=64)
    window: int | None = _optional("a whole number from 2 to 32", 7, ge=2, le=32)
    level: int | None = _optional("a whole number from 2 to 8", 5, ge=2, le=8)
    guesses: int | None = _optional("a whole number from 1 to 32", 7, ge=1, le=32)
    factor: float | None = _optional("a number from 0 to 16", 1.0, ge=0, le=16)
    offset: float | None = _optional("a number from -16 to 16", 2.0, ge=-16, le=16)
    look_again: bool | None = _optional("true or false", "true")
    remember: int | None = _optional("a whole number of tokens from 64 to 65536", 4096, ge=64, le=65536)
    sample: bool | None = _optional("true or false", "false")
    taps: list[Annotated[str, Field(min_length=1)]] | None = _optional(
        "a list of places in the target, such as layers.2.input, layers.15.output or norm.output",
        "[layers.2.input, layers.16.input, layers.29.input]", min_length=1,
    )  # fmt: skip
    switches: dict[str, bool | int | float | str] | None = _optional(
        "a mapping of a head's switches to their values", "{norm_before_residual: true}"
    )
    threshold: float | None = _optional("a probability from 0 to 1", 0.6, ge=0, le=1)
    tree: (
        Annotated[
            Annotated[str, Tag(NAMED)]
            | Annotated[list[Node], Tag(BRANCHING)]
            | Annotated[list[list[Node]], Tag(PATHS)]
            | Annotated[TreeMapping, Tag(MAPPING)],
            Discriminator(_form),
        ]
        | None
    ) = _optional(TREE_EXPECTED, "[4, 2, 1]")
    then: Annotated[Tail | None, BeforeValidator(_section_of_kind)] = _optional(
        "a drafter kind, or a mapping with the keys kind, tokens and ngram", "{kind: prompt_lookup, tokens: 4}"
    )
    gate: Annotated[Gate | None, BeforeValidator(_section_of_kind)] = _optional(
        "a drafter kind, or a mapping with the keys kind, index, match, tokens and ngram",
        "{kind: prompt_lookup, match: 5}",
    )
    drafter: Annotated[Inner | None, BeforeValidator(_section_of_kind)] = _optional(
        "a drafter kind, or a mapping with the keys kind, tokens, ngram, passes and lenience",
        "{kind: prompt_lookup, tokens: 4, passes: 3}",
    )


if TYPE_CHECKING:
    Drafter = _Drafter
else:  # adds the keys that only one kind has
    _OWN = {name: each for method in DRAFTING_METHODS.values() for name, each in method.section.items()}
    Drafter = create_model("Drafter", __base__=_Drafter, **_OWN)


class _Verify(Section):
    """Verification method, and the parameters of approximate methods."""

    method: str | None = _optional("the name of a verification method", "exact", min_length=1)


if TYPE_CHECKING:
    Verify = _Verify
else:
    _PARAMETERS = {name: each.schema() for name, each in PARAMETERS.items()}
    Verify = create_model("Verify", __base__=_Verify, **_PARAMETERS)


class Precision(Section):
    target: Word = _optional("the name of a precision", "float32", min_length=1)
    drafter: Word = _optional("the name of a precision", "float32", min_length=1)
    block_size: int | None = _optional("a whole number of weights that share a scale", 32)


def _list_of_texts(value: Any) -> Any:
    """Return capabilities as a list of texts: YAML reads 8.9 as a number. `make_plan` rejects unknown ones, such as
    89."""
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    return [str(each) if type(each) in (int, float) else each for each in values]


class Engine(Section):
    backend: str | None = _optional("the name of a backend", "onnxruntime", min_length=1)
    provider: str | None = _optional("the name of a provider", "cpu", min_length=1)
    compute_capability: Annotated[list[str] | None, BeforeValidator(_list_of_texts)] = _optional(
        "a compute capability such as 8.9, or a list of some", '["8.6", "8.9"]', min_length=1
    )
    precision: Precision | None = _optional("a mapping with the keys target and drafter", "{target: float16}")
    defer: bool | None = _optional("true or false", "false")
    name: str | None = _optional(NAME_EXPECTED, "cpu", pattern=NAME)


class Recipe(Section):
    """A recipe as the user wrote it. origin: its file and overrides."""

    name: str = _required(NAME_EXPECTED, "demo", pattern=NAME)
    target: Target = _required("a mapping with the key model", "{model: demo/target}")
    drafter: Drafter | None = _optional("a mapping with the key kind", "{kind: none}")
    decoding: str | None = _optional("the name of a decoding", "greedy", min_length=1)
    graphs: str | None = _optional("the name of a cut into graphs", "separate", min_length=1)
    verify: Verify | None = _optional("a mapping with the key method", "{method: exact}")
    constraints: bool | None = _optional("true or false", "true")
    adapters: Adapters | None = _optional("a mapping with the keys modules, rank and slots", "{modules: [q_proj]}")
    cache: Cache | None = _optional("a mapping with the key max_length", "{max_length: 2048}")
    drafter_cache: DrafterCache | None = _optional("a mapping with the key dtype", "{dtype: int8}")
    precision: Precision | None = _optional("a mapping with the keys target and drafter", "{target: float32}")
    engines: list[Engine] | None = _optional(
        "a list of one engine or more", "[{backend: onnxruntime, provider: cpu}]", min_length=1
    )
    prefixes: list[Prefix] | None = _optional(
        "a list of prefixes, each a mapping with the keys name and prompt_file",
        "[{name: system, prompt_file: system.txt}]",
    )
    source: Source | None = _optional("a mapping with the key max_length", "{max_length: 512}")
    prove: Prove | None = _optional("a mapping with the key prompts", "{prompts: prompts.jsonl}")
    train: Train | None = _optional("a mapping with the keys data and schedule", TRAIN_EXAMPLE)

    _origin: RecipeSource = PrivateAttr(default=RecipeSource(Path("recipe.yaml")))

    @property
    def origin(self) -> RecipeSource:
        return self._origin

    def source_of(self, key: str) -> str:
        """Return the source of the value at a key path such as "cache.max_length": "recipe", "--set" or "default"."""
        value: Any = self
        for part in key.split("."):
            value = None if value is None else _below(value, part)
        if value is None:
            return "default"
        return "--set" if self._origin.is_overridden(key) else "recipe"


def _below(value: Any, part: str) -> Any:
    if isinstance(value, list):
        return value[int(part)]
    return value.get(part) if isinstance(value, dict) else getattr(value, part)


def field_at(location: tuple[int | str, ...]) -> tuple[str, FieldInfo]:
    """Return name and field at a location such as ("engines", 0, "provider"). For an entry of a list, or of a mapping
    with free keys, return the field of the list or mapping."""
    section: type[Section] | None = Recipe
    for part in location:
        if isinstance(part, str) and section is not None:
            name, field = part, section.model_fields[part]
            section = _section_of(field.annotation)
    return name, field


def section_at(location: tuple[int | str, ...]) -> type[Section]:
    """Return the section at a location such as ("engines", 0)."""
    section: type[Section] = Recipe
    for part in location:
        if isinstance(part, str):
            section = _section_of(section.model_fields[part].annotation) or section
    return section


def key_paths(section: type[Section] = Recipe, prefix: str = "") -> list[str]:
    """Return every key path of the schema; list entries have no index."""
    paths = []
    for name, field in section.model_fields.items():
        below = _section_of(field.annotation)
        paths += [prefix + name, *(key_paths(below, f"{prefix}{name}.") if below else [])]
    return paths


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)
