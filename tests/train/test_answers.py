"""The target's answers: by whomever, the ones that transformers gives to each prompt alone; whatever happens on the
way, every prompt is accounted for."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from speccompile.errors import PromptError, SpeccompileError, UnsupportedModelError, UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.train.answers import make_answers
from speccompile.train.answers.generator import FailedResponse, GenerationRequest, Response, seed_of
from speccompile.train.answers.store import PART, Store
from speccompile.train.answers.transformers_generator import TransformersMaker, transformers_maker
from speccompile.train.data.documents import Prompt
from tests import zoo
from tests.train.answer_plans import training_plan

pytestmark = pytest.mark.builds(4)

LENGTHS = (40, 3, 17, 1, 29, 17, 90, 16, 8, 95, 40)
EOS = 40
DRAWN = "a bundle that samples, whose draws are a function of the seed in test_combinations.py in the first tier"


@pytest.fixture(scope="module")
def target(shared_folder):
    """Return a tiny Llama in which one token of 285 ends a text; some answers end by it."""
    return zoo.save("llama", shared_folder / "answers-target", eos=EOS)


def prompts(lengths=LENGTHS, seed=3):
    random = np.random.default_rng(seed)
    return [Prompt(f"d{n}", random.integers(3, zoo.VOCABULARY, each)) for n, each in enumerate(lengths)]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def alone(folder, plan, prompt):
    """Return what transformers says to one prompt, without padding, cut as the plan says."""
    model = zoo.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([list(map(int, prompt.tokens))])
    room = min(plan.data.max_new_tokens, plan.data.length - ids.shape[1])
    ends = list(plan.target.facts.eos_token_ids) or None
    said = model.generate(ids, do_sample=False, max_new_tokens=room, eos_token_id=ends, repetition_penalty=1.0)
    return said[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("maker", ["bundle", "transformers"])
def test_greedy_answers_are_those_that_transformers_gives_to_each_prompt_alone(target, tmp_path, maker):
    plan, given = training_plan(target, answers=maker), prompts((*LENGTHS, 0, 96, 200))
    found = rows(make_answers(plan, given, tmp_path / "answers"))
    assert [row["document"] for row in found] == [prompt.document for prompt in given]
    for row, prompt in zip(found[: len(LENGTHS)], given, strict=False):
        assert row["prompt_ids"] == prompt.tokens.tolist()
        assert row["answer_ids"] == alone(target, plan, prompt)
        assert row["finish"] == ("stop" if row["answer_ids"][-1] == EOS else "length")
    assert {row["finish"] for row in found[: len(LENGTHS)]} == {"stop", "length"}
    assert [len(row["answer_ids"]) for row in found if len(row.get("prompt_ids", ())) == 95] == [1]
    assert [row["skipped"] for row in found[len(LENGTHS) :]] == [
        "no tokens",
        "96 tokens, at most 95 leave room for an answer",
        "200 tokens, at most 95 leave room for an answer",
    ]
    assert sorted(path.name for path in (tmp_path / "answers").iterdir()) == ["answers.json", "answers.jsonl"]


def test_a_bundle_with_a_drafter_gives_the_same_answers(target, tmp_path):
    (tmp_path / "recipe.yaml").write_text(
        f"name: own\ntarget: {{model: {target}}}\ndrafter: {{kind: prompt_lookup, tokens: 3}}\n"
        "cache: {max_length: 128, batch_size: 3, prefill_chunk: 16}\n"
    )
    plan, own = training_plan(target), make_plan(load_recipe(tmp_path))
    found = rows(make_answers(plan, prompts(), tmp_path / "own", bundle=own))
    assert found == rows(make_answers(replace(plan, data=replace(plan.data, answers="transformers")), prompts(),
                                      tmp_path / "plain"))  # fmt: skip
    with pytest.raises(UsageError, match="received 64 positions, expected 96"):
        make_answers(plan, prompts(), tmp_path / "short", bundle=replace(own, max_length=64))
    with pytest.raises(UsageError, match=r"received decoding greedy, expected sampling for a temperature of 0\.5"):
        make_answers(training_plan(target, temperature=0.5), prompts(), tmp_path / "warm", bundle=own)


@pytest.mark.sweep(DRAWN, but=["transformers"])
@pytest.mark.parametrize("maker", ["bundle", "transformers"])
def test_drawn_answers_are_a_function_of_seed_and_number(target, tmp_path, maker):
    """Equal prompts get different answers, whatever stands beside them in a batch."""
    given = [*prompts(), *prompts((17,)) * 6]

    def answers(name, **data):
        seed = data.pop("seed", 0)
        plan = training_plan(target, answers=maker, temperature=0.9, seed=seed, **data)
        return [row["answer_ids"] for row in rows(make_answers(plan, given, tmp_path / name))]

    first = answers("first")
    assert len({tuple(answer) for answer in first[-6:]}) > 3
    assert first == answers("narrow", batch_size=3)
    assert first != answers("other", seed=1)


@pytest.mark.sweep(DRAWN, but=["transformers"])
@pytest.mark.parametrize("maker", ["bundle", "transformers"])
def test_a_share_is_drawn_and_the_others_are_greedy(target, tmp_path, maker):
    def answers(name, **data):
        plan = training_plan(target, answers=maker, **data)
        return [row["answer_ids"] for row in rows(make_answers(plan, prompts((9, 17, 5) * 8), tmp_path / name))]

    greedy, drawn = answers("greedy"), answers("drawn", temperature=0.9)
    mixed = answers("mixed", temperature=0.9, sampled=0.25)
    warm = [number for number in range(24) if seed_of(0, number) / 2**31 < 0.25]
    assert 0 < len(warm) < 12
    assert mixed == [drawn[number] if number in warm else greedy[number] for number in range(24)]
    assert mixed == answers("narrow", temperature=0.9, sampled=0.25, batch_size=3)


def test_what_transformers_draws_has_the_probabilities_of_the_target(target):
    """10,000 first tokens after one prompt against softmax(logits / temperature): chi square over the likely ones."""
    plan = training_plan(target, temperature=0.7, max_new_tokens=1, batch_size=1000)
    tokens = prompts((9,))[0].tokens.tolist()
    with transformers_maker(plan) as maker:
        model = maker._model
        asked = [GenerationRequest(number, tokens, 1, 0.7, seed_of(5, number)) for number in range(10_000)]
        drawn = [each.tokens[0] for start in range(0, len(asked), 1000) for each in maker.answer(asked[start:][:1000])]
    with torch.no_grad():
        expected = 10_000 * torch.softmax(model(torch.tensor([tokens])).logits[0, -1] / 0.7, 0).double()
    counts = torch.bincount(torch.tensor(drawn), minlength=len(expected))
    likely = expected > 20
    assert likely.sum() > 10
    square = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = int(likely.sum())
    assert square < freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("name", ["gpt2", "bloom", "mpt", "opt", "xglm", "mamba", "falcon_alibi", "gemma2"])
def test_transformers_answers_side_by_side_as_alone(tmp_path, name):
    """Compare batches with single prompts, of models with learnt, rotary or no positions, with states, and with
    windows."""
    folder = zoo.save(name, tmp_path / "target")
    plan, given = training_plan(folder, answers="transformers", max_new_tokens=8), prompts((40, 3, 17, 91, 17, 1))
    for row, prompt in zip(rows(make_answers(plan, given, tmp_path / "answers")), given, strict=True):
        assert row["answer_ids"] == alone(folder, plan, prompt)


def test_a_model_that_padding_changes_answers_prompts_of_one_length_together(target, caplog):
    """Try padding on the model before the answers are batched."""
    model, widths = zoo.model("llama"), []
    told = model.generate

    def without_mask(ids, attention_mask, **options):
        widths.append(ids.shape)
        return told(ids, attention_mask=torch.ones_like(attention_mask), **options)

    model.generate = without_mask
    plan = training_plan(target)
    group = [
        GenerationRequest(n, prompt.tokens.tolist(), 24, 0.0, 0) for n, prompt in enumerate(prompts((12, 5, 5, 12)))
    ]
    with caplog.at_level("INFO", logger="speccompile"):
        found = TransformersMaker(model, plan).answer(group)
    assert "padding changes what this model says" in caplog.text
    assert [tuple(shape) for shape in widths[-2:]] == [(2, 5), (2, 12)]
    assert [each.tokens for each in found] == [alone(target, plan, Prompt(0, asked.tokens)) for asked in group]


def test_what_a_checkpoint_recommends_is_not_what_it_says(tmp_path):
    folder = zoo.save("llama", tmp_path / "target")
    (folder / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "temperature": 2.0, "repetition_penalty": 3.0, "min_new_tokens": 5})
    )
    plan = training_plan(folder, answers="transformers")
    row = rows(make_answers(plan, prompts((17,)), tmp_path / "answers"))[0]
    ids = torch.tensor([row["prompt_ids"]])
    with torch.no_grad():
        for _ in range(24):
            best = zoo.model("llama")(ids).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, best], 1)
    assert row["answer_ids"] == ids[0, 17:].tolist()


def test_a_target_that_the_builder_refuses_says_who_else_can_answer(tmp_path):
    folder = zoo.save("bloom", tmp_path / "target")
    with pytest.raises(UnsupportedModelError, match="the bundle that answers cannot be built") as found:
        make_answers(training_plan(folder), prompts(), tmp_path / "answers")
    assert found.value.hint == "set train.data.answers to transformers, which needs no bundle"


MANY = tuple(5 + n % 30 for n in range(160))

WORKER = """
import sys
from pathlib import Path
from speccompile.train.answers import make_answers
from tests.train.answer_plans import training_plan
from tests.train.test_answers import MANY, prompts
maker, temperature, target, folder = sys.argv[1:]
plan = training_plan(Path(target), answers=maker, temperature=float(temperature), batch_size=4)
make_answers(plan, prompts(MANY), Path(folder))
"""


@pytest.mark.sweep("processes that import torch; a file that is cut at any byte is gone on with in the first tier")
@pytest.mark.parametrize(("maker", "temperature"), [("bundle", 0.8), ("transformers", 0.0)])
def test_killed_in_the_middle_it_goes_on_to_the_same_file(target, tmp_path, maker, temperature):
    plan = training_plan(target, answers=maker, temperature=temperature, batch_size=4)
    whole = make_answers(plan, prompts(MANY), tmp_path / "whole")
    part = tmp_path / "answers" / PART
    worker = [sys.executable, "-c", WORKER, maker, str(temperature), str(target), str(part.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))}
    for lines in (8, 60):
        with subprocess.Popen(worker, env=environment, cwd=Path(__file__).parents[2]) as process:
            while not (part.is_file() and part.read_bytes().count(b"\n") >= lines):
                assert process.poll() is None, "the worker has ended by itself"
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert part.is_file(), "the worker was faster than its murderer"
    with part.open("ab") as file:
        file.write(b'{"number":159,"docu')  # what a write leaves that did not end
    before = part.read_bytes().count(b"\n")
    assert before >= 60
    again = make_answers(plan, prompts(MANY), part.parent)
    assert again.read_bytes() == whole.read_bytes()


def test_a_file_that_is_cut_anywhere_is_gone_on_with(tmp_path):
    records = [
        {"number": n, "document": n, "prompt_ids": [n], "answer_ids": [n, 7], "finish": "stop"} for n in range(4)
    ]
    records[2] = {"number": 2, "document": "é", "skipped": "no tokens"}
    whole = Store(tmp_path)
    whole.append(records)
    content = whole.part.read_bytes()
    whole.finish(4)
    wanted = whole.whole.read_bytes()
    for end in range(len(content) + 1):
        for behind in {b"", (b"\0\0\0", b"\n{}\n")[end % 2]}:
            whole.whole.unlink()
            whole.part.write_bytes(content[:end] + behind)
            store = Store(tmp_path)
            store.read()
            missing = [record for record in records if not store.has(record["number"])]
            assert len(missing) == 4 - content[:end].count(b"\n") or content[end : end + 1] == behind[:1] == b"\n"
            store.append(missing)
            assert store.finish(4) == {"done": 3, "skipped": 1}
            assert store.whole.read_bytes() == wanted


def test_the_same_again_does_nothing_and_anything_else_is_refused_by_name(target, tmp_path, caplog):
    folder = tmp_path / "answers"
    plan = training_plan(target, answers="transformers")
    made = make_answers(plan, prompts(), folder)
    stamp = made.stat().st_mtime_ns
    with caplog.at_level("INFO", logger="speccompile"):
        assert make_answers(replace(plan, data=replace(plan.data, batch_size=7)), prompts(), folder) == made
    assert "11 made, 0 failed, 0 skipped, of 11, made before" in caplog.text
    assert made.stat().st_mtime_ns == stamp
    for others, given, name in (
        ({"max_new_tokens": 9}, prompts(), "max_new_tokens"),
        ({"temperature": 0.5}, prompts(), "seed, temperature"),
        ({"temperature": 0.5, "sampled": 0.5}, prompts(), "sampled, seed, temperature"),
        ({"answers": "bundle", "length": 80}, prompts(), "answers, length"),
        ({}, prompts(seed=4), "prompts"),
        ({}, prompts()[:-1], "prompts"),
    ):
        other = replace(plan, data=replace(plan.data, **others))
        with pytest.raises(UsageError) as found:
            make_answers(other, given, folder)
        assert f"holds answers with other {name}, expected the same to go on with" in str(found.value)
    (target / "generation_config.json").touch()  # the content counts
    assert make_answers(plan, prompts(), folder) == made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="which holds other things, expected a new folder, or one of answers"):
        make_answers(plan, prompts(), tmp_path / "full")


def test_tokens_that_are_not_the_targets_are_named_before_work(target, tmp_path):
    given = [*prompts(), Prompt("alien", [5, zoo.VOCABULARY])]
    with pytest.raises(PromptError, match=f"prompt 11 of document 'alien': received token id {zoo.VOCABULARY}"):
        make_answers(training_plan(target), given, tmp_path / "answers")
    for nothing, words in (([], "received 0 prompts"), (prompts((0, 96)), "none that can be answered: the first has")):
        with pytest.raises(PromptError, match=words):
            make_answers(training_plan(target), nothing, tmp_path / "answers")
    with pytest.raises(UsageError, match=r"train\.data\.answers: received 'given', expected bundle, transformers or"):
        make_answers(training_plan(target, answers="given"), prompts(), tmp_path / "given")
    assert not (tmp_path / "answers").exists()


class Failing:
    """Answers with the prompt's last token, but fails for some numbers."""

    words = "nobody"

    def __init__(self, numbers):
        self.numbers = numbers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def answer(self, group):
        return [
            FailedResponse("it was raining") if asked.number in self.numbers else Response([asked.tokens[-1]], "length")
            for asked in group
        ]


