"""docs/reference/http.md is complete: routes, fields, statuses and limits of the server as it is."""

import json
import re
from pathlib import Path
from typing import Any, cast

import click
import pytest

from speccompile.cli.main import group
from speccompile.serving.http import openapi
from speccompile.serving.http.app import Settings, make_app
from speccompile.serving.http.fields import CHAT, COMPLETION, DETOKENIZE, TOKENIZE, UNSUPPORTED
from speccompile.serving.http.keys import Keys
from speccompile.serving.http.model import ServedModel
from tests.light.serve_example import toy_server

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "speccompile" / "serving" / "http").rglob("*.py"))
SHARED = "Fields of /v1/chat/completions and /v1/completions"


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[1]


def rows(title: str) -> dict[str, list[str]]:
    """Return the rows of a section's table: first cell, without its marks -> the other cells."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    return {first.strip("`"): others for first, *others in cells}


def test_routes_are_those_of_the_application() -> None:
    app = make_app(cast(ServedModel, None))
    routes: list[Any] = list(app.routes)
    found = {f"{method} {route.path}" for route in routes for method in route.methods - {"HEAD"}}
    assert {route.replace(":path", "") for route in found} == set(rows("Routes"))


@pytest.mark.parametrize("route", [name for name, (key, _) in rows("Routes").items() if key == "no"])
def test_routes_that_need_no_key_answer_without_one(route: str) -> None:
    method, path = route.split()
    with toy_server(Settings(keys=Keys(("secret",)))) as running:
        assert running.ask(method, path.replace("{name}", "style.css")).status != 401
        assert running.ask("GET", "/v1/models").status == 401


@pytest.mark.parametrize(
    ("schema", "titles"),
    [
        (CHAT, [SHARED, "Fields of /v1/chat/completions alone"]),
        (COMPLETION, [SHARED, "Fields of /v1/completions alone"]),
        (TOKENIZE, ["Fields of /tokenize"]),
        (DETOKENIZE, ["Fields of /detokenize"]),
    ],
    ids=["chat", "completion", "tokenize", "detokenize"],
)
def test_fields_are_those_that_are_read(schema: dict[str, Any], titles: list[str]) -> None:
    listed = {name: cells for title in titles for name, cells in rows(title).items()}
    assert set(listed) == set(schema["properties"])
    assert {name for name, (_, default, _) in listed.items() if default == "required"} == set(
        schema.get("required", ())
    )
    for name, (value, _, _) in listed.items():
        field = schema["properties"][name]
        bounds = [field[key] for key in ("minimum", "maximum", "maxItems") if key in field and name != "seed"]
        for bound in bounds if value[:1] in "-0123456789" or "at most" in value else []:
            assert re.search(rf"(?<![\d.]){re.escape(format(bound, 'g'))}(?!\d)", value), (name, value, bound)


def test_refused_fields_are_those_that_are_refused() -> None:
    assert set(re.findall(r"`(\w+)`", section("Fields that are refused").partition("accepted:\n")[2])) == set(
        UNSUPPORTED
    )


def test_statuses_and_codes_of_errors_are_those_that_are_sent() -> None:
    table = rows("Errors")
    assert set(map(int, table)) == {*openapi._ERRORS, 405}
    sent = {code for file in SOURCES for code in re.findall(r'code="(\w+)"', file.read_text(encoding="utf-8"))}
    statuses = set(openapi.SCHEMAS["Health"]["properties"]["status"]["enum"]) - {"ready"}
    listed = {code for _, codes, _ in table.values() for code in re.findall(r"`(\w+)`", codes)}
    assert listed == sent | statuses


def test_limits_are_options_of_serve_with_their_defaults() -> None:
    command = group.get_command(click.Context(group), "serve")
    assert command is not None
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}
    plain = {
        "--host", "--port", "--unix", "--served-model-name", "--api-key", "--api-key-file", "--engine", "--threads",
        "--autoregressive", "--no-reuse", "--sessions", "--cors-origin", "--no-page", "--access-log", "--no-verify",
        "--adapter", "--image-host", "--require-signature", "--quiet", "--verbose", "--progress", "-q", "-v",
    }  # fmt: skip
    table = rows("Limits")
    assert set(table) == set(options) - plain
    for name, (default, _) in table.items():
        if isinstance(options[name].default, int | float):
            assert float(default) == options[name].default, name
        elif default.isdigit():
            assert f"by default {default}" in str(options[name].help), name


def test_the_example_of_an_error_is_what_is_sent() -> None:
    shown = re.search(r"```json\n(.*?)\n```", section("Errors"), re.S)
    assert shown is not None
    with toy_server() as running:
        found = running.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 0})
    assert found.json == json.loads(shown[1])


def test_keys_of_bundle_are_listed() -> None:
    described = section("Answers").partition("`GET /bundle` returns")[2]
    assert set(openapi.SCHEMAS["Bundle"]["properties"]) == set(re.findall(r"`(\w+)`", described))
