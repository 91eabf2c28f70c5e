"""recipe.yaml -> Recipe: the form of the file, and the errors of a wrong one."""

from pathlib import Path

import pytest

from speccompile.errors import RecipeError
from speccompile.plan.recipe_source import format_value, one_of
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.schema import Target

COMPLETE = """
name: demo-1.0
target: {model: demo/target, revision: main}
drafter: {kind: model, model: demo/drafter, tokens: 4, sample: false}
decoding: greedy
verify: {method: exact}
cache: {max_length: 2048, batch_size: 2, prefill_chunk: 64}
precision: {target: float32, drafter: float32}
engines:
  - {backend: onnxruntime, provider: cpu, name: cpu}
prove: {prompts: prompts.jsonl, max_new_tokens: 64}
"""


@pytest.fixture
def write(tmp_path):
    """Write recipe.yaml from text or bytes."""

    def write(content):
        path = tmp_path / "recipe.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path, *overrides):
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    return str(caught.value), caught.value.hint


def test_every_key_is_read(write):
    recipe = load_recipe(write(COMPLETE))
    assert recipe.name == "demo-1.0"
    assert (recipe.target.model, recipe.target.revision) == ("demo/target", "main")
    assert (recipe.drafter.kind, recipe.drafter.tokens, recipe.drafter.sample) == ("model", 4, False)
    assert (recipe.decoding, recipe.verify.method) == ("greedy", "exact")
    assert (recipe.cache.max_length, recipe.cache.batch_size, recipe.cache.prefill_chunk) == (2048, 2, 64)
    assert [(engine.backend, engine.name) for engine in recipe.engines] == [("onnxruntime", "cpu")]
    assert (recipe.prove.prompts, recipe.prove.max_new_tokens) == ("prompts.jsonl", 64)


def test_nothing_is_decided_for_keys_that_are_left_out(write):
    recipe = load_recipe(write("name: demo\ntarget: {model: t}\ndrafter: null\ncache: {batch_size: 2}"))
    assert recipe.drafter is None
    assert recipe.engines is None
    assert recipe.cache.max_length is None


def test_a_folder_stands_for_its_recipe_and_a_byte_order_mark_is_no_key(write):
    path = write(b"\xef\xbb\xbfname: demo\ntarget: {model: t}")
    assert load_recipe(path.parent).name == "demo"


def test_dates_are_text(write):
    assert load_recipe(write("name: demo\ntarget: {model: t, revision: 2024-01-31}")).target.revision == "2024-01-31"


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.e-3", ".1e-2", "+1.0e-03", "0.001"])
def test_powers_of_ten_are_numbers_as_in_json(write, text):
    assert load_recipe(write(COMPLETE), [f"cache.max_divergence={text}"]).cache.max_divergence == 1e-3
    assert load_recipe(write(COMPLETE), [f"target.revision='{text}'"]).target.revision == text


def test_a_recipe_knows_who_decided_a_value(write):
    recipe = load_recipe(write(COMPLETE), ["drafter.tokens=2", "verify={method: exact}"])
    assert recipe.source_of("drafter.tokens") == "--set"
    assert recipe.source_of("verify.method") == "--set"
    assert recipe.source_of("drafter.kind") == "recipe"
    assert recipe.source_of("drafter.ngram") == "default"
    assert recipe.source_of("engines.0.name") == "recipe"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: [demo", "recipe.yaml, line 1, column 12: received text that is not YAML"),
        ("name: demo\n\ttarget: x", "recipe.yaml, line 2, column 1: received text that is not YAML"),
        ("name: demo\nname: other", "line 2, column 1: received text that is not YAML.*the key 'name' stands twice"),
        ("name: d\ntarget: {model: a, model: b}", "line 2, column 20: .*the key 'model' stands twice"),
        ("name: !!python/name:os.system x", "could not determine a constructor for the tag"),
        ("name: \x00", "received text that is not YAML.*unacceptable character"),
        ("[" * 5000, "received text that is not YAML.*recursion"),
        ("name: 0b_", "received text that is not YAML.*invalid literal"),
        (b"name: d\xe9mo", "received bytes that are not UTF-8 \\(at byte 7\\), expected a text file"),
        ("- name: demo", "recipe.yaml: received a list, expected a mapping of keys"),
        ("", "recipe.yaml: received null, expected a mapping of keys"),
        ("just text", "recipe.yaml: received 'just text', expected a mapping of keys"),
    ],
)
def test_text_that_is_no_recipe_is_refused(write, content, message):
    path = write(content)
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(path)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_missing_recipe_is_refused(tmp_path):
    message, hint = refusal(tmp_path / "nowhere.yaml")
    assert "nowhere.yaml', expected a file or a folder with recipe.yaml: nothing lies there" in message
    assert "recipes/demo" in hint


