"""Names of the package: light to import, and what plan and build take and refuse."""

import ast
import asyncio
import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

import speccompile
from speccompile.errors import RecipeError


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_is_light():
    heavy = "{'numpy', 'onnxruntime', 'tokenizers', 'torch', 'pydantic', 'yaml', 'click', 'asyncio', 'inspect'}"
    code = f"import sys, speccompile; print(dir(speccompile) and sorted({heavy} & set(sys.modules)))"
    assert python(code) == "[]\n"
    code = f"import sys; from speccompile import Bundle, build, load, plan; print(sorted({heavy} & set(sys.modules)))"
    assert not {"torch", "pydantic", "yaml"} & set(ast.literal_eval(python(code)))


@pytest.mark.parametrize("first", ["", "import speccompile.plan.plan; ", "import speccompile.recipe; "])
def test_plan_is_the_function_whatever_was_imported(first):
    code = f"{first}from speccompile import plan; import speccompile; print(plan is speccompile.plan, callable(plan))"
    assert python(code) == "True True\n"
    with pytest.raises(TypeError, match=r"^plan\(\) got an unexpected keyword argument 'override'"):
        speccompile.plan({}, override={})


def test_the_stub_has_the_names_of_the_package():
    stub = Path(speccompile.__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    assert set(re.findall(r"import \w+ as (\w+)$|^(__version__)", stub, re.M)) == {
        (name, "") if name != "__version__" else ("", name) for name in speccompile.__all__
    }
    for name in speccompile.__all__:
        assert getattr(speccompile, name) is not None
    with pytest.raises(AttributeError, match="module 'speccompile' has no attribute 'bundles'"):
        _ = speccompile.bundles


def test_plan_takes_a_path_a_folder_or_a_mapping(make_recipe, tmp_path):
    path = make_recipe(cache={"max_length": 32})
    by_path = speccompile.plan(path)
    assert by_path == speccompile.plan(str(tmp_path))
    assert by_path.max_length == 32
    given = {"name": "demo", "target": {"model": tmp_path / "target"}, "cache": {"max_length": 32}}
    by_mapping = speccompile.plan(given, overrides={"cache.max_length": 16, "drafter": {"kind": "none"}})
    assert (by_mapping.max_length, by_mapping.target.folder) == (16, by_path.target.folder)
    assert by_mapping == speccompile.plan(given, overrides=["cache.max_length=16", "drafter.kind=none"])
    assert given["cache"] == {"max_length": 32}
    assert "drafter" not in given


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([3], {}, "received the recipe 3, expected a path or a mapping of keys"),
        ([{"name": "x"}], {}, r"recipe: target: received nothing"),
        ([{"name": "x", "target": {"model": "t"}, "cach": {}}], {}, "recipe: cach: received an unknown key"),
        ([{"name": "x"}], {"overrides": {"cach.dtype": "x"}}, "overrides: cach: received an unknown key"),
        ([{"name": "x"}], {"overrides": ["cach.dtype=x"]}, "--set cach: received an unknown key"),
        ([{"name": "x"}], {"overrides": {"name.b": 1}}, "overrides: name.b: received the part 'b' below 'x'"),
        ([{"name": "x"}], {"overrides": "a=1"}, "received the overrides 'a=1', expected a mapping"),
        ([{"name": "x"}], {"overrides": {"name": object()}}, "overrides: name: received <object"),
    ],
)
def test_recipes_that_are_refused(arguments, options, message):
    with pytest.raises(RecipeError, match=message) as caught:
        speccompile.plan(*arguments, **options)
    assert caught.value.hint


def test_build_checks_before_the_work(make_recipe, tmp_path):
    planned = speccompile.plan(make_recipe())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with patch("speccompile.compiler.from_recipe.import_module", side_effect=AssertionError("torch is imported")):
        with pytest.raises(speccompile.errors.BuildError, match="is not empty and not a bundle"):
            speccompile.build(planned, str(tmp_path / "full"))
        with pytest.raises(RecipeError, match="received overrides for a plan"):
            speccompile.build(planned, overrides={"name": "x"})
        for name, wrong in (("output", 3), ("output", b"x"), ("output", ""), ("dump_graphs", 3)):
            with pytest.raises(speccompile.errors.BuildError, match=f"{name}: received {wrong!r}, expected the path"):
                speccompile.build(planned, **{name: wrong})


