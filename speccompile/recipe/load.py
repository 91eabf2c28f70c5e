"""recipe.yaml -> Recipe: read the file, apply overrides, and translate pydantic's errors."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from speccompile.drafters import DRAFTING_METHODS, kind_called, kind_near
from speccompile.errors import RecipeError
from speccompile.machine.plain_files import read_plain
from speccompile.plan.precisions import ALIASES, precision_near
from speccompile.plan.recipe_source import RecipeSource, format_value, nearest
from speccompile.recipe.schema import FORMS, Recipe, field_at, key_paths, section_at

FILE_NAME = "recipe.yaml"

_MOST_BYTES = 1 << 20
"""Largest recipe: those in this project have less than 3 kB."""
_DEEPEST = 64
_MOST_NODES = 100_000
"""Deepest nesting of a recipe, and its largest number of values, those that aliases repeat included: a text of 600
bytes may stand for 10^12."""


def load_recipe(path: Path, overrides: Sequence[str] = (), by: str = "--set") -> Recipe:
    """Read a recipe, or the `recipe.yaml` of a folder, and apply `overrides` ("drafter.tokens=4").

    by: what messages about overrides begin with. Raise RecipeError for invalid YAML, keys, types and ranges.
    `make_plan` makes the other checks.
    """
    file = path / FILE_NAME if path.is_dir() else path
    if path.suffix == ".gguf" or (not file.exists() and (path / "config.json").is_file()):
        raise RecipeError(
            f"received the model '{path}', expected a recipe",
            hint=f"`speccompile init {path}` writes a recipe for it; run, chat and build take the model itself",
        )
    data = parse_yaml(_read(file), str(file))
    if not isinstance(data, dict):
        raise RecipeError(
            f"{file}: received {format_value(data)}, expected a mapping of keys",
            hint="start with two lines: `name: demo` and `target: {model: FOLDER}`",
        )
    return parse_recipe(data, file, overrides, by)


def parse_recipe(data: dict[str, Any], file: Path, overrides: Sequence[str] = (), by: str = "--set") -> Recipe:
    """Return the recipe in a mapping, with `overrides` applied to it. file: names it in messages; relative paths start
    at its folder; by: see `load_recipe`. Raise RecipeError as that."""
    origin = RecipeSource(file, tuple(_override(data, text, by) for text in overrides), by)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise _refuse(error, origin) from None
    recipe._origin = origin
    return recipe


_FIRST_KEY = re.compile(r"\{(\w+): [^{}:,]+\}")
"""Example of a mapping with one key."""

_POWER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")
"""Number with a power of ten as YAML 1.2 and JSON write it, such as 1e-4. YAML 1.1, PyYAML's, needs a point and a
sign."""


class _Loader(yaml.SafeLoader):
    """Loader of YAML's safe subset without dates, which no key takes, and with YAML 1.2's powers of ten; a duplicate
    key is an error, and so are values beyond the limits."""

    def get_single_node(self) -> yaml.Node | None:
        """Return the document's node. Raise ConstructorError if it is too deep or has too many values."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _count_values(node, {}, ())
        return node

    yaml_implicit_resolvers = {  # noqa: RUF012 (the name and form are PyYAML's)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' stands twice", key.start_mark
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Dumper whose texts `_Loader` reads as texts."""


for _each in (_Loader, _Dumper):
    _each.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+.0123456789"))


def dump_yaml(data: Any, *, in_a_line: bool = False) -> str:
    """Return the YAML text of plain data, which `parse_yaml` reads back. Raise YAMLError for other data."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=in_a_line)
    return text


def _count_values(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    """Return the number of values in a node, every alias counted as its target. known: those of the nodes that
    were counted; above: the nodes that it lies in. Raise ConstructorError beyond the limits."""
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in above:
        raise yaml.constructor.ConstructorError(None, None, "an alias stands for itself", node.start_mark)
    if len(above) >= _DEEPEST:
        raise yaml.constructor.ConstructorError(
            None, None, f"values are nested more than {_DEEPEST} deep", node.start_mark
        )
    below = node.value if isinstance(node, yaml.SequenceNode) else [each for pair in node.value for each in pair]
    count = 1 + sum(_count_values(each, known, (*above, id(node))) for each in below)
    if count > _MOST_NODES:
        raise yaml.constructor.ConstructorError(
            None, None, f"it stands for more than {_MOST_NODES} values", node.start_mark
        )
    known[id(node)] = count
    return count


def _read(file: Path) -> str:
    try:
        return read_plain(file, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise RecipeError(
            f"received the recipe '{file}', expected a file or a folder with {FILE_NAME}: nothing lies there",
            hint="give the path of a recipe, for example recipes/demo",
        ) from None
    except OSError as error:
        raise RecipeError(f"{file}: {error.strerror}", hint=f"give a {FILE_NAME}, or its folder") from None
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{file}: received bytes that are not UTF-8 (at byte {error.start}), expected a text file",
            hint="save the recipe as UTF-8",
        ) from None


def parse_yaml(text: str, where: str) -> Any:
    """Return the value of YAML text of the safe subset. Raise RecipeError naming `where`, also for duplicate keys."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a subclass of SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = error.problem
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        place, problem = "", str(error).partition("\n")[0]
    raise RecipeError(
        f"{where}{place}: received text that is not YAML, expected `key: value` lines: {problem}",
        hint="check indentation, quotes and brackets there",
    )


def _override(data: dict[str, Any], text: str, by: str) -> str:
    """Apply one "a.b=value" to `data` and return its key path. Create missing sections, and one list entry past the
    end. by: see `load_recipe`."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise RecipeError(f"--set: received '{text}', expected KEY=VALUE", hint="for example --set drafter.tokens=4")
    parts = key.split(".")
    node: Any = data
    for part, below in pairwise(parts):
        slot = _slot(node, part, key, by)
        if (node.get(slot) if isinstance(node, dict) else node[slot]) is None:
            node[slot] = [] if below.isdecimal() else {}
        node = node[slot]
    node[_slot(node, parts[-1], key, by)] = parse_yaml(value, f"{by} {key}")
    return key


def _slot(node: Any, part: str, key: str, by: str) -> str | int:
    """Return the key or index that `part` names in `node`; an index may be one past the end."""
    if isinstance(node, dict):
        return part
    if isinstance(node, list) and part.isdecimal() and int(part) <= len(node):
        if int(part) == len(node):
            node.append(None)
        return int(part)
    raise RecipeError(
        f"{by} {key}: received the part '{part}' below {format_value(node)}, expected a key of the recipe",
        hint="write keys as in the recipe, list entries by index, as in engines.0.provider",
    )


def _refuse(error: ValidationError, origin: RecipeSource) -> RecipeError:
    # A misspelled key often makes a required one missing: report the misspelling first.
    findings = sorted(error.errors(include_url=False), key=lambda finding: finding["type"] != "extra_forbidden")
    finding = findings[0]
    location = tuple(part for part in finding["loc"] if part not in FORMS)
    if finding["type"] in ("extra_forbidden", "invalid_key"):
        return _unknown_key(location, finding["input"], origin)
    name, field = field_at(location)
    if isinstance(location[-1], str) and (below := location.index(name) + 2) < len(location):
        location = location[:below]  # after a key that the user names, pydantic adds the types that it tried
    key = ".".join(map(str, location))
    received = "nothing" if finding["type"] == "missing" else format_value(finding["input"])
    example = field.examples[0] if field.examples else ""
    if finding["input"] and type(finding["input"]) in (str, int, float):  # the first key's value alone
        example = _FIRST_KEY.sub(lambda found: f"{{{found[1]}: {_word(name, finding['input'])}}}", str(example))
    hint = f"for example `{name}: {example}`" if example else ""
    if finding["type"] == "string_type" and type(finding["input"]) in (int, float):
        hint = "put the value in quotes"
    return origin.refusal(key, received, field.description or "", hint)


def _word(section: str, value: str | int | float) -> str:
    """Return a value as YAML; of a drafting method or a precision, the nearest that there is."""
    if section == "drafter" and isinstance(value, str):
        kind = kind_called(value)
        value = kind if kind in DRAFTING_METHODS else kind_near(value) or value
    if section == "precision":
        value = precision_near(str(value), ALIASES.values()) or "float32"
    return dump_yaml(value).splitlines()[0]


def _unknown_key(location: tuple[int | str, ...], value: object, origin: RecipeSource) -> RecipeError:
    *parents, name = location
    siblings = list(section_at(tuple(parents)).model_fields)
    prefix = "".join(f"{part}." for part in parents)
    guess = nearest(str(name), siblings)
    inside = next((each for each in value if each in siblings), None) if isinstance(value, dict) else None
    elsewhere = {path.split(".")[-1]: path for path in reversed(key_paths())}
    swapped = ".".join(map(str, (name, *parents)))  # target.precision
    if swapped in key_paths():
        known: str | None = swapped
    elif guess or inside:
        known = f"{prefix}{guess or inside}"
    else:
        known = elsewhere.get(nearest(str(name), elsewhere) or "")
    hint = f"did you mean {known}?" if known else "remove it, or use one of these keys"
    if any(path.startswith(f"{prefix}{name}.") for path in origin.overridden):  # --set made the section as well
        origin = replace(origin, overridden=(*origin.overridden, f"{prefix}{name}"))
    return origin.refusal(f"{prefix}{name}", "an unknown key", f"one of {', '.join(siblings)}", hint)
