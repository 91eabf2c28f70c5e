"""Pictures in a request over HTTP are decoded and hashed once, when the request is read."""

import base64
import io
import json
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from speccompile.compiler.checkpoints.images import read_images
from speccompile.errors import OverloadedError
from speccompile.runtime.images import reader as readers
from speccompile.runtime.images.encoder import Picture
from speccompile.runtime.images.family import Grid
from speccompile.runtime.images.reader import ImageReader
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.images import HeldPictures
from speccompile.serving.http.reading.reader import read_image
from speccompile.serving.http.reading.tasks import CHAT, Reading
from speccompile.serving.http.requests import TokenizedBody, submit
from tests import vision


@pytest.fixture
def reading(tmp_path) -> Reading:
    """Return the reading of bodies for a bundle that sees, but encodes nothing."""
    folder = vision.save(vision.model("internvl"), "internvl", tmp_path)
    settings = read_images(folder)
    text = Tokenizer(folder / "tokenizer.json", settings.placeholders)
    bundle = SimpleNamespace(
        vision=ImageReader(settings, lambda: pytest.fail("nothing is encoded here"), text), text=text,
        chat_template=(vision.CHAT.replace("IMAGE", str(settings.token)), {}), adapters=(),
        manifest=SimpleNamespace(max_length=512, vocabulary_size=400, decoding="greedy", constraints=False),
    )  # fmt: skip
    return Reading(bundle, "seeing")  # type: ignore[arg-type]


def body(low: bool, **more: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(vision.picture(40, 90)).save(file, "PNG")
    url = {"url": f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"}
    part = {"type": "image_url", "image_url": url | ({"detail": "low"} if low else {})}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "what"}]}]
    return json.dumps({"messages": messages, **more}).encode()


def test_pixels_of_all_requests_are_bounded() -> None:
    held, (one, two) = (
        HeldPictures(most=30),
        (Picture(np.zeros((2, 4, 3), np.uint8), key, Grid(1, 1, whole=False)) for key in (b"1", b"2")),
    )
    held.take([one])
    with pytest.raises(OverloadedError, match="of all requests have 48 bytes of pixels, expected at most 30"):
        held.take([two])
    del one
    held.take([two])


def test_pixels_are_dropped_once_they_are_encoded(reading):
    asked = reading.request(CHAT, body(low=False))
    (picture,), gone, run = asked.options["images"], [], []
    weakref.finalize(picture, gone.append, True)
    media = reading.bundle.vision.of_ids(asked.prompts[0], [picture]).media
    media._encoder.rows = lambda picture: run.append(picture.key) or np.zeros((999, 8), np.float32)
    service = SimpleNamespace(submit=lambda *_, **__: None)
    submit(asked, service)
    del picture
    assert not gone
    for _ in range(2):
        media.rows_between(0, len(asked.prompts[0]))
    assert (gone, len(run)) == ([True], 1)


@pytest.mark.parametrize("low", [False, True])
def test_a_picture_is_decoded_and_hashed_once_in_each_process(reading, monkeypatch, low):
    decoded, hashed = [], []
    own, of = readers.read_picture, Picture.of
    monkeypatch.setattr(readers, "read_picture", lambda *args: [decoded.append(args), own(*args)][1])
    monkeypatch.setattr(Picture, "of", lambda *args, **more: [hashed.append(args), of(*args, **more)][1])
    asked = reading.request(CHAT, body(low))
    (picture,) = asked.options["images"]
    assert (len(decoded), len(hashed), picture.is_low) == (1, 1, low)
    assert reading.bundle.vision.pictures([picture]) == [picture]  # as the service submits it
    written = json.loads(reading.checked(CHAT, body(low)))  # in another process, which gives files back
    assert (len(decoded), len(hashed)) == (2, 2)
    tokenized = TokenizedBody(written["fields"], written["prompts"], list(map(read_image, written["images"])))
    assert reading.finished(CHAT, tokenized).options["images"][0].key == picture.key
    assert (len(decoded), len(hashed)) == (3, 3)


def test_placeholders_in_variables_of_the_template_are_text(reading):
    """Descriptions of tools come from users as well, names of parameters included."""
    token = reading.bundle.vision.settings.token
    note = {token: [f"{token}\ue000"]}
    (plain,) = reading.request(CHAT, body(low=False)).prompts
    (found,) = reading.request(CHAT, body(low=False, chat_template_kwargs={"note": note})).prompts
    behind = found[len(plain) :]
    assert (found[: len(plain)], token in reading.bundle.text.decode(behind)) == (plain, True)
    assert reading.bundle.text.decode(behind) == json.dumps(note, ensure_ascii=False)
    assert reading.bundle.vision.settings.token_id not in behind


@pytest.mark.parametrize("low", [False, True])
def test_tokens_of_a_conversation_with_pictures_are_those_of_its_request(reading, low):
    found = json.loads(reading.tokens(body(low)))
    assert found["tokens"] == reading.request(CHAT, body(low)).prompts[0]
    assert found["tokens"].count(reading.bundle.vision.settings.token_id) == (4 if low else 12)


@pytest.mark.parametrize(("name", "value"), [("truncate_prompt_tokens", 5), ("continue_final_message", True)])
def test_pictures_are_neither_dropped_nor_continued(reading, name, value):
    with pytest.raises(RequestError, match=f"{name}: received {value} beside pictures, no part of which can be"):
        reading.request(CHAT, body(low=False, **{name: value}))
    assert reading.request(CHAT, body(low=False, continue_final_message=False)).prompts