@pytest.mark.parametrize("name", ["model", "model.gguf"])
def test_a_model_is_told_from_a_recipe(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\0" * (2 << 20))
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / name)
    assert str(caught.value) == f"received the model '{tmp_path / name}', expected a recipe"
    assert "speccompile init" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("drafter.tokns=4", "received an unknown key, expected one of kind, model", "did you mean drafter.tokens?"),
        ("engines.0.providr=cpu", "received an unknown key", "did you mean engines.0.provider?"),
        ("target.precision=int8", "received an unknown key", "did you mean precision.target?"),
        ("tokens=4", "received an unknown key, expected one of name, target", "did you mean drafter.tokens?"),
        ("tokns=4", "received an unknown key, expected one of name, target", "did you mean drafter.tokens?"),
        ("xyzzy=4", "received an unknown key", "remove it, or use one of these keys"),
        ("cache.maxlength=8", "--set cache.maxlength: received an unknown key", "did you mean cache.max_length?"),
        ("precision=q4", "received 'q4', expected a mapping with the keys target", "`precision: {target: int4}`"),
        ("precision=q9", "received 'q9', expected a mapping with the keys target", "`precision: {target: int8}`"),
        ("precision=itn4", "received 'itn4', expected a mapping with the keys", "`precision: {target: int4}`"),
        ("precision=xyzzy", "received 'xyzzy', expected a mapping with the keys", "`precision: {target: float32}`"),
        ("drafter=ngrm", "received 'ngrm', expected a mapping with the key kind", "`drafter: {kind: prompt_lookup}`"),
        ("drafter=eagle-3", "received 'eagle-3', expected a mapping with the key", "`drafter: {kind: eagle3}`"),
        ("target=a\\1b", r"received 'a\1b', expected a mapping with the key model", r"`target: {model: a\1b}`"),
        ("drafter={1: 2}", "drafter.1: received an unknown key", "remove it, or use one of these keys"),
        ("drafter.tokens=four", "received 'four', expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.tokens=0", "received 0, expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.tokens=-1", "received -1, expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.tokens=17", "received 17, expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.tokens=4.0", "received 4.0, expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.tokens=true", "received true, expected a whole number from 1 to 16", "for example `tokens: 4`"),
        ("drafter.ngram=6", "received 6, expected a whole number from 1 to 5", "for example `ngram: 3`"),
        ("drafter.sample=1", "received 1, expected true or false", "for example `sample: false`"),
        ("drafter.switches={a: [1]}", "drafter.switches.a: received a list, expected a mapping", "for example `"),
        ("train.shape={layers: [1]}", "train.shape.layers: received a list, expected a mapping", "for example `"),
        ("train.schedule.steps=0", "received 0, expected a whole number from 1 on", "for example `steps: 1000`"),
        ("train.data.held_out=1.5", "received 1.5, expected a share of the documents", "for example `held_out: 0.02`"),
        ("verify.epsilon=1.5", "received 1.5, expected a probability from 0 to 1", "for example `epsilon: 0.09`"),
        ("verify.epsilon=-0.1", "received -0.1, expected a probability from 0 to 1", "for example `epsilon: 0.09`"),
        ("verify.epsilon=.nan", "received nan, expected a probability from 0 to 1", "for example `epsilon: 0.09`"),
        ("verify.epsilon=true", "received true, expected a probability from 0 to 1", "for example `epsilon: 0.09`"),
        ("verify.delta=2", "received 2, expected a number from 0 to 1", "for example `delta: 0.3`"),
        ("verify.lenience=0", "received 0, expected a number above 0, at most 1", "for example `lenience: 0.5`"),
        ("verify.lenience=1.01", "received 1.01, expected a number above 0, at most 1", "`lenience: 0.5`"),
        ("verify.k=0", "received 0, expected a whole number from 1 on", "for example `k: 3`"),
        ("verify.k=2.5", "received 2.5, expected a whole number from 1 on", "for example `k: 3`"),
        ("verify.gap=-1", "received -1, expected a number of nats from 0 on", "for example `gap: 2.0`"),
        ("verify.gap=.inf", "received inf, expected a number of nats from 0 on", "for example `gap: 2.0`"),
        ("verify.fallback=1.1", "received 1.1, expected a probability from 0 to 1", "for example `fallback: 0.5`"),
        ("verify.rollback=-3", "received -3, expected a number of nats from 0 on", "for example `rollback: 3.0`"),
        ("verify.epsilom=0.1", "received an unknown key, expected one of method, eps", "did you mean verify.epsilon?"),
        ("drafter.models=small", "received 'small', expected a list of models, each a folder", "[small, smaller]"),
        ("drafter.models=[3]", "models.0: received 3, expected a list of models, each a folder", "[small, smaller]"),
        ("drafter.models=['']", "drafter.models.0.model: received '', expected a folder in Hugging", "demo/target"),
        ("drafter.models=[{model: a, revison: b}]", "models.0.revison: received an unknown", "models.0.revision?"),
        ("drafter.layers=2", "received 2, expected a list of layers, counted from 0", "`layers: [0, 2]`"),
        ("drafter.layers=[0, -1]", "layers.1: received -1, expected a list of layers, counted", "`layers: [0, 2]`"),
        ("drafter.layers=[0.5]", "layers.0: received 0.5, expected a list of layers, counted", "`layers: [0, 2]`"),
        ("drafter.tree=3", "received 3, expected a tree: a name, branching factors", "for example `tree: [4, 2, 1]`"),
        ("drafter.tree=true", "received true, expected a tree: a name", "for example `tree: [4, 2, 1]`"),
        ("drafter.tree=[4, two]", "drafter.tree.1: received 'two', expected a tree: a name", "`tree: [4, 2, 1]`"),
        ("drafter.tree=[4, 2.5]", "drafter.tree.1: received 2.5, expected a tree: a name", "`tree: [4, 2, 1]`"),
        ("drafter.tree=[[0], 1]", "drafter.tree.1: received 1, expected a tree: a name", "`tree: [4, 2, 1]`"),
        ("drafter.tree=[[0], [0, a]]", "drafter.tree.1.1: received 'a', expected a tree: a name", "`tree: [4, 2, 1]`"),
        (
            "drafter.tree={parents: 3}",
            "drafter.tree.parents: received 3, expected a list of nodes, -1",
            "`parents: [-1, 0, 0, 1]`",
        ),
        (
            "drafter.tree={parents: [-1, x]}",
            "drafter.tree.parents.1: received 'x', expected a list",
            "`parents: [-1, 0, 0, 1]`",
        ),
        ("drafter.tree={depth: 17}", "tree.depth: received 17, expected a whole number from 1 to 16", "`depth: 5`"),
        ("drafter.tree={top_k: 0}", "tree.top_k: received 0, expected a whole number from 1 to 127", "`top_k: 4`"),
        ("drafter.tree={nodes: 128}", "tree.nodes: received 128, expected a whole number from 1 to 127", "`nodes: 24`"),
        (
            "drafter.tree={node: 9}",
            "tree.node: received an unknown key, expected one of kind, parents",
            "drafter.tree.nodes?",
        ),
        ("drafter=model", "received 'model', expected a mapping with the key kind", "`drafter: {kind: model}`"),
        ("cache.max_length=0", "received 0, expected a whole number of tokens from 2 on", "`max_length: 2048`"),
        ("cache.max_length=-5", "received -5, expected a whole number of tokens from 2 on", "`max_length: 2048`"),
        ("cache.batch_size=0", "received 0, expected a whole number from 1 to 256", "`batch_size: 1`"),
        ("cache.batch_size=-1", "received -1, expected a whole number from 1 to 256", "`batch_size: 1`"),
        ("cache.prefill_chunk=0", "received 0, expected a whole number of tokens from 1 on", "`prefill_chunk: 128`"),
        ("prove.max_new_tokens=0", "received 0, expected a whole number from 1 on", "`max_new_tokens: 64`"),
        ("target.revision=123", "received 123, expected a commit, branch or tag", "put the value in quotes"),
        ("target.model=", "received null, expected a folder in Hugging Face layout, a GGUF file", "demo/target"),
        ("target.model=[a]", "received a list, expected a folder in Hugging Face layout", "demo/target"),
        ("target={revision: a}", "target.model: received nothing, expected a folder", "`model: demo/target`"),
        ("name=a/b", "received 'a/b', expected a name of letters, digits", "for example `name: demo`"),
        ("name=..", "received '..', expected a name of letters, digits", "for example `name: demo`"),
        ("engines={}", "received a mapping, expected a list of one engine or more", "backend: onnxruntime"),
        ("engines=[]", "received [], expected a list of one engine or more", "backend: onnxruntime"),
        ("engines=[cpu]", "engines.0: received 'cpu', expected a list of one engine or more", "backend: onnxruntime"),
    ],
)
def test_a_wrong_key_or_value_is_refused(write, override, message, hint):
    received, received_hint = refusal(write(COMPLETE), override)
    assert received.startswith(f"--set {override.partition('=')[0]}")
    assert message in received
    assert hint in received_hint


