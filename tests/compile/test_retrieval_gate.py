# ruff: noqa: F811 - fixtures that are imported are arguments too
"""A gate that the host keeps, built and run: an index drafts where its match is long, the drafter elsewhere, and the
tokens are those of transformers."""

from pathlib import Path

import pytest

from speccompile.runtime import Bundle
from tests import zoo
from tests.compile import tiny_bundles
from tests.compile.test_retrieval import NEW, answers, index, other_tokenizer, recipe, target  # noqa: F401  fixtures
from tests.heads.every import HEADS
from tests.light.forced_lengths import force
from tests.native.side_by_side import SideBySide

pytestmark = pytest.mark.builds(3)

KINDS = {
    "model": "kind: model, model: drafter, tokens: 3",
    "model with a tail": "kind: model, model: drafter, tokens: 2, then: {kind: prompt_lookup, tokens: 2}",
    "layers": "kind: layer_skip, layers: [0], tokens: 3",
    "head": "kind: medusa, model: medusa, tokens: 2",
}
GATE = "gate: {kind: retrieval, index: index, match: 2, tokens: 6}"


def gated(recipe, drafter: str, gate: str = GATE, *rest: str) -> Path:
    """Return a recipe with a drafter and a gate, and the drafter beside it."""
    folder = recipe(f"{{{drafter}, {gate}}}", *rest)
    if "model: drafter" in drafter:
        tiny_bundles.save(tiny_bundles.noisy("llama", 0.05), folder / "drafter", tokenizer=False)
    if "model: medusa" in drafter:
        HEADS["medusa"](folder / "medusa", zoo.model("llama").config)
    return folder


@pytest.mark.sweep("a bundle each, with its proof; one that two runtimes run is in the first tier")
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_drafts_where_its_match_is_long_and_the_drafter_elsewhere(cli, recipe, answers, tmp_path, kind):
    code, _, err = cli("build", gated(recipe, KINDS[kind]), "--output", tmp_path / "out")  # proof included
    assert code == 0, err
    bundle, prompts = Bundle.open(tmp_path / "out", threads=1), list(answers)
    plan = bundle.manifest.plan["drafter"]
    assert (bundle.manifest.tokens, plan["cascade"]["gate"]["kind"]) == (6, "retrieval")
    assert plan["retrieval"]["asked"] == [2, 16, 256]
    assert "draft" in {graph.name for graph in bundle.manifest.graphs}
    for prompt in prompts:
        for options in ({"adaptive": False}, {"adaptive": True}, {"autoregressive": True}):
            assert bundle.generate(prompt, max_new_tokens=NEW, **options).token_ids == answers[prompt]
    force(bundle, [1, 7, 7, 1, 1, 7, 4])
    both = bundle.generate_batch([prompts[0], prompts[-1]], max_new_tokens=NEW)
    assert [each.token_ids for each in both] == [answers[prompts[0]], answers[prompts[-1]]]
    known = bundle.generate(prompts[1], max_new_tokens=NEW, adaptive=False)  # in the index
    other = bundle.generate(prompts[-1], max_new_tokens=NEW, adaptive=False)
    assert 6 in known.draft_lengths
    assert known.mean_accepted > 4
    own = 4 if "tail" in kind else plan["cascade"]["tree"]["depth"]
    assert own in {*known.draft_lengths, *other.draft_lengths}, "the drafter drafts too"


@pytest.mark.sweep("two bundles that sample, with their proof")
def test_what_samples_draws_the_same_beside_a_gate(cli, recipe, answers, tmp_path):
    code, _, err = cli("build", gated(recipe, KINDS["model"], GATE, "decoding: sampling"), "-o", tmp_path / "out")
    assert code == 0, err
    bundle, prompts = Bundle.open(tmp_path / "out", threads=1), list(answers)[:2]
    assert not bundle.manifest.sample
    options = {"max_new_tokens": NEW, "temperature": 0.1, "seed": 4}
    alone = bundle.generate_batch(prompts, autoregressive=True, **options)
    drafted = bundle.generate_batch(prompts, adaptive=False, **options)
    assert [one.token_ids for one in drafted] == [one.token_ids for one in alone]


