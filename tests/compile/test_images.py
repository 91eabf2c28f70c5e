"""Bundles of targets that see pictures, against transformers' whole models."""

import io
import json
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import AutoTokenizer

from speccompile.cli import chat
from speccompile.cli.generation_output import summary
from speccompile.compiler.build import image_proof
from speccompile.compiler.models.image_encoder import load_whole
from speccompile.errors import PromptError, ProofError, UsageError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.media import SequenceMedia
from tests import vision
from tests.light.serve_example import Running
from tests.light.test_images_arguments import BASE64
from tests.seeing import NEW, PROMPTS, TALL, WIDE, Seeing, data_url, native, opened, server_of
from tests.suite.selection import sweep_but

__all__ = ["native"]  # a fixture

pytestmark = pytest.mark.builds(3)


@pytest.fixture(scope="module")
def idefics3(tmp_path_factory) -> Iterator[Seeing]:
    with opened(
        "idefics3",
        {"kind": "prompt_lookup", "ngram": 1, "tokens": 3},
        tmp_path_factory,
        batch_size=2,
    ) as seeing:
        yield seeing


@pytest.fixture(scope="module")
def internvl(tmp_path_factory) -> Iterator[Seeing]:
    with opened("internvl", {"kind": "layer_skip", "layers": [0], "tokens": 3}, tmp_path_factory) as seeing:
        yield seeing


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory) -> Iterator[Seeing]:
    """Yield a target whose pictures have 16 rows that see each other: more than a sliding window, a whole chunk."""
    with opened(
        "gemma3", {"kind": "layer_skip", "layers": [2, 3], "tokens": 3}, tmp_path_factory, batch_size=2
    ) as seeing:
        yield seeing