def test_a_section_that_does_not_exist_is_told_of_the_command_line(write):
    message, hint = refusal(write(COMPLETE), "cache.target.dtype=int8")
    assert (message.partition(": received an unknown key")[0], hint) == (
        "--set cache.target",
        "did you mean cache.dtype?",
    )


def test_a_wrong_value_in_the_file_names_the_file_and_the_key(write):
    message, _ = refusal(write("name: demo\ntarget: {model: t}\ncache: {max_length: long}"), "drafter.tokens=2")
    assert message.endswith(
        "recipe.yaml: cache.max_length: received 'long', expected a whole number of tokens from 2 on"
    )


def test_a_misspelled_key_is_told_rather_than_the_one_it_leaves_missing(write):
    message, hint = refusal(write("name: demo\ntarget: {modle: t}"))
    assert "target.modle: received an unknown key" in message
    assert hint == "did you mean target.model?"


def test_missing_keys_are_refused(write):
    assert "recipe.yaml: name: received nothing, expected a name" in refusal(write("target: {model: t}"))[0]
    assert "recipe.yaml: target: received nothing, expected a mapping with" in refusal(write("name: demo"))[0]


def test_overrides_reach_sections_and_lists_that_the_file_lacks(write):
    path = write("name: demo\ntarget: {model: t}\ncache:")
    recipe = load_recipe(path, ["engines.0.provider=cpu", "engines.1.name=two", "cache.max_length=8", "drafter=null"])
    assert [(engine.provider, engine.name) for engine in recipe.engines] == [("cpu", None), (None, "two")]
    assert recipe.cache.max_length == 8
    assert recipe.drafter is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("drafter.tokens", "--set: received 'drafter.tokens', expected KEY=VALUE"),
        ("=4", "--set: received '=4', expected KEY=VALUE"),
        ("target.model.x=4", "--set target.model.x: received the part 'x' below 'demo/target', expected a key"),
        ("engines.3.name=a", "--set engines.3.name: received the part '3' below a list, expected a key"),
        ("engines.first.name=a", "--set engines.first.name: received the part 'first' below a list, expected a key"),
        ("name=[", "--set name, line 1, column 2: received text that is not YAML"),
    ],
)
def test_a_wrong_override_is_refused(write, override, message):
    received, hint = refusal(write(COMPLETE), override)
    assert message in received
    assert hint


