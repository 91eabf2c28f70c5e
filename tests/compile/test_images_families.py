"""Bundles of further families that see pictures, against transformers' whole models."""

import json
import threading
from typing import Any

import pytest
from PIL import Image

from speccompile.bundle.prompts import read_questions
from speccompile.measure.bench import measure
from speccompile.runtime import Bundle
from speccompile.serving.scheduler.scheduler import Scheduler
from tests import vision
from tests.native.native_api import NativeBundle
from tests.seeing import NEW, PROMPTS, TALL, WIDE, native, opened
from tests.suite.selection import sweep_but

__all__ = ["native"]  # a fixture

pytestmark = pytest.mark.builds(4)

DRAFTERS = {
    "gemma4": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "lfm2_vl": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "llava": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "llava_next": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "llava_onevision": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "mistral3": {"kind": "layer_skip", "layers": [0], "tokens": 3},
    "pixtral": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
    "qwen3_5": {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
}


@pytest.fixture(scope="module", params=sweep_but({"qwen3_5"}, list(DRAFTERS), "more families"))
def seeing(request, tmp_path_factory):
    name = request.param
    cache = {"batch_size": 2, "prefill_chunk": 72 if name == "gemma4" else 16}
    with opened(name, DRAFTERS[name], tmp_path_factory, **cache) as seeing:
        yield seeing


@pytest.mark.parametrize(("text", "images"), PROMPTS, ids=["two", "first", "last", "none"])
def test_tokens_are_those_of_the_whole_model(seeing, text, images):
    assert seeing.both_ways(text, images) == [seeing.expected(text.format(seeing.token), images)] * 2


def test_the_proof_compares_every_place(seeing):
    (row,) = json.loads((seeing.path / "proof.json").read_text())["images"]
    chunks = [1, 5, seeing.bundle.manifest.prefill_chunk]
    assert (row["pictures"], row["chunks"], row["equal"], row["new_tokens"]) == (2, chunks, True, 16)
    every = row["prompt_tokens"] * seeing.bundle.manifest.vocabulary_size
    if seeing.name in ("lfm2_vl", "qwen3_5"):  # states read no token twice: every token by itself, then ends of chunks
        assert every < row["values"] < 3 * every
    else:
        assert row["values"] == 3 * every


def test_requests_of_a_service_see_their_own_pictures_and_encode_them_once(seeing):
    text = f"in {seeing.token} the"
    expected = [seeing.expected(text, [each]) for each in (WIDE, TALL)]
    with seeing.bundle.serve() as service:
        requests = [service.submit(text, images=[each], max_new_tokens=NEW) for each in (WIDE, TALL, WIDE)]
        assert [request.generations()[0].token_ids for request in requests] == [*expected, expected[0]]
    runs = seeing.bundle.vision.encoder.runs
    seeing.bundle.generate(f"{text} and", images=[TALL], max_new_tokens=3)
    assert seeing.bundle.vision.encoder.runs == runs


def test_rounds_of_others_go_on_while_a_picture_is_encoded(seeing, monkeypatch):
    bundle, encoder, go_on = seeing.bundle, seeing.bundle.vision.encoder, threading.Event()
    text, shown = "in the self = the", [vision.picture(44, 60, 11), vision.picture(60, 44, 12)]
    seen, encode = f"in {seeing.token} the {seeing.token}", encoder._encode
    expected = [seeing.expected(text, []), seeing.expected(seen, shown)]

    def slow(picture: Any) -> Any:
        assert go_on.wait(60)
        return encode(picture)

    with bundle._exclusive(serving=True):
        scheduler = Scheduler(bundle)
        running = scheduler.submit(text, max_new_tokens=NEW)
        while not scheduler.running:
            scheduler.step()
        encoder._kept.clear()
        monkeypatch.setattr(encoder, "_encode", slow)
        cancelled, request = (scheduler.submit(seen, images=shown, max_new_tokens=NEW) for _ in range(2))
        scheduler.step()
        assert scheduler.running == 1  # they wait outside the batch slots
        while any(served.request is running for served in scheduler._slots.running):
            scheduler.step()  # up to the end of the text, while nothing can be encoded
        cancelled.cancel(), scheduler.step()
        assert cancelled.generations()[0].finish_reason == "cancelled"
        go_on.set()
        while not scheduler.is_idle:
            scheduler.step()
    assert [each.generations()[0].token_ids for each in (running, request)] == expected


def test_bench_shows_the_pictures_of_a_prompt_and_encodes_them_every_time(seeing, tmp_path):
    shown, text, encoder = [WIDE, TALL], f"in {seeing.token} the", seeing.bundle.vision.encoder
    for number, each in enumerate(shown):
        Image.fromarray(each).save(tmp_path / f"{number}.png")
    lines = [{"prompt": text, "images": [f"{number}.png"]} for number in range(2)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    questions, runs = read_questions(tmp_path / "prompts.jsonl"), []
    for repeats in (1, 2):
        before = encoder.runs
        cases = measure(seeing.bundle, questions, repeats=repeats, max_new_tokens=NEW, adaptive=False)
        runs.append(encoder.runs - before)
        for case, each in zip(cases, shown, strict=True):
            found = [timed.generation.token_ids for (timed,) in (*case.speculative, *case.autoregressive)]
            assert found == [seeing.expected(text, [each])] * 2 * repeats
    before = encoder.runs
    encoder.forget()
    for each in shown:
        seeing.bundle.generate(text, images=[each], max_new_tokens=1)
    assert runs[1] - runs[0] == 2 * (encoder.runs - before)


def test_tokens_of_the_runtime_in_cpp_are_the_same(seeing, native):
    for text, images in PROMPTS:
        assert seeing.both_ways_in_cpp(native, text, images) == seeing.both_ways(text, images), text


def test_a_cache_of_pictures_has_the_size_that_its_user_says(seeing, native_library, onnxruntime_library):
    known = {"library": native_library, "onnxruntime": onnxruntime_library}
    for size in (0, None):
        chosen = {} if size is None else {"image_cache": size}
        with Bundle.open(seeing.path, threads=1, **chosen) as bundle:
            for _ in range(2):
                bundle.generate("what", images=[WIDE], max_new_tokens=3)
            encoder = bundle.vision.encoder
            assert (encoder.queries, encoder.hits, encoder.kept_bytes > 0) == (2, size is None, size is None)
        session = NativeBundle(seeing.path, **known, **chosen).session()
        spent = [session.generate(["what"], images=[[WIDE]], max_new_tokens=3)[0]["encode_seconds"] for _ in range(2)]
        assert [each > 0 for each in spent] == [True, size is not None]
