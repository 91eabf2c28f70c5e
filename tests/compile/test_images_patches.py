"""Bundles of targets whose pictures keep their shape, with positions on three axes, against transformers."""

import json
import re
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from speccompile.compiler.build import image_proof
from speccompile.compiler.models.image_encoder import load_whole
from speccompile.errors import PromptError, ProofError, UsageError
from speccompile.runtime.images.media import SequenceMedia
from tests import vision
from tests.native.native_service import NativeService
from tests.seeing import NEW, PROMPTS, TALL, WIDE, Seeing, native, opened

__all__ = ["native"]  # a fixture

pytestmark = [
    pytest.mark.builds(3),
    pytest.mark.sweep("a build each; test_images_families.py has positions on three axes in the first tier"),
]


@pytest.fixture(scope="module")
def qwen2_5_vl(tmp_path_factory) -> Iterator[Seeing]:
    with opened("qwen2_5_vl", {"kind": "prompt_lookup", "ngram": 1, "tree": [2, 1, 1]}, tmp_path_factory) as seeing:
        yield seeing


@pytest.fixture(scope="module")
def qwen3_vl(tmp_path_factory) -> Iterator[Seeing]:
    with opened(
        "qwen3_vl",
        {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
        tmp_path_factory,
        batch_size=2,
    ) as seeing:
        yield seeing


@pytest.fixture(params=["qwen2_5_vl", "qwen3_vl"])
def seeing(request) -> Seeing:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("text", "images"), PROMPTS, ids=["two", "first", "last", "none"])
def test_tokens_are_those_of_the_whole_model(seeing, text, images):
    assert seeing.both_ways(text, images) == [seeing.expected(text.format(seeing.token), images)] * 2


def test_the_proof_compares_every_place(seeing):
    (row,) = json.loads((seeing.path / "proof.json").read_text())["images"]
    assert (row["pictures"], row["chunks"], row["equal"], row["new_tokens"]) == (2, [1, 5, 16], True, 16)


@pytest.mark.parametrize("wrong", ["rows and columns", "time", "none"])
def test_the_proof_notices_other_positions(seeing, monkeypatch, wrong):
    own = SequenceMedia.offsets_between

    def other(self: SequenceMedia, start: int, stop: int) -> np.ndarray:
        found = own(self, start, stop)
        return {"rows and columns": found[[0, 2, 1]], "time": found[[1, 1, 2]], "none": 0 * found}[wrong]

    monkeypatch.setattr(SequenceMedia, "offsets_between", other)
    bundle = seeing.bundle
    engine = SimpleNamespace(entry=bundle.entry, open=lambda *_, **__: bundle.engine)
    with pytest.raises(ProofError, match="pictures: the logits"):
        image_proof._prove(load_whole(seeing.folder), bundle.vision.settings, bundle.manifest, engine, seeing.path)


def test_rows_of_a_batch_and_requests_of_a_service_see_their_own_pictures(qwen3_vl):
    texts = [f"in {qwen3_vl.token} the", "in the self = the"]
    expected = [qwen3_vl.expected(texts[0], [WIDE]), qwen3_vl.expected(texts[1], [])]
    found = qwen3_vl.bundle.generate_batch(texts, images=[[WIDE], []], max_new_tokens=NEW)
    assert [each.token_ids for each in found] == expected
    expected.insert(1, qwen3_vl.expected(texts[0], [TALL]))
    with qwen3_vl.bundle.serve() as service:
        asked = [(texts[0], [WIDE]), (texts[0], [TALL]), (texts[1], [])]
        requests = [service.submit(text, images=images, max_new_tokens=NEW) for text, images in asked]
        assert [request.generations()[0].token_ids for request in requests] == expected


def test_a_picture_that_comes_again_is_not_read_again(seeing):
    bundle, text = seeing.bundle, f"in the {seeing.token} self ="
    first = bundle.generate(text, images=[WIDE], max_new_tokens=6)
    runs = bundle.vision.encoder.runs
    bundle.reuse_last()
    again = bundle.generate(f"{text} and", images=[WIDE], max_new_tokens=NEW)
    assert bundle.vision.encoder.runs == runs
    assert again.cached_tokens >= first.prompt_tokens - 1
    assert again.token_ids == seeing.expected(f"{text} and", [WIDE])