def test_values_and_choices_are_shown_as_people_write_them():
    assert [format_value(value) for value in (None, True, "a", 1.5, {}, [1], [])] == [
        "null",
        "true",
        "'a'",
        "1.5",
        "a mapping",
        "a list",
        "[]",
    ]
    assert format_value("x" * 100) == f"'{'x' * 80}...'"
    assert [one_of(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


@pytest.mark.parametrize(("reference", "reason"), [("a" * 300, "File name too long"), ("a\0b", "embedded null byte")])
def test_what_cannot_be_a_path_is_refused(write, reference, reason):
    recipe = load_recipe(write("name: demo\ntarget: {model: t}"))
    with pytest.raises(RecipeError, match=f"recipe.yaml: received the path 'a.*{reason}.*, expected that of a file"):
        make_plan(recipe.model_copy(update={"target": Target(model=reference)}))


def test_paths_are_relative_to_the_recipe(write, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    origin = load_recipe(write(COMPLETE)).origin
    assert origin.resolve("demo/target") == tmp_path / "demo/target"
    assert origin.resolve("~/target") == tmp_path / "home/target"
    assert origin.resolve("~nobody-of-that-name/x") == tmp_path / "~nobody-of-that-name/x"
    assert origin.resolve(str(tmp_path / "x")) == Path(tmp_path / "x")
