"""Prefixes of a recipe: refusals before any work."""

import pytest

from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan

FILES = {"a.txt": b"You are", "empty.txt": b"", "bytes.txt": b"\xff\xfe\xfa"}


def prefix(name="system", file="a.txt"):
    return {"name": name, "prompt_file": file}


def decided(make_recipe, *prefixes, **changes):
    path = make_recipe(prefixes=list(prefixes), **changes)
    for name, content in FILES.items():
        (path.parent / name).write_bytes(content)
    (path.parent / "target" / "tokenizer.json").touch()
    return make_plan(load_recipe(path, ()))


def test_names_and_texts(make_recipe):
    plan = decided(make_recipe, prefix(), prefix("other"))
    assert [(each.name, each.text) for each in plan.prefixes] == [("system", "You are"), ("other", "You are")]
    assert plan.to_json()["prefixes"][1] == prefix("other")
    assert "prefixes" not in decided(make_recipe).to_json()


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        ([prefix(), prefix()], r"prefixes\.1\.name: received 'system' a second time, expected every name once"),
        ([prefix(file="none.txt")], r"prefixes\.0\.prompt_file: received 'none.txt': No such file"),
        ([prefix(file="target")], r"prefixes\.0\.prompt_file: received 'target': Is a directory"),
        ([prefix(), prefix("b", "empty.txt")], r"prefixes\.1\.prompt_file: received 'empty.txt', which is empty"),
        ([prefix(file="bytes.txt")], r"prefixes\.0\.prompt_file: received 'bytes.txt', which is not UTF-8"),
        ([prefix("../up")], r"prefixes\.0\.name: received '\.\./up', expected a name of letters"),
        ([{"name": "a"}], r"prefixes\.0\.prompt_file"),
    ],
)
def test_what_is_refused(prefixes, message, make_recipe):
    with pytest.raises(RecipeError, match=message) as caught:
        decided(make_recipe, *prefixes)
    assert caught.value.hint


def test_engines_that_the_build_cannot_run_are_refused(make_recipe):
    engine = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}
    with pytest.raises(RecipeError, match="prefixes: received engines that run on a GPU alone"):
        decided(make_recipe, prefix(), engines=[engine])


def test_a_target_without_a_tokenizer_is_refused(make_recipe):
    path = make_recipe(prefixes=[prefix()])
    (path.parent / "a.txt").write_text("a")
    (path.parent / "target" / "tokenizer.json").unlink(missing_ok=True)
    with pytest.raises(RecipeError, match=r"prefixes: received texts for a target without tokenizer\.json"):
        make_plan(load_recipe(path, ()))