@pytest.fixture(params=sweep_but({"idefics3"}, ["idefics3", "internvl", "gemma3"], "a build each"))
def seeing(request) -> Seeing:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=sweep_but({"idefics3"}, ["idefics3", "gemma3"], "a build each"))
def two_slots(request) -> Seeing:
    """Build a bundle with two batch slots."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("text", "images"), PROMPTS, ids=["two", "first", "last", "none"])
def test_tokens_are_those_of_the_whole_model(seeing, text, images):
    assert seeing.both_ways(text, images) == [seeing.expected(text.format(seeing.token), images)] * 2


def test_the_proof_tells_what_was_compared(seeing):
    proof = json.loads((seeing.path / "proof.json").read_text())
    assert [row["graph"] for row in proof["graphs"] if row["graph"] == "encode_image"] == ["encode_image"]
    (row,) = proof["images"]
    assert (row["pictures"], row["chunks"], row["equal"], row["new_tokens"]) == (2, [1, 5, 16], True, 16)
    assert row["quality"] == {"tokens": row["prompt_tokens"] - 1, "same_argmax": 1.0, "kl_divergence": 0.0}
    assert row["engines"] == ["onnxruntime-cpu"]
    assert row["values"] == 3 * row["prompt_tokens"] * seeing.bundle.manifest.vocabulary_size


@pytest.mark.parametrize("wrong", ["rows of another place", "tiles of another order", "a draft too many"])
def test_the_proof_notices(idefics3, monkeypatch, wrong):
    bundle, images = idefics3.bundle, idefics3.bundle.vision.settings
    own = SequenceMedia.rows_between

    def shifted(self: SequenceMedia, start: int, stop: int) -> Any:
        places, rows = own(self, start, stop)
        return places, None if rows is None else np.roll(rows, 1, 0)

    if wrong == "rows of another place":
        monkeypatch.setattr(SequenceMedia, "rows_between", shifted)
    elif wrong == "tiles of another order":
        real = image_proof.open_encoder

        def flipped(*given: Any) -> Any:
            run = real(*given)
            return lambda tile: run({"pixels": tile["pixels"][:, :, ::-1].copy()})

        monkeypatch.setattr(image_proof, "open_encoder", flipped)
    else:
        generate = image_proof._generate

        def other(*given: Any, autoregressive: bool) -> Any:
            found = generate(*given, autoregressive=autoregressive)
            return found if autoregressive else SimpleNamespace(token_ids=found.token_ids[::-1])

        monkeypatch.setattr(image_proof, "_generate", other)
    engine = SimpleNamespace(entry=bundle.entry, open=lambda *_, **__: bundle.engine)
    with pytest.raises(ProofError, match=r"pictures: the logits|pictures: speculative decoding"):
        image_proof._prove(load_whole(idefics3.folder), images, bundle.manifest, engine, idefics3.path)


@pytest.mark.sweep("one more build: test_images_families.py has Gemma 4's in the first tier")
def test_the_proof_notices_rows_that_see_what_comes_before_alone(gemma3, monkeypatch):
    bundle = gemma3.bundle
    engine = SimpleNamespace(entry=bundle.entry, open=lambda *_, **__: bundle.engine)
    proven = load_whole(gemma3.folder), bundle.vision.settings, bundle.manifest, engine, gemma3.path
    image_proof._prove(*proven)
    monkeypatch.setattr(SequenceMedia, "_check_contiguous", lambda _: None)
    for name, value in (("chunk_stop", lambda *given: given[2]), ("blocks", np.zeros(192, np.int64))):
        with monkeypatch.context() as patched:
            patched.setattr(SequenceMedia, name, value)
            with pytest.raises(ProofError, match="pictures: the logits"):
                image_proof._prove(*proven)


def test_a_picture_that_comes_again_is_neither_encoded_nor_read_again(seeing):
    bundle, text = seeing.bundle, f"in the {seeing.token} self ="
    first = bundle.generate(text, images=[WIDE], max_new_tokens=6)
    runs = bundle.vision.encoder.runs
    bundle.reuse_last()
    again = bundle.generate(f"{text} and", images=[WIDE], max_new_tokens=6)
    assert bundle.vision.encoder.runs == runs
    assert again.cached_tokens >= first.prompt_tokens - 1
    bundle.reuse_last()
    other = bundle.generate(f"{text} and", images=[vision.picture(40, 90, 7)], max_new_tokens=6)
    assert bundle.vision.encoder.runs > runs
    assert other.cached_tokens < first.prompt_tokens // 2  # what stands before the picture
    assert (
        other.token_ids
        == bundle.generate(f"{text} and", images=[vision.picture(40, 90, 7)], max_new_tokens=6).token_ids
    )


@pytest.mark.sweep("one more build: test_images_families.py has Gemma 4's in the first tier")
def test_a_prompt_that_ends_with_a_picture_is_read_again_from_its_start(gemma3):
    """Read all rows of the last picture again: they see each other, and the last one gives the next token."""
    bundle = gemma3.bundle
    ids = bundle._prompt(f"in the {gemma3.token}", chat=False, hint=None, images=[WIDE]).ids
    rows = [place for place, token in enumerate(ids) if token == bundle.vision.settings.token_id]
    ids = ids[: rows[-1] + 1]
    first = bundle.generate(ids, images=[WIDE], max_new_tokens=NEW)
    bundle.reuse_last()
    again = bundle.generate(ids, images=[WIDE], max_new_tokens=NEW)
    assert (again.token_ids, again.cached_tokens) == (first.token_ids, rows[0])
    with bundle.serve() as service:
        requests = [service.submit(ids, images=[WIDE], max_new_tokens=NEW) for _ in range(3)]
        assert [request.generations()[0].token_ids for request in requests] == [first.token_ids] * 3


def test_rows_of_a_batch_see_their_own_pictures(two_slots):
    texts = [f"in {two_slots.token} the", "in the self = the"]
    expected = [two_slots.expected(texts[0], [WIDE]), two_slots.expected(texts[1], [])]
    for images in ([[WIDE], []], [[WIDE], None]):
        found = two_slots.bundle.generate_batch(texts, images=images, max_new_tokens=NEW)
        assert [each.token_ids for each in found] == expected
    both = two_slots.bundle.generate_batch(texts[:1] * 2, images=[[WIDE], [TALL]], max_new_tokens=NEW)
    assert [each.token_ids for each in both] == [expected[0], two_slots.expected(texts[0], [TALL])]


def test_a_service_sees_pictures(two_slots):
    text = f"in {two_slots.token} the"
    expected = [two_slots.expected(text, [each]) for each in (WIDE, TALL, WIDE)]
    with two_slots.bundle.serve() as service:
        requests = [service.submit(text, images=[each], max_new_tokens=NEW) for each in (WIDE, TALL, WIDE)]
        assert [request.generations()[0].token_ids for request in requests] == expected


def test_a_conversation_has_pictures_in_its_parts(seeing, tmp_path):
    bundle, file = seeing.bundle, tmp_path / "wide.png"
    Image.fromarray(WIDE).save(file)
    content = [{"type": "text", "text": "what"}, {"type": "image", "image": file}, {"type": "text", "text": "and"}]
    tokenizer, messages = AutoTokenizer.from_pretrained(seeing.folder), [{"role": "user", "content": content}]
    written = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    expected = seeing.expected(written, [WIDE])
    assert bundle.chat(messages, max_new_tokens=NEW).token_ids == expected
    content[1] = {"type": "image"}
    found = bundle.chat([{"role": "user", "content": content}], images=[file], max_new_tokens=NEW)
    assert found.token_ids == expected
    with pytest.raises(PromptError, match="received as pictures 0, expected 1, one for each part of type image"):
        bundle.chat([{"role": "user", "content": content}])
    content[1] = {"type": "image", "image": str(file)}
    with pytest.raises(PromptError, match="as a picture, expected bytes, an array or a"):
        bundle.chat(messages)
    typed = [{"role": "user", "content": f"a {seeing.token} b"}]
    assert bundle.vision.settings.token_id not in bundle.chat_token_ids(typed)


def metrics_of(server: Running) -> dict[str, float]:
    text = server.ask("GET", "/metrics").data.decode()
    return {name: float(value) for name, value in re.findall(r"^vllm:(\w+){.*} (\S+)$", text, re.M)}


def check_refused_pictures(server, content, form):
    """Check the words for wrong pictures. content: of a message with a right one."""
    for part, said in (
        ({"url": "http://localhost/a.png"}, "expected data:image/..;base64"),
        ({"url": "data:image/bmp;base64,aGVsbG8="}, "the picture cannot be decoded"),
        ({"url": data_url(WIDE, form), "detail": "tiny"}, "expected auto, high or low"),
        ({}, "received the URL None"),
    ):
        refused = server.chat([{"type": "image_url", "image_url": part}])
        assert (refused.status, said in refused.error["message"]) == (400, True), refused.json
    for text, (said, _) in BASE64.items():
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}
        refused = server.chat([{"type": "text", "text": "a"}, part])
        assert f"messages[0].content[1]: the picture is no base64: {said}" in refused.error["message"]
    refused = server.chat([{"type": "image", "image": "/etc/hostname"}]).error["message"]
    assert "expected text, or image_url for an image" in refused
    message = {"role": "user", "content": "what", "images": [data_url(WIDE, form)]}
    refused = server.ask("POST", "/v1/chat/completions", {"messages": [message]})
    assert (refused.status, refused.error["param"]) == (400, "messages[0].images")
    refused = server.chat(content, continue_final_message=True).error["message"]
    assert "received True beside pictures, no part of which can be dropped or continued" in refused


@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_server_takes_pictures_as_data_urls(idefics3, request, kind):
    tokenizer, form, kept = AutoTokenizer.from_pretrained(idefics3.folder), "PPM" if kind == "native" else "PNG", 0
    with server_of(kind, idefics3, request) as server:
        assert server.ask("GET", "/bundle").json["images"] is True
        for size in ((40, 90), (300, 700)):  # read in a thread, and in a child process
            image = vision.picture(*size)
            content = [
                {"type": "text", "text": f"a {idefics3.token} "},
                {"type": "image_url", "image_url": {"url": data_url(image, form), "detail": None}},
            ]
            answer = server.chat(content, max_tokens=NEW, temperature=0, return_token_ids=True)
            assert answer.status == 200, answer.json
            plain = [{"role": "user", "content": [{"type": "text", "text": "a TYPED "}, {"type": "image"}]}]
            written = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
            mark, pictures = chr(0xE000), idefics3.bundle.vision.pictures([image])
            kept += idefics3.bundle.vision.encoder.rows(pictures[0]).nbytes
            typed = written.replace("TYPED", idefics3.token[0] + mark + idefics3.token[1:])
            ids = idefics3.bundle.vision.prompt(typed, pictures, special_tokens=False, mark=mark).ids
            assert answer.json["usage"]["prompt_tokens"] == len(ids)
            expected = idefics3.bundle.generate(ids, images=[image], max_new_tokens=NEW)
            assert answer.json["choices"][0]["token_ids"] == expected.token_ids
            asked = {"messages": [{"role": "user", "content": content}]}
            assert server.ask("POST", "/tokenize", asked).json["tokens"] == ids
            note = {idefics3.token: f"{mark}{idefics3.token}"}  # as descriptions of tools
            usage = server.chat(content, max_tokens=1, chat_template_kwargs={"note": note}).json["usage"]
            noted = idefics3.bundle.token_ids(json.dumps(note, ensure_ascii=False))
            assert usage["prompt_tokens"] == len(ids) + len(noted)
        check_refused_pictures(server, content, form)
        assert server.chat(f"a {idefics3.token} b", max_tokens=3, temperature=0).status == 200
        found = metrics_of(server)
        assert (found["request_encode_time_seconds_count"], found["mm_cache_bytes"]) == (4, kept)
        assert found["mm_cache_queries_total"] - found["mm_cache_hits_total"] == 2  # pictures


def test_the_command_line_takes_pictures(seeing, tmp_path, cli):
    files = [tmp_path / "wide.png", tmp_path / "tall.png"]
    for file, image in zip(files, (WIDE, TALL), strict=True):
        Image.fromarray(image).save(file)
    asked = ["generate", str(seeing.path), "-p", "what is it", "-n", str(NEW), "--json", "--threads", "1"]
    code, out, err = cli(*asked, *(part for file in files for part in ("--image", str(file))))
    assert code == 0, err
    expected = seeing.expected(f"{seeing.token * 2}what is it", [WIDE, TALL])
    assert json.loads(out.splitlines()[-1])["token_ids"] == expected
    code, _, err = cli(*asked, "--image", tmp_path / "none.png")
    assert code == 2
    assert "No such file" in err


def test_a_chat_shows_pictures_and_encodes_them_once(idefics3, tmp_path, monkeypatch, capsys):
    file, bundle = tmp_path / "wide.png", idefics3.bundle
    Image.fromarray(vision.picture(40, 90, 3)).save(file)
    saves = [f"/save {tmp_path}/{name}" for name in ("c.json", "c.md")]
    lines = [f"/image {file}", "what", *saves, "and", "/image", "/image no"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    runs = bundle.vision.encoder.runs
    chat.converse(bundle, {"max_new_tokens": 4, "ignore_eos": True}, system=None, show_drafts=False)
    out, err = capsys.readouterr()
    shown = [{"type": "image", "image": file}, {"type": "text", "text": "what"}]
    first = bundle.chat([{"role": "user", "content": shown}], max_new_tokens=4, ignore_eos=True).text
    turns = [("user", shown), ("assistant", first), ("user", "and")]
    said = [{"role": role, "content": content} for role, content in turns]
    second = bundle.chat(said, max_new_tokens=4, ignore_eos=True).text
    assert out == f"{first}\n{second}\n"
    assert bundle.vision.encoder.runs - runs == 3  # tiles of one picture
    assert "the next message shows 1 picture\n" in err
    assert "received /image without a file" in err
    assert "No such file" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("what\n"))
    own = {"max_new_tokens": 4, "ignore_eos": True}
    chat.converse(bundle, own, system=None, show_drafts=False, images=[str(file)])
    assert capsys.readouterr().out == f"{first}\n"
    saved = json.loads((tmp_path / "c.json").read_text())
    assert saved[0]["content"] == [{"type": "image", "image": str(file)}, {"type": "text", "text": "what"}]
    assert (tmp_path / "c.md").read_text().startswith(f"## user\n\n[{file}]\nwhat\n")


def test_the_last_line_tells_the_time_of_encoding(seeing, tmp_path, cli):
    file = tmp_path / "other.png"
    Image.fromarray(vision.picture(60, 50, 9)).save(file)
    asked = ["generate", str(seeing.path), "-p", "what", "-n", "3", "--threads", "1"]
    code, out, err = cli(*asked, "--json", "--image", str(file))
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["encode_seconds"] > 0
    found = seeing.bundle.generate("what", images=[vision.picture(61, 50, 9)], max_new_tokens=3)
    assert re.search(r"tokens/s.*, pictures encoded in \d+\.\d\d s, finish reason length", summary(found))
    assert 0 < found.to_json()["encode_seconds"] <= found.prefill_seconds
    assert seeing.bundle.generate("what", images=[vision.picture(61, 50, 9)], max_new_tokens=3).encode_seconds < 1e-3
    assert "encode_seconds" not in seeing.bundle.generate("what", max_new_tokens=3).to_json()


def test_what_does_not_go_with_pictures_is_refused(seeing, tmp_path):
    bundle = seeing.bundle
    with pytest.raises(UsageError, match="truncate: received 'left' for a prompt with pictures"):
        bundle.generate("what", images=[WIDE], truncate="left")
    with pytest.raises(UsageError, match="received pictures, expected a prompt of text: pictures are not saved"):
        bundle.generate("what", images=[WIDE], session=tmp_path / "a.session")
    with pytest.raises(PromptError, match="the prompt has 0 placeholders of pictures"):
        bundle.generate([5, 9, 7], images=[WIDE])
    with pytest.raises(PromptError, match=r"the prompt has \d+ tokens, more than this bundle's capacity"):
        bundle.generate("what", images=[vision.picture(56, 56, seed) for seed in range(40)])
    bundle.generate("what", images=[WIDE], max_new_tokens=3)
    with pytest.raises(UsageError, match="holds pictures"):
        bundle.save_session(tmp_path / "a.session")


def test_inspect_and_the_manifest_tell_the_pictures(seeing, cli):
    code, out, _ = cli("inspect", seeing.path)
    assert code == 0
    assert f"pictures    {seeing.bundle.vision.settings.describe()}" in out
    assert "images" in out.partition("proof (proof.json)")[2]
    written = json.loads((seeing.path / "manifest.json").read_text())["plan"]["images"]
    assert ImageSettings.from_json(written) == seeing.bundle.vision.settings


def test_tokens_of_the_runtime_in_cpp_are_the_same(seeing, native):
    for text, images in PROMPTS:
        assert seeing.both_ways_in_cpp(native, text, images) == seeing.both_ways(text, images), text