WRONG = {
    "GenerationOptions(max_token=4)": "GenerationOptions() .* 'max_token'; did you mean 'max_new_tokens'?",
    "replace(GenerationOptions(), temprature=1)": "GenerationOptions() .* 'temprature'; did you mean 'temperature'?",
    "load('x', thread=2)": "Bundle.open() .* 'thread'; did you mean 'threads'?",
    "Bundle.open('x', engin='y')": "Bundle.open() .* 'engin'; did you mean 'engine'?",
    "bundle.generate('a', max_token=4)": "Bundle.generate() .* 'max_token'; did you mean 'max_new_tokens'?",
    "bundle.generate('a', wibble=4)": "Bundle.generate() .* 'wibble'; expected one of adapter, .*top_p, truncate",
    "bundle.achat([], chat_template_kwarg={})": "Bundle.achat() .*; did you mean 'chat_template_kwargs'?",
    "bundle.agenerate('a', max_token=4)": "Bundle.agenerate() .* 'max_token'; did you mean 'max_new_tokens'?",
    "bundle.agenerate_batch(['a'], n=2)": "Bundle.agenerate_batch() .* 'n'; did you mean 'num_return_sequences'?",
    "bundle.astream('a', stops='b')": "Bundle.astream() .* 'stops'; did you mean 'stop'?",
    "bundle.astream_chat([], temprature=1)": "Bundle.astream_chat() .* 'temprature'; did you mean 'temperature'?",
    "bundle.load_adapter('poet', folders='x')": "Bundle.load_adapter() .* 'folders'; did you mean 'folder'?",
    "bundle.save_session('x', note={})": "Bundle.save_session() .* 'note'; did you mean 'notes'?",
    "bundle.token_ids('a', chats=True)": "Bundle.token_ids() .* 'chats'; did you mean 'chat'?",
    "bundle.chat([], chat_template_kwarg={})": "Bundle.chat() .*; did you mean 'chat_template_kwargs'?",
    "bundle.serve(limit=8)": "Bundle.serve() .* 'limit'; did you mean 'limits'?",
    "bundle.serve().submit('a', prioritty=1)": "Service.submit() .* 'prioritty'; did you mean 'priority'?",
    "bundle.transcribe('a.wav', timestamp=True)": "Bundle.transcribe() .* 'timestamp'; did you mean 'timestamps'?",
    "bundle.generate('a', max_length=4)": "Bundle.generate() .* 'max_length'; did you mean 'max_new_tokens'?",
    "GenerationOptions(n=2)": "GenerationOptions() .* 'n'; did you mean 'num_return_sequences'?",
    "Limits(request=8)": "Limits() .* 'request'; did you mean 'requests'?",
    "build('x', outputs='y')": "build() .* 'outputs'; did you mean 'output'?",
    "plan('x', override={})": "plan() .* 'override'; did you mean 'overrides'?",
}
"""Calls -> the error's text."""


@pytest.mark.parametrize("call", WRONG)
def test_an_unknown_keyword_is_an_error_of_the_public_name_with_the_nearest_one(call):
    from dataclasses import replace

    from speccompile.serving.scheduler import Limits
    from tests.light.serve_example import chat_bundle

    names = {"bundle": chat_bundle(), "replace": replace, "Limits": Limits}
    names |= {name: getattr(speccompile, name) for name in ("Bundle", "GenerationOptions", "build", "load", "plan")}
    expected = re.escape(WRONG[call]).replace(r"\.\*", ".*")
    with pytest.raises(TypeError, match=f"^{expected}$"):
        asyncio.run(eval(call, names))  # a twin says so when it is awaited