@pytest.mark.parametrize(("failing", "stops"), [({7, 30}, False), ({7, 30, 31}, True)])
def test_a_small_share_may_fail_and_no_more(target, tmp_path, monkeypatch, failing, stops):
    monkeypatch.setattr("speccompile.train.answers.make._maker", lambda *_, **__: Failing(failing))
    plan, given = training_plan(target), prompts([9] * 40)
    if stops:
        with pytest.raises(SpeccompileError, match=r"3 of 32 failed, expected at most 5%; the last, prompt 31: it was"):
            make_answers(plan, given, tmp_path / "answers")
        monkeypatch.setattr("speccompile.train.answers.make._maker", lambda *_, **__: Failing(set()))
    found = rows(make_answers(plan, given, tmp_path / "answers"))
    failed = [number for number, row in enumerate(found) if row.get("failed") == "it was raining"]
    assert failed == ([] if stops else [7, 30])  # those that failed before were asked again
    assert sum("answer_ids" in row for row in found) == 40 - len(failed)


def test_a_disk_that_has_no_room_is_named_before_work(target, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("speccompile.train.answers.make.shutil.disk_usage", lambda _: usage)
    with pytest.raises(
        SpeccompileError, match=r"not enough disk space in .*: received 0\.0 MB free, expected 0\.1 MB for answers"
    ):
        make_answers(training_plan(target, answers="transformers"), prompts(MANY), tmp_path / "answers")
