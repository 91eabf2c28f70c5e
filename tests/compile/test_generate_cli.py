"""`speccompile generate` and `bench`, and Python's face, on a bundle that was really built, against transformers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, AutoTokenizer

import speccompile
from speccompile.cli import bench, generate
from speccompile.runtime.devices.sessions import _OPEN
from tests import zoo

pytestmark = pytest.mark.builds(2)

ROOT = Path(__file__).resolve().parents[2]

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 2}
cache: {max_length: 96, prefill_chunk: 16}
"""
TEMPLATE = "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
PROMPT = "def größe(self): the"

GENERATE_ELSEWHERE = """
import sys
from speccompile.cli import main
try:
    main(sys.argv[1:])
finally:
    print("LOADED", *{"torch", "transformers", "onnx", "pydantic"} & set(sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a target, a drafter that is the target with some noise, and the bundle `tiny` of both."""
    folder = tmp_path_factory.mktemp("tiny")
    zoo.save("llama", folder / "target")
    drafter = zoo.model("llama")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter += 0.03 * parameter.std() * torch.randn_like(parameter)
    drafter.save_pretrained(folder / "drafter")
    tokenizer = zoo.byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    for role in ("target", "drafter"):
        tokenizer.save_pretrained(folder / role)
    (folder / "recipe.yaml").write_text(RECIPE)
    assert speccompile.build(folder, str(folder / "bundle"), prove=False) == folder / "bundle"
    return folder


def run(command, folder: Path, *arguments: object) -> Result:
    result = CliRunner().invoke(command, [str(folder / "bundle"), *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def reference(folder: Path, prompt_ids: list[int], count: int) -> list[int]:
    """Return transformers' own greedy continuation."""
    model = AutoModelForCausalLM.from_pretrained(folder / "target").eval()
    prompt = torch.tensor([prompt_ids])
    options = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count}
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, len(prompt_ids) :].tolist()


def test_tokens_and_text_are_those_of_transformers(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    prompt_ids = tokenizer(PROMPT)["input_ids"]
    expected = reference(folder, prompt_ids, 40)
    # All drafts in every round: with a drafter as large as its target, the adaptive length may decide for none.
    for mode, arguments in (("speculative", ["--fixed-draft-length"]), ("autoregressive", ["--autoregressive"])):
        options = ["--prompt", PROMPT, "--max-new-tokens", 40, *arguments]
        printed = json.loads(run(generate.command, folder, *options, "--json").stdout)
        assert (printed["token_ids"], printed["mode"]) == (expected, mode)
        assert printed["prompt_tokens"] == len(prompt_ids)
        assert printed["mean_accepted"] == 39 / printed["rounds"]
        assert (printed["mean_accepted"] > 1.0) is (mode == "speculative")
        whole = tokenizer.decode([*prompt_ids, *expected], skip_special_tokens=True)
        assert PROMPT + printed["text"] == whole
        assert run(generate.command, folder, *options).stdout_bytes.decode() == printed["text"] + "\n"


def test_a_chat_is_what_transformers_makes_of_it(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    messages = [{"role": "user", "content": PROMPT}]
    prompt_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    printed = json.loads(run(generate.command, folder, "--prompt", PROMPT, "--chat", "--json").stdout)
    assert printed["prompt_tokens"] == len(prompt_ids)
    assert printed["token_ids"] == reference(folder, prompt_ids, len(printed["token_ids"]))


def test_the_capacity_ends_a_generation(folder):
    ids = ",".join(map(str, range(3, 93)))
    printed = json.loads(run(generate.command, folder, "--token-ids", ids, "--json").stdout)
    assert (printed["finish_reason"], len(printed["token_ids"])) == ("capacity", 6)
    assert printed["token_ids"] == reference(folder, list(range(3, 93)), 6)


def test_generating_loads_no_compiler(folder):
    command = [sys.executable, "-c", GENERATE_ELSEWHERE, "-q", "generate", folder / "bundle", "--prompt", "the"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "LOADED\n")


def test_bench_finds_equal_tokens(folder, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "the"}\n{"token_ids": [5, 6, 7]}\n')
    options = ["--prompts", prompts, "--max-new-tokens", 30, "--repeats", 1, "--threads", 1, "--json"]
    printed = json.loads(run(bench.command, folder, *options, "--fixed-draft-length").stdout)
    assert (printed["equal_prompts"], printed["prompts"], printed["differences"]) == (2, 2, [])
    shares = [depth["accepted"] for depth in printed["acceptance_by_depth"]]
    assert len(shares) == 2
    assert shares == sorted(shares, reverse=True)
    assert 1.0 < printed["speculative"]["mean_accepted"] <= 1.0 + sum(shares)
    assert printed["autoregressive"]["mean_accepted"] == 1.0


def test_a_conversation_in_python_is_what_transformers_makes_of_it(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "target")
    messages = [
        {"role": "system", "content": "größe"},
        {"role": "user", "content": "def"},
        {"role": "assistant", "content": "the"},
        {"role": "user", "content": "self"},
    ]
    prompt_ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    with speccompile.load(folder / "bundle", threads=1) as bundle:
        assert bundle.chat_token_ids(messages) == prompt_ids
        answer = bundle.chat(messages, max_new_tokens=20)
        assert answer.token_ids == reference(folder, prompt_ids, 20)
        with bundle.stream_chat(messages, max_new_tokens=20) as stream:
            assert "".join(stream) == answer.text
        assert repr(bundle) == (
            "<Bundle tiny: LlamaForCausalLM with model (2 draft tokens), onnxruntime-cpu in float32, greedy decoding, "
            "96 tokens, batch 1>"
        )


def test_a_closed_bundle_has_no_sessions(folder):
    before = len(_OPEN)
    with speccompile.load(folder / "bundle", threads=2) as bundle:
        kept = bundle.generate(PROMPT, max_new_tokens=4), bundle.stream(PROMPT)
        assert len(_OPEN) > before
    assert (len(_OPEN), len(kept)) == (before, 2)


def test_the_page_about_python_runs(folder, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/how-to/python.md").read_text(encoding="utf-8")
    page = page.replace("max_new_tokens=32", "max_new_tokens=4")  # broken characters take three tokens in an answer
    (tmp_path / "build").mkdir()
    (tmp_path / "build/demo").symlink_to(folder / "bundle")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speccompile, "build", lambda plan, output: Path(output))  # that of the demo takes half a minute
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(compile(block, "docs/how-to/python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "<Bundle tiny: " in printed
    assert printed.count("<Generation: ") == 1
    with pytest.raises(speccompile.errors.EngineError, match="this bundle is closed"):
        names["bundle"].generate("def")
