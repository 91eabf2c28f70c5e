"""Retrieval, built and run: the tokens of transformers, from an index of what the target writes and from users' own."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from speccompile.bundle import open_bundle
from speccompile.compiler.build.proposals import prove_index
from speccompile.errors import ProofError
from speccompile.index import search
from speccompile.index.build import build_index
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile import tiny_bundles

pytestmark = pytest.mark.builds(3)

NEW = 24
TEXTS = 6


def words(ids: Sequence[int]) -> str:
    """Return a tokenizer in which every token is a word."""
    return " ".join(f"w{token}" for token in ids)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Return a model whose tokens are words, so that a corpus of text has the tokens that it should."""
    folder = tmp_path_factory.mktemp("models") / "target"
    tiny_bundles.save(zoo.model("llama"), folder, tokenizer=False)
    tokenizer = Tokenizer(models.WordLevel({f"w{token}": token for token in range(zoo.VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def answers(target) -> dict[tuple[int, ...], list[int]]:
    """Return prompt -> transformers' own greedy continuation."""
    model = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").eval()
    found = {}
    for number in range(TEXTS):
        ids = torch.tensor([[7 + 31 * number, 5 + number, 11 * number + 3]])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW)
        found[tuple(ids[0].tolist())] = output[0, ids.shape[1] :].tolist()
    return found


@pytest.fixture(scope="module")
def index(target, answers, tmp_path_factory) -> Path:
    """Return one of half the answers, and of one that went on in another way."""
    folder = tmp_path_factory.mktemp("index")
    texts = [words((*prompt, *answer)) for prompt, answer in list(answers.items())[: TEXTS // 2]]
    prompt, answer = next(iter(answers.items()))
    texts.append(words((*prompt, *answer[:5], 1, 2, 3)))
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    build_index([folder / "corpus.jsonl"], target, folder / "index", chunk=40, batch=100)
    return folder / "index"


@pytest.fixture
def recipe(target, index, tmp_path):
    """Write a recipe beside the target and the index."""

    def write(drafter: str, rest: str = "") -> Path:
        folder = tmp_path / "recipe"
        shutil.copytree(target, folder / "target", dirs_exist_ok=True)
        shutil.copytree(index, folder / "index", dirs_exist_ok=True)
        cache = "cache: {max_length: 64, prefill_chunk: 16, batch_size: 2}\nprove: {max_new_tokens: 12}"
        text = f"name: tiny\ntarget: {{model: target}}\ndrafter: {drafter}\n{cache}\n{rest}\n"
        (folder / "recipe.yaml").write_text(text)
        return folder

    return write


SHAPES = {
    "chain": "tokens: 6",
    "tree": "tree: {depth: 6, nodes: 10}",
    "narrow": "tree: {depth: 6, nodes: 10, top_k: 2}",
}


@pytest.mark.sweep("a bundle each", but=["tree"])
@pytest.mark.parametrize("shape", SHAPES)
def test_drafts_of_an_index_come_true_and_change_no_token(cli, recipe, answers, tmp_path, shape):
    folder = recipe(f"{{kind: retrieval, index: index, match: [1, 8], {SHAPES[shape]}}}")
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert code == 0, err
    shutil.rmtree(folder)  # a bundle needs nothing outside
    bundle = Bundle.open(tmp_path / "out", threads=1)
    assert sorted(path.name for path in (tmp_path / "out" / "index").iterdir())[-2:] == ["index.json", "policy.json"]
    prompts = list(answers)
    known, _ = bundle.generate_batch(prompts[:2], max_new_tokens=NEW, adaptive=False)
    assert known.token_ids == answers[prompts[0]]
    assert known.mean_accepted > (3 if shape != "chain" else 2)
    for prompt in prompts:
        for adaptive in (False, True):
            generation = bundle.generate(prompt, max_new_tokens=NEW, adaptive=adaptive)
            assert (generation.token_ids, generation.mode) == (answers[prompt], "speculative")
        assert bundle.generate(prompt, max_new_tokens=NEW, autoregressive=True).token_ids == answers[prompt]
    assert all(path <= drafts + 1 for path, drafts in zip(known.path_lengths, known.draft_lengths, strict=True))


def test_a_bundle_says_what_it_is_and_is_proven(cli, recipe, tmp_path, monkeypatch):
    code, _, err = cli("build", recipe("{kind: retrieval, index: index, tokens: 4}"), "--output", tmp_path / "out")
    assert code == 0, err
    bundle = open_bundle(tmp_path / "out")
    assert [graph.name for graph in bundle.manifest.graphs] == ["verify"]
    assert (bundle.manifest.tokens, bundle.manifest.tree, bundle.manifest.catch_up) == (4, "chain", 0)
    assert bundle.manifest.plan["drafter"]["retrieval"]["asked"] == [2, 16, 256]
    assert {"index/index.json", "index/0.tokens", "index/policy.json"} < set(bundle.hashes.files)
    assert set(bundle.lock["inputs"]["index"]["files"]) > {"index.json", "0.tokens", "0.suffixes"}
    (tokens,) = bundle.proof["engines"]
    assert tokens["equal"] == tokens["prompts"]
    assert {row["graph"] for row in bundle.proof["graphs"]} == {"verify", "index"}
    assert bundle.proof["graphs"][-1]["values"] > 20
    assert cli("prove", tmp_path / "out")[0] == 0
    assert cli("inspect", tmp_path / "out")[0] == 0
    (tmp_path / "prompts.jsonl").write_text('{"token_ids": [7, 5, 3]}\n')
    prompts = ["--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", "8", "--repeats", "1"]
    code, out, err = cli("bench", tmp_path / "out", *prompts, "--json")
    assert code == 0, err
    assert json.loads(out)
    right = search._following
    monkeypatch.setattr(search, "_following", lambda chunk, starts, depth: right(chunk, starts + 1, depth))
    message = r"^index: drafts \[.*\] at the parents \[.*\] behind \[.*\], the method's reference drafts \["
    with pytest.raises(ProofError, match=message):
        prove_index(tmp_path / "out", bundle.manifest)


def test_an_index_that_was_cut_in_a_bundle_is_refused(cli, recipe, tmp_path):
    folder = recipe("{kind: retrieval, index: index, tokens: 4}")
    assert cli("build", folder, "--output", tmp_path / "out", "--skip-prove")[0] == 0
    (tmp_path / "out" / "index" / "0.tokens").unlink()  # which is a link
    (tmp_path / "out" / "index" / "0.tokens").write_bytes(b"")
    code, _, err = cli("generate", tmp_path / "out", "--token-ids", "1,2")
    assert (code, "0.tokens: has 0 bytes, expected" in err) == (1, True)


@pytest.mark.sweep("a bundle that samples, with its proof")
def test_what_samples_draws_the_same_with_and_without_an_index(cli, recipe, answers, tmp_path):
    folder = recipe("{kind: retrieval, index: index, match: [1, 4], tree: {depth: 4, nodes: 8}}", "decoding: sampling")
    code, _, err = cli("build", folder, "--output", tmp_path / "out")  # with the proof of distributions
    assert code == 0, err
    bundle, prompts = Bundle.open(tmp_path / "out", threads=1), list(answers)[:2]
    assert open_bundle(tmp_path / "out").proof["distributions"]
    assert [one.token_ids for one in bundle.generate_batch(prompts, max_new_tokens=NEW)] == [
        answers[p] for p in prompts
    ]
    options = {"max_new_tokens": NEW, "temperature": 0.1, "seed": 4}
    alone = bundle.generate_batch(prompts, autoregressive=True, **options)
    drafted = bundle.generate_batch(prompts, adaptive=False, **options)
    assert [one.token_ids for one in drafted] == [one.token_ids for one in alone]
    assert sum(one.rounds for one in drafted) < sum(one.rounds for one in alone)


@pytest.fixture(scope="module")
def open_door(target, tmp_path_factory):
    """Return a bundle that drafts by a proposer alone."""
    folder = tmp_path_factory.mktemp("open")
    (folder / "recipe.yaml").write_text(
        f"name: open\ntarget: {{model: {target}}}\ndrafter: {{kind: retrieval, tree: {{depth: 4, nodes: 12}}}}\n"
        "cache: {max_length: 64, prefill_chunk: 16}\n"
    )
    from speccompile.compiler.build import build
    from speccompile.recipe import load_recipe, make_plan

    return build(make_plan(load_recipe(folder)), folder / "bundle", use_build_cache=False)


def test_the_proposer_of_the_page_drafts(open_door, answers, caplog):
    """Run the class as the page shows it; tests/docs runs the rest of the page."""
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/draft-from-your-texts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^(class Remembered:\n.*?)\n\n\n", page, re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) <= 10
    prompt, answer = next(iter(answers.items()))
    scope: dict = {}
    exec(example, scope)
    bundle = Bundle.open(open_door, threads=1, proposer=scope["Remembered"]([[*prompt, *answer]]))
    generation = bundle.generate(prompt, max_new_tokens=NEW, adaptive=False)
    assert generation.token_ids == answer
    assert generation.mean_accepted > 3
    alone = Bundle.open(open_door, threads=1).generate(prompt, max_new_tokens=NEW)
    assert (alone.token_ids, alone.mode) == (answer, "autoregressive")
    assert "none is given: one token a round" in caplog.text


@pytest.mark.sweep("engines take longest")
def test_tensorrt_rtx_builds_the_target_with_the_host_s_trees(cli, recipe, tmp_path):
    engine = "engines: [{backend: tensorrt_rtx, compute_capability: '8.9', precision: {target: float16}}]"
    folder = recipe("{kind: retrieval, index: index, tree: {depth: 4, nodes: 8}}", engine)
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert code == 0, err
    (entry,) = open_bundle(tmp_path / "out").manifest.engines
    assert list(entry.files) == ["verify"]
    assert "parents" in {row["name"] for row in entry.build.reports["verify"]["inputs"]}


def other_tokenizer(folder: Path) -> None:
    model = models.WordLevel({f"x{token}": token for token in range(zoo.VOCABULARY)}, unk_token="x0")
    Tokenizer(model).save(str(folder / "target" / "tokenizer.json"))


@pytest.mark.parametrize(
    ("drafter", "change", "exit_code", "message"),
    [
        ("index: nowhere", None, 2, "drafter.index: received 'nowhere' (no folder lies at"),
        ("index: index", other_tokenizer, 2, "drafter.index: received 'index', an index of another tokenizer (272 tok"),
        ("index: index", lambda f: (f / "target" / "tokenizer.json").unlink(), 2, "the target has no tokenizer.json"),
        ("index: index", lambda f: (f / "index/1.suffixes").write_bytes(b""), 1, "1.suffixes: has 0 bytes, expected"),
        ("index: target", None, 1, "target: expected an index: no index.json lies in it"),
        ("index: index, match: [5, 2]", None, 2, "drafter.match: received [5, 2], expected the fewest tokens before"),
        ("index: index, match: [5]", None, 2, "drafter.match"),
        ("match: [2, 4]", None, 2, "drafter.match: received a value, expected nothing where there is no index"),
        ("occurrences: 3", None, 2, "drafter.occurrences: received a value, expected nothing where there is no index"),
        ("tree: {depth: 2, nodes: 4, top_k: 2}", None, 2, "drafter.tree.top_k: received 2, expected depth and nodes"),
        ("tree: {depth: 2}", None, 2, "drafter.tree.nodes: received nothing, expected it beside the other keys"),
        ("tree: {depth: 5, nodes: 3}", None, 2, "drafter.tree.nodes: received 3, expected a number from 5"),
        ("tree: [2, 1]", None, 2, "drafter.tree: received a static tree, which"),
        ("ngram: 2", None, 2, "drafter.ngram: received a key that means nothing for this drafter"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_recipe_is_said_before_any_work(
    cli, recipe, tmp_path, drafter, change, exit_code, message
):
    folder = recipe(f"{{kind: retrieval, {drafter}}}")
    if change:
        change(folder)
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert (code, message in err, "hint: " in err) == (exit_code, True, True), err
    assert not (tmp_path / "out").exists()


def test_drafts_of_the_host_are_not_fused(cli, recipe, tmp_path):
    code, _, err = cli("build", recipe("{kind: retrieval, index: index}", "graphs: fused"), "-o", tmp_path / "out")
    assert code == 2
    assert (
        "graphs: received 'fused', but drafts of drafter.kind retrieval come from the host, expected 'separate'" in err
    )


def test_an_index_edited_since_is_not_put_into_a_bundle(cli, recipe, tmp_path):
    folder = recipe("{kind: retrieval, index: index}")
    data = bytearray((folder / "index" / "0.tokens").read_bytes())
    data[3] ^= 1
    (folder / "index" / "0.tokens").write_bytes(data)
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert (code, "0.tokens: BLAKE3" in err, (tmp_path / "out").exists()) == (1, True, False)


def test_the_command_prints_the_folder(cli, target, tmp_path):
    (tmp_path / "notes.txt").write_text("w1 w2 w3")
    code, out, err = cli("index", tmp_path / "notes.txt", "--tokenizer", target, "--output", tmp_path / "index")
    assert (code, out, err) == (0, f"{tmp_path / 'index'}\n", "")
    code, _, err = cli("index", tmp_path / "notes.txt", "--tokenizer", target, "--output", tmp_path / "index")
    assert (code, "exists, expected a folder to be made" in err) == (1, True)
    assert cli("index", tmp_path / "notes.txt", "--output", tmp_path / "other")[0] == 2