def test_a_picture_that_is_too_narrow_is_refused(seeing):
    with pytest.raises(PromptError, match="received a picture of 201 x 1 pixels, expected sides of at most 200 to 1"):
        seeing.bundle.generate("what", images=[vision.picture(1, 201)])


def test_tokens_of_the_runtime_in_cpp_are_the_same(seeing, native):
    for text, images in PROMPTS:
        assert seeing.both_ways_in_cpp(native, text, images) == seeing.both_ways(text, images), text


def test_a_service_in_cpp_goes_on_from_equal_pictures_alone(seeing, native):
    text, other = f"in the {seeing.token} self =", vision.picture(40, 90, 7)
    service = NativeService(native)
    held = []
    for image in (WIDE, WIDE, other):
        found = service.generate(text, [image], max_new_tokens=NEW)
        assert found["token_ids"] == seeing.expected(text, [image])
        held.append((found["cached_tokens"], found["prompt_tokens"]))
    before = len("in the ")  # the picture
    assert [cached == total - 1 for cached, total in held] == [False, True, False]
    assert held[2][0] <= before + 1
    service.close()


def test_the_command_in_cpp_takes_files_of_pictures(seeing, native_build, onnxruntime_library, tmp_path):
    files = [
        tmp_path / "wide.ppm",
        tmp_path / "tall.ppm",
    ]  # formats with a library: tests/native/test_native_image_files.py
    for file, image in zip(files, (WIDE, TALL), strict=True):
        Image.fromarray(image).save(file)
    shown = [part for file in files for part in ("--image", str(file))]
    asked = [native_build / "speccompile-native", "generate", str(seeing.path), "-p", "what is it", "-n", str(NEW)]
    asked += ["--threads", "1", "--onnxruntime", str(onnxruntime_library)]
    done = subprocess.run([*asked, "--json", *shown], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["token_ids"] == seeing.bundle.generate("what is it", images=[WIDE, TALL], max_new_tokens=NEW).token_ids
    assert found["encode_seconds"] > 0
    done = subprocess.run([*asked, *shown], capture_output=True, text=True)
    assert re.search(r"tokens/s.*, pictures encoded in \d+\.\d\d s, finish reason length", done.stderr)
    for more, said in (
        (["--image", str(tmp_path / "none.png")], "No such file"),
        ([*shown, "--truncate", "left"], "received 'left' for a prompt with pictures"),
        ([*shown, "--session", str(tmp_path / "a")], "received pictures, expected a prompt of text"),
    ):
        done = subprocess.run([*asked, *more], capture_output=True, text=True)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    served = [asked[0], "serve", str(seeing.path), "--image-host", "images.example.com"]
    done = subprocess.run(served, capture_output=True, text=True)
    assert (done.returncode, "has no client of HTTPS" in done.stderr) == (2, True), done.stderr


def test_what_does_not_go_with_pictures_is_refused_in_cpp(seeing, native):
    session, given = native.session(), {"max_new_tokens": 3}
    assert native.encode(f"a {seeing.token} b") == seeing.bundle.text.encode(f"a {seeing.token} b")
    for prompts, images, said in (
        ([[5, 9, 7]], [[WIDE]], "the prompt has 0 placeholders of pictures"),
        ([f"{seeing.token} a {seeing.token}"], [[WIDE]], "received 2 in the prompt, expected 1, one for each picture"),
        (["a"], [[vision.picture(56, 56, seed) for seed in range(40)]], r"the prompt has \d+ tokens, more than"),
        (["a"], [[WIDE] * 65], "expected at most"),
        (["a"], [[b"GIF89a"]], r"images\[0\]: the picture cannot be decoded"),
        (["a"], [[WIDE[:0]]], "received a picture of 90 x 0 pixels"),
    ):
        with pytest.raises(PromptError, match=said):
            session.generate(prompts, images=images, **given)
    with pytest.raises(UsageError, match="images: received a picture for prompt 2 of 1"):
        session.generate(["a"], images=[[], [WIDE]], **given)