@pytest.mark.sweep("a bundle each", but=["layers"])
@pytest.mark.parametrize("kind", ["model", "layers", "head"])
def test_in_cpp(cli, recipe, answers, tmp_path, kind, native_library, onnxruntime_library):
    """Compare tokens and rounds, with the index, and with a proposer in its place."""
    folder = gated(recipe, KINDS[kind])
    assert cli("build", folder, "--output", tmp_path / "out", "--skip-prove")[0] == 0
    prompts = list(answers)
    for proposer in (None, Fixed([1, 2])):
        both = SideBySide(tmp_path / "out", native_library, onnxruntime_library, proposer=proposer)
        lengths = set()
        for pair in (prompts[:2], prompts[2:4], prompts[4:]):
            for options in ({"adaptive": False}, {}, {"autoregressive": True}):
                found = both.check([list(prompt) for prompt in pair], max_new_tokens=NEW, **options)
                assert [each.token_ids for each in found] == [answers[prompt] for prompt in pair]
                lengths |= {drafts for each in found for drafts in each.draft_lengths}
        assert (2 if proposer else 6) in lengths


class Fixed:
    """Proposes the same drafts for every second text, and none for the others."""

    def __init__(self, answer: list[int]) -> None:
        self.answer, self.asked = answer, 0

    def propose(self, tokens):
        self.asked += 1
        drafts = self.answer if len(tokens) % 2 else []
        return drafts, list(range(-1, len(drafts) - 1))


def test_a_gate_is_shown_and_a_proposer_may_take_its_place(cli, recipe, answers, tmp_path):
    folder = gated(recipe, KINDS["model"])
    code, out, err = cli("plan", folder)
    assert code == 0, err
    rows = {tuple(line.split()[:2]) for line in out.splitlines()}
    assert {("drafter.gate.kind", "retrieval"), ("drafter.gate.index", "index"), ("drafter.gate.match", "2")} <= rows
    assert ("graphs", "separate") in rows
    assert cli("build", folder, "--output", tmp_path / "out", "--skip-prove")[0] == 0
    code, out, _ = cli("inspect", tmp_path / "out")
    assert "retrieval drafts 6 in their place where it matches 2 tokens or more" in " ".join(out.split())
    prompt, silent = list(answers)[-1], Fixed([])
    bundle = Bundle.open(tmp_path / "out", threads=1, proposer=silent)
    found = bundle.generate(prompt, max_new_tokens=NEW, adaptive=False)
    assert (found.token_ids, max(found.draft_lengths)) == (answers[prompt], 3)
    assert silent.asked


@pytest.mark.parametrize(
    ("drafter", "gate", "change", "exit_code", "message"),
    [
        ("model", "kind: retrieval", None, 2, "drafter.gate.index: received nothing, expected the index that"),
        ("model", "kind: retrieval, index: nowhere", None, 2, "drafter.gate.index: received 'nowhere' (no folder lies"),
        ("model", "kind: retrieval, index: index", other_tokenizer, 2, "drafter.gate.index: received 'index', an inde"),
        (
            "model", "kind: retrieval, index: index", lambda f: (f / "index/1.suffixes").write_bytes(b""), 1,
            "1.suffixes: has 0 bytes, expected",
        ),
        ("model", "kind: prompt_lookup, index: index", None, 2, "drafter.gate.index: received 'index', expected nothi"),
        ("model", "kind: suffix", None, 2, "drafter.gate.kind: received 'suffix', which is a drafter of its own"),
        ("model", "kind: retrieval, index: index, match: 9, ngram: 8", None, 2, "drafter.gate.ngram: received 8"),
        ("none", "kind: retrieval, index: index", None, 2, "drafter.gate: received a key that means nothing"),
        ("tree", "kind: retrieval, index: index", None, 2, "drafter.gate: received an index beside a static tree"),
        ("fused", "kind: retrieval, index: index", None, 2, "graphs: received 'fused', but a step drafts as it verif"),
        ("drawn", "kind: retrieval, index: index", None, 2, "drafter.sample: received true, beside drafter.gate.kind "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_gate_is_said_before_any_work(
    cli, recipe, tmp_path, drafter, gate, change, exit_code, message
):
    kinds = {"none": "kind: none", "tree": "kind: model, model: drafter, tree: [2, 1]"}
    kinds |= {"drawn": f"{KINDS['model']}, sample: true"}
    rest = {"fused": ["graphs: fused"], "drawn": ["decoding: sampling"]}
    folder = gated(recipe, kinds.get(drafter, KINDS["model"]), f"gate: {{{gate}}}", *rest.get(drafter, []))
    if change:
        change(folder)
    code, _, err = cli("build", folder, "--output", tmp_path / "out")
    assert (code, message in err, "hint: " in err) == (exit_code, True, True), err
    assert not (tmp_path / "out").exists()
