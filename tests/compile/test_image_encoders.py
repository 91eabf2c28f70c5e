"""Encoders of pictures in bfloat16 and int8, in both runtimes, and one that takes long in a service in C++."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.compiler.build import build
from speccompile.compiler.lower.export_encoder import ENCODER_FILE
from speccompile.errors import ProofError, UsageError
from speccompile.runtime.images.encoder import LowDetail
from tests import vision
from tests.compile.kernel_runs import operators_of
from tests.native.native_api import NativeBundle, NativeRequest
from tests.native.native_service import NativeService
from tests.seeing import NEW, PROMPTS, TALL, WIDE, Seeing, made, planned

pytestmark = [pytest.mark.builds(5), pytest.mark.sweep("bundles of their own, for encoders of every form")]

DRAFTER = {"kind": "prompt_lookup", "ngram": 1, "tokens": 3}
FORMS = {"llava": "int8", "pixtral": "int8", "qwen3_vl": "bfloat16"}


def recipe(word: str, most: float) -> dict[str, object]:
    return {"target": {"encoder_precision": word}, "prove": {"max_new_tokens": 8, "max_encoder_divergence": most}}


@pytest.fixture(scope="module", params=FORMS)
def seeing(request, tmp_path_factory) -> Iterator[Seeing]:
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    bundle = made(name, DRAFTER, folder, recipe(FORMS[name], 1.0), batch_size=2)
    seeing = Seeing(name, bundle, folder)
    yield seeing
    seeing.bundle.close()


def test_the_proof_states_the_loss_and_the_graph_its_weights(seeing):
    word = FORMS[seeing.name]
    (row,) = json.loads((seeing.path / "proof.json").read_text())["images"]
    loss = row["encoder"]
    assert (loss["precision"], row["equal"], row["chunks"]) == (word, True, [1, 5, 16])
    assert 0 < loss["rms_error"] < {"int8": 0.1, "bfloat16": 0.01}[word]
    assert 0 < loss["kl_divergence"] < 1.0
    assert row["quality"]["kl_divergence"] == pytest.approx(loss["kl_divergence"], abs=1e-5)  # the target is in float32
    assert row["quality"]["tokens"] == row["prompt_tokens"] - 1
    linear = [name for name in operators_of(seeing.path / ENCODER_FILE) if name.startswith("Linear")]
    assert len(linear) > 8
    assert set(linear) == {{"int8": "LinearInt8", "bfloat16": "LinearBFloat16"}[word]}
    assert sorted(path.name for path in (seeing.path / "images").iterdir()) == [
        "encode_image.onnx", "encode_image.weights",
    ]  # fmt: skip
    assert f"encoded in {word}" in seeing.bundle.vision.settings.describe()


def test_rows_are_near_those_of_float32(seeing):
    """Rows of transformers, whose features the loss compares with."""
    reader = seeing.bundle.vision
    with vision.width_first():
        pixels = seeing._pixels([WIDE])
    found = reader.encoder.rows(reader.pictures([WIDE])[0])[:, : seeing.whole.config.text_config.hidden_size]
    expected = seeing.whole.get_image_features(**pixels).pooler_output
    expected = np.concatenate([each.detach().numpy() for each in expected])
    assert np.sqrt(np.square(found - expected).mean() / np.square(expected).mean()) < 0.1


def test_tokens_of_the_runtime_in_cpp_are_the_same(seeing, native_library, onnxruntime_library):
    native = NativeBundle(seeing.path, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    for text, images in PROMPTS:
        assert seeing.both_ways_in_cpp(native, text, images) == seeing.both_ways(text, images), text


def test_a_loss_beyond_the_bound_fails_the_build(seeing):
    word = FORMS[seeing.name]
    plan = planned(seeing.name, DRAFTER, seeing.folder.parent, recipe(word, 1e-9), batch_size=2)
    with pytest.raises(ProofError, match=f"an encoder in {word} changes the target's probabilities behind pictures by"):
        build(plan, seeing.folder.parent / "refused")
    assert not (seeing.folder.parent / "refused").exists()


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> Seeing:
    """Build a bundle whose encoder takes a second or more for a tile."""
    folder = tmp_path_factory.mktemp("slow")
    seeing = Seeing("llava", made("llava", DRAFTER, folder, batch_size=3), folder)
    shutil.copytree(seeing.path, folder / "slow")
    _slow_down(folder / "slow" / ENCODER_FILE)
    write_hashes(folder / "slow", hash_folder(folder / "slow"))
    seeing.path = folder / "slow"
    return seeing


def _slow_down(file: Path) -> None:
    """Multiply matrices in a loop, whose result is added 0 times to the rows."""
    model = onnx.load(file, load_external_data=False)
    graph, square = model.graph, np.full((512, 512), 1 / 512, np.float32)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["slow.x", "slow.matrix"], ["slow.y"]), helper.make_node("Identity", ["slow.go"],
         ["slow.on"])], "slow", [value("slow.i", 7, []), value("slow.go", 9, []), value("slow.x", 1, [512, 512])],
        [value("slow.on", 9, []), value("slow.y", 1, [512, 512])],
    )  # fmt: skip
    (rows,) = graph.output
    last = next(node for node in graph.node if rows.name in node.output)
    last.output[list(last.output).index(rows.name)] = "slow.rows"
    graph.initializer.extend([
        numpy_helper.from_array(square, "slow.matrix"), numpy_helper.from_array(np.array(100), "slow.trips"),
        numpy_helper.from_array(np.array(True), "slow.true"), numpy_helper.from_array(np.float32(0), "slow.zero"),
    ])  # fmt: skip
    graph.node.extend([
        helper.make_node("Loop", ["slow.trips", "slow.true", "slow.matrix"], ["slow.end"], body=body),
        helper.make_node("ReduceMean", ["slow.end"], ["slow.mean"], keepdims=0),
        helper.make_node("Mul", ["slow.mean", "slow.zero"], ["slow.nothing"]),
        helper.make_node("Add", ["slow.rows", "slow.nothing"], [rows.name]),
    ])  # fmt: skip
    onnx.save(model, file)


def test_rounds_of_others_go_on_in_cpp_while_a_picture_is_encoded(slow, native_library, onnxruntime_library):
    native = NativeBundle(slow.path, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    service, text = NativeService(native), "in the self = the"
    seen, given = f"in {slow.token} the", {"autoregressive": 1, "max_new_tokens": 60}
    running = service.submit(text, [], **given)
    gone = service.submit(seen, [TALL], **given)
    first = service.submit(seen, [WIDE], **given)
    service.cancel(gone)  # it waits, or its picture is being encoded, which nobody needs any more
    later = service.submit("in the", [], **given)
    other, begun = service.finish(running), service.finish(later)
    assert service.is_silent(first)  # a picture waits outside the slots
    assert begun["token_ids"][:NEW] == slow.expected("in the", [])
    assert len(other["token_ids"]) == 60
    assert other["token_ids"][:NEW] == slow.expected(text, [])
    assert service.finish(gone)["finish_reason"] == "cancelled"
    found = service.finish(first)
    assert found["token_ids"][:NEW] == slow.expected(seen, [WIDE])
    assert found["encode_seconds"] > 0
    assert service.generate(f"{seen} and", [WIDE], **given)["encode_seconds"] == 0  # its rows are kept
    service.close()


def test_a_picture_with_less_detail_in_cpp(tmp_path, native_library, onnxruntime_library):
    seeing = Seeing("internvl", made("internvl", DRAFTER, tmp_path), tmp_path)
    native = NativeBundle(seeing.path, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    large, text = vision.picture(112, 60), f"in {seeing.token} the"
    for shown in ([large], [LowDetail(large)], [LowDetail(large), WIDE]):
        prompt = text.replace(seeing.token, seeing.token * len(shown))
        (found,) = native.session().generate([prompt], images=[shown], max_new_tokens=NEW)
        expected = seeing.bundle.generate(prompt, images=shown, max_new_tokens=NEW)
        assert (found["token_ids"], found["prompt_tokens"]) == (expected.token_ids, expected.prompt_tokens)
    request = NativeRequest(native.library, ["a"], [], {"images": [[WIDE]]})
    for prompt, word, said in ((0, b"tiny", "detail: received 'tiny', expected auto, high or low"),
                               (1, b"low", "received a detail for a prompt without pictures")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            native.library.spc_request_set_image_detail(request.handle, prompt, word)
    native.library.spc_request_set_image_detail(request.handle, 0, b"high")