MISSING = {
    "build()": "build() missing 1 required positional argument: 'recipe'",
    "plan(overrides={})": "plan() missing 1 required positional argument: 'recipe'",
    "load()": "Bundle.open() missing 1 required positional argument: 'folder'",
    "bundle.chat()": "Bundle.chat() missing 1 required positional argument: 'messages'",
    "bundle.achat()": "Bundle.achat() missing 1 required positional argument: 'messages'",
    "bundle.astream_chat()": "Bundle.astream_chat() missing 1 required positional argument: 'messages'",
    "bundle.load_kept()": "Bundle.load_kept() missing 1 required positional argument: 'path'",
    "bundle.load_adapter('poet')": "Bundle.load_adapter() missing 1 required positional argument: 'folder'",
    "GenerationOptions(4)": "GenerationOptions() takes 1 positional argument but 2 were given",
}
"""Calls -> the error's text."""


@pytest.mark.parametrize("call", MISSING)
def test_python_s_own_errors_have_the_public_name(call):
    from tests.light.serve_example import chat_bundle

    names = {name: getattr(speccompile, name) for name in ("GenerationOptions", "build", "load", "plan")}
    names["bundle"] = chat_bundle()
    with pytest.raises(TypeError, match=f"^{re.escape(MISSING[call])}$"):
        eval(call, names)


BACKQUOTED = re.compile(r"`[^`]*`")
PYTHON = re.compile(r"\b\w+=[\w.']|Bundle\.|load_adapter|\[1, 2, 3\]")
"""Match keywords and methods as a caller in Python writes them."""
COMMANDS_ALONE = ("runtime/adapters.py: --adapter ", "bundle/signature.py: --comment:")
"""Messages about what a command was given."""


def test_a_message_that_names_a_flag_names_the_keyword_as_well():
    """Callers in Python, who write no flags, see the messages of the rooms that a bundle is opened and run by."""
    package, found = Path(speccompile.__file__).parent, []
    for path in sorted([*(package / "runtime").rglob("*.py"), *(package / "bundle").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
        parts = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
        for each in ast.walk(tree):
            if id(each) in said | parts or not isinstance(each, ast.Constant | ast.JoinedStr):
                continue
            whole = each.values if isinstance(each, ast.JoinedStr) else [each]
            text = "".join(str(part.value) for part in whole if isinstance(part, ast.Constant))
            if re.search(r"(^|\W)--[a-z]", BACKQUOTED.sub("", text)):
                found.append(f"{path.relative_to(package).as_posix()}: {text}")
    assert len(found) > 9
    wrong = [text for text in found if not PYTHON.search(text)]
    assert [text for text in wrong if not text.startswith(COMMANDS_ALONE)] == []


def test_a_misspelled_name_is_shown_with_the_nearest():
    run = subprocess.run(
        [sys.executable, "-c", "import speccompile; speccompile.Bundles"], capture_output=True, text=True
    )
    assert run.stderr.splitlines()[-1].endswith("has no attribute 'Bundles'. Did you mean: 'Bundle'?")


def test_a_bundle_is_neither_copied_nor_pickled():
    from tests.light.serve_example import chat_bundle

    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a bundle cannot be copied or pickled: open it again where it is used"):
            attempt(chat_bundle())


def test_a_path_is_opened():
    from speccompile import Bundle

    with pytest.raises(TypeError, match="Bundle: received the path 'build/demo'"):
        Bundle("build/demo")
    with pytest.raises(TypeError, match=r"Bundle: received nothing, expected Bundle\.open"):
        Bundle()
    for wrong in (None, 3, b"build/demo"):
        with pytest.raises(TypeError, match=rf"^Bundle: received {wrong!r}, expected Bundle\.open\(PATH\) or load"):
            Bundle(wrong)
    with pytest.raises(speccompile.errors.UsageError, match="signed_by: received 5, expected the path of a public key"):
        Bundle.open("build/demo", signed_by=5)
    for folder in (None, 3, b"build/demo"):
        with pytest.raises(speccompile.errors.UsageError, match=f"folder: received {folder!r}, expected the path"):
            Bundle.open(folder)


@pytest.mark.parametrize("variables", [3, ["tone"], {1: "mild"}])
def test_variables_of_a_template_are_named(variables):
    from tests.light.serve_example import chat_bundle

    with pytest.raises(speccompile.errors.PromptError, match=r"chat_template_kwargs: received .* expected a mapping"):
        chat_bundle().chat([{"role": "user", "content": "Hello"}], chat_template_kwargs=variables)
