"""Prefixes that a bundle ships: built, proven, listed and used; what a build refuses."""

import json
import subprocess
from pathlib import Path

import pytest

from speccompile.compiler.build import build, prefixes
from speccompile.errors import PromptError, ProofError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import prefix_bytes
from speccompile.runtime import Bundle
from speccompile.runtime.sessions import Sessions
from tests import zoo
from tests.compile.tiny_bundles import Built, noisy, save
from tests.native.native_api import NativeBundle

pytestmark = pytest.mark.builds(2)

SYSTEM = "You read files. Answer in one line."
RECIPE = """
name: prefixed
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}
prefixes: [{name: system, prompt_file: system.txt}, {name: short, prompt_file: short.txt}]
prove: {max_new_tokens: 12}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prefixed")
    save(zoo.model("mistral"), folder / "target")
    save(noisy("mistral", 0.03), folder / "drafter")
    (folder / "system.txt").write_text(SYSTEM)
    (folder / "short.txt").write_text("You")
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def made(folder: Path, output: Path, *overrides: str) -> Path:
    return build(make_plan(load_recipe(folder / "recipe.yaml", overrides)), output)


@pytest.fixture(scope="module")
def built_here(folder) -> Built:
    made(folder, folder / "bundle")
    return Built(folder)


def test_prompts_go_on_from_the_longest_and_are_those_of_transformers(built_here):
    bundle = built_here.bundle
    prompt = bundle.token_ids(f"{SYSTEM} What")
    found = bundle.generate(prompt, max_new_tokens=12)
    assert found.cached_tokens >= len(bundle.token_ids(SYSTEM)) - 1
    assert found.token_ids == built_here.reference(prompt, 12)
    assert bundle.generate(bundle.token_ids("You there"), max_new_tokens=3).cached_tokens > 0
    assert bundle.generate([7, 7, 7], max_new_tokens=3).cached_tokens == 0


def test_the_runtime_in_c_goes_on_from_the_same(built_here, native_library, onnxruntime_library):
    bundle = built_here.bundle
    session = NativeBundle(
        built_here.path, library=native_library, onnxruntime=onnxruntime_library, threads=1
    ).session()
    for text in (f"{SYSTEM} What", "You there", "You read", "no"):
        expected = bundle.generate(text, max_new_tokens=12)
        (found,) = session.generate([text], max_new_tokens=12)
        assert (found["token_ids"], found["cached_tokens"]) == (expected.token_ids, expected.cached_tokens)


def test_the_prompts_of_a_batch_go_on_from_their_own(built_here, native_library, onnxruntime_library):
    bundle = built_here.bundle
    session = NativeBundle(
        built_here.path, library=native_library, onnxruntime=onnxruntime_library, threads=1
    ).session()
    system = len(bundle.token_ids(SYSTEM)) - 1
    for texts in ((f"{SYSTEM} What", "You there"), ("no", f"{SYSTEM} Which"), ("no", "none"), (f"{SYSTEM} A",) * 2):
        prompts = list(map(bundle.token_ids, texts))
        found = bundle.generate_batch(prompts, max_new_tokens=12)
        assert [each.token_ids for each in found] == [built_here.reference(prompt, 12) for prompt in prompts]
        cached = [each.cached_tokens for each in found]
        assert [tokens >= system for tokens in cached] == [text.startswith(SYSTEM) for text in texts]
        both = [(each["token_ids"], each["cached_tokens"]) for each in session.generate(prompts, max_new_tokens=12)]
        assert both == [(each.token_ids, tokens) for each, tokens in zip(found, cached, strict=True)]


def test_both_commands_list_them(built_here, native_build, cli):
    for options in ([], ["--json"]):
        done = subprocess.run(
            [native_build / "speccompile-native", "inspect", built_here.path, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        _, expected, _ = cli("inspect", built_here.path, *options)
        if options:
            assert json.loads(done.stdout)["prefixes"] == json.loads(expected)["prefixes"]
        else:
            assert next(line for line in expected.splitlines() if "continuations equal" in line) in done.stdout


def test_they_are_hashed_listed_and_in_the_plan(built_here, cli):
    code, out, _ = cli("inspect", built_here.path, "--json")
    assert code == 0
    shown = json.loads(out)
    assert shown["prefixes"] == {"onnxruntime-cpu": ["short", "system"]}
    assert {f"prefixes/onnxruntime-cpu/{name}.session" for name in ("short", "system")} < set(shown["files"])
    assert shown["manifest"]["plan"]["prefixes"][0] == {"name": "system", "prompt_file": "system.txt"}
    assert [row["name"] for row in shown["proof"]["prefixes"]] == ["system", "short"]
    assert all(row["continuations"] == 3 for row in shown["proof"]["prefixes"])
    assert "continuations equal those without it" in cli("inspect", built_here.path)[1]
    assert "system, short" in cli("plan", built_here.folder / "recipe.yaml")[1]


def test_the_estimate_counts_what_the_files_have(folder, built_here):
    """Count all but 8 bytes a token id and the header of each file."""
    sizes = [file.stat().st_size for file in (built_here.path / "prefixes").rglob("*.session")]
    rows = prefix_bytes(make_plan(load_recipe(folder / "recipe.yaml")))
    assert len(sizes) == 2
    assert 0.9 * rows < sum(sizes) < 1.1 * rows + 8192 * len(sizes)


def test_one_flipped_byte_is_noticed_by_the_bundle(built_here, cli):
    file = built_here.path / "prefixes" / "onnxruntime-cpu" / "system.session"
    content = file.read_bytes()
    mode = file.stat().st_mode
    file.chmod(0o644)
    try:
        file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        code, _, err = cli("generate", built_here.path, "-p", SYSTEM, "-n", 2)
        assert code == 1
        assert "system.session" in err
    finally:
        file.write_bytes(content)
        file.chmod(mode)


def test_a_text_longer_than_the_cache_is_refused_before_the_work(folder, tmp_path):
    with pytest.raises(PromptError, match=r"prefix system \(system.txt\): received \d+ tokens, expected fewer than 20"):
        made(folder, tmp_path / "out", "cache.max_length=20", "cache.prefill_chunk=8")
    assert not (tmp_path / "out").exists()


def test_a_prefix_that_changes_a_token_makes_no_bundle(folder, built_here, monkeypatch, tmp_path):
    generated = prefixes._generated

    def wrong(bundle: Bundle, prompt: list[int], most: int):
        found = generated(bundle, prompt, most)
        if found.cached_tokens:
            found.token_ids[3] += 1
        return found

    monkeypatch.setattr(prefixes, "_generated", wrong)
    with pytest.raises(ProofError, match="prefix system of onnxruntime-cpu: new token 3 behind"):
        made(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_opened_bundle_compares_the_key(built_here, monkeypatch, caplog):
    check = Sessions._check_key

    def other(self, file, path):
        check(self, type(file)(file.metadata | {"max_length": "7"}, file.tensors), path)

    monkeypatch.setattr(Sessions, "_check_key", other)
    with Bundle.open(built_here.path, threads=1) as bundle:
        assert bundle.generate(SYSTEM, max_new_tokens=2).cached_tokens == 0
    assert "with max_length '7', expected '96'" in caplog.text
