"""Bundles of tiny targets that see pictures, beside transformers' whole models."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from speccompile.compiler.build import build
from speccompile.compiler.models.image_inputs import pixel_inputs, token_inputs
from speccompile.plan.plan import Plan
from speccompile.recipe import make_plan
from speccompile.recipe.load import parse_recipe
from speccompile.runtime import Bundle
from speccompile.runtime.images.families import FAMILIES
from speccompile.serving.http.model import ServedModel
from tests import vision
from tests.light.serve_example import Running, serving
from tests.light.test_cli_serve import ready
from tests.native.native_api import NativeBundle
from tests.native.served import started

NEW = 20
WIDE, TALL = vision.picture(40, 90), vision.picture(90, 33, 1)


def planned(name: str, drafter: Any, folder: Path, recipe: Any = None, **more: Any) -> Plan:
    """Write a family's target into `folder` unless it is there, and return the plan of a bundle. recipe: more of it;
    more: of its cache."""
    if not (folder / name).exists():
        vision.save(vision.model(name), name, folder / name)
    own = recipe or {}
    target = {"model": str(folder / name), "images": True} | own.get("target", {})
    whole = {"prove": {"max_new_tokens": 8}} | own | {
        "name": "seeing", "target": target, "drafter": drafter,
        "cache": {"max_length": 192, "prefill_chunk": 16, **more},
    }  # fmt: skip
    return make_plan(parse_recipe(whole, Path("recipe"), []))


def made(name: str, drafter: Any, folder: Path, recipe: Any = None, **more: Any) -> Path:
    """Build the bundle of `planned` in `folder`, and return it."""
    return build(planned(name, drafter, folder, recipe, **more), folder / f"{name}.{drafter['kind']}")


class Seeing:
    """An open bundle, and transformers' whole model."""

    def __init__(self, name: str, bundle: Path, folder: Path) -> None:
        self.name, self.folder, self.path = name, folder / name, bundle
        self.bundle = Bundle.open(bundle, threads=1)
        self.whole = AutoModelForImageTextToText.from_pretrained(self.folder, attn_implementation="eager").eval()
        self.token = vision.placeholder(name)

    def expected(self, text: str, images: Sequence[Any]) -> list[int]:
        """Return transformers' plain greedy tokens, of its own pixels."""
        ids = torch.tensor([self.bundle._prompt(text, chat=False, hint=None, images=images).ids])
        pixels = {}
        if images:
            pixels = self._pixels(images) | token_inputs(self.whole, ids)
        pixels.setdefault("input_ids", ids)
        if self.name in vision.ON_AXES and text.endswith(self.token):
            return self._recomputed(pixels)
        found = self.whole.generate(
            attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, eos_token_id=None,
            **pixels,
        )  # fmt: skip
        return found[0, ids.shape[1] :].tolist()

    def _pixels(self, images: Sequence[Any]) -> dict[str, Any]:
        """Return the pixels of transformers' own processor; our own where that needs torchvision."""
        settings = self.bundle.vision.settings
        if self.name == "lfm2_vl":
            return pixel_inputs(FAMILIES[settings.family](settings), images)
        shown: list[Any] = [Image.fromarray(each) for each in images]
        with vision.width_first():
            given = vision.processor(self.folder)(
                images=shown if self.name in vision.FLAT else [shown], return_tensors="pt"
            )
        names = "pixel_values", "pixel_attention_mask", "image_grid_thw", "image_sizes", "image_position_ids"
        return {key: given[key] for key in names if key in given}

    def both_ways(self, text: str, images: Sequence[Any]) -> list[list[int]]:
        """Return the bundle's tokens for a prompt without drafts and with them. text: with {} for each picture."""
        text = text.format(self.token)
        ways = ({"autoregressive": True}, {"autoregressive": False})
        given: dict[str, Any] = {"images": list(images), "max_new_tokens": NEW, "adaptive": False}
        return [self.bundle.generate(text, **given, **way).token_ids for way in ways]

    def both_ways_in_cpp(self, native: NativeBundle, text: str, images: Sequence[Any]) -> list[list[int]]:
        """Return the tokens of the runtime in C++ as `both_ways` does."""
        session, given = native.session(), {"images": [list(images)], "max_new_tokens": NEW, "adaptive": 0}
        ways = (session.generate([text.format(self.token)], **given, autoregressive=way) for way in (1, 0))
        return [found["token_ids"] for (found,) in ways]

    @torch.no_grad()
    def _recomputed(self, given: dict[str, Any]) -> list[int]:
        """Return the greedy tokens of the whole model without a cache: `generate` goes on from the last position on
        each axis instead of the largest, which differ where a prompt ends with a picture."""
        ids = given["input_ids"]
        for _ in range(NEW):
            inputs = given | token_inputs(self.whole, ids)
            ids = torch.cat([ids, self.whole(**inputs, use_cache=False).logits[:, -1:].argmax(2)], 1)
        return ids[0, given["input_ids"].shape[1] :].tolist()


PROMPTS = [
    ("in the {0}self{0} = the", (WIDE, TALL)),
    ("{0}in the self = the", (TALL,)),
    ("in the self = the{0}", (WIDE,)),
    ("in the self = the", ()),
]


@pytest.fixture
def native(seeing: Seeing, native_library: Path, onnxruntime_library: Path) -> NativeBundle:
    """Return the module's bundle `seeing`, opened by the runtime in C++."""
    return NativeBundle(seeing.path, library=native_library, onnxruntime=onnxruntime_library, threads=1)


@contextmanager
def opened(name: str, drafter: Any, folders: pytest.TempPathFactory, **cache: Any) -> Iterator[Seeing]:
    """Yield the bundle of a family, which is built. cache: keys of its recipe's section `cache`."""
    folder = folders.mktemp(name)
    seeing = Seeing(name, made(name, drafter, folder, **cache), folder)
    yield seeing
    seeing.bundle.close()


def data_url(image: Any, form: str = "PNG") -> str:
    held = BytesIO()
    Image.fromarray(image).save(held, form)
    return f"data:image/{form.lower()};base64,{b64encode(held.getvalue()).decode()}"


@contextmanager
def server_of(kind: str, seeing: Seeing, request: Any) -> Iterator[Running]:
    """Yield a server of either language over a bundle."""
    if kind == "native":
        given = (request.getfixturevalue(name) for name in ("native_build", "onnxruntime_library"))
        with started(kind, *given, seeing.path, "--threads", 1) as (_, address):
            yield ready(address)
        return
    model = ServedModel("seeing")
    model.start(Bundle.open(seeing.path, threads=1), seeing.path)
    with serving(model) as server:
        yield server
