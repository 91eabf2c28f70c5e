"""Rows of a source: codes with scales, caches on a device, and the lengths for which engines are built."""

import dataclasses
from pathlib import Path

import numpy as np

from speccompile.bundle.caches import code_bits, with_quantized_caches
from speccompile.bundle.source_section import source_problems
from speccompile.bundle.sources import is_cross_state
from speccompile.compiler.engines.settings import make_settings
from speccompile.contract import ENCODE_SOURCE, INT4_VALUES, Graph, Tensor, is_scale
from speccompile.runtime.devices.device import DeviceEngine
from speccompile.runtime.rounds.source_encoder import SourceEncoder
from tests.light.bundle_example import manifest
from tests.light.fake_cuda import FakeCuda
from tests.light.test_sources import SECTION, encoder


def test_rows_of_a_source_may_be_codes_with_scales():
    stored = with_quantized_caches(encoder(), {"target.cross_key.0": 4})
    codes, scales = stored.outputs
    assert (codes.dtype, codes.shape, scales.buffer, scales.shape) == (
        "int8", (1, 2, 5, 2), "target.cross_key_scale.0", (1, 2, 5, 2),
    )  # fmt: skip
    assert is_cross_state(scales.buffer)
    assert is_scale(scales.buffer)
    assert not is_scale("target.scaled.0")
    assert list(source_problems(SECTION, {ENCODE_SOURCE: stored}, 6)) == []
    assert code_bits(INT4_VALUES, "target.cross_value.0") == 4
    assert code_bits(INT4_VALUES, "target.cross_key.0") == 8


class Encoding(DeviceEngine):
    """Its encoder writes the tokens of a source as rows of a cache on the device."""

    def __init__(self, cuda, *graphs):
        super().__init__(cuda.open(), graphs, {each.name: Path(each.name) for each in graphs})
        self._cuda = cuda

    def _prepare(self, binding):
        source, _ = binding.inputs
        (cache,) = binding.outputs

        def encode():
            tokens = self._cuda.view(source.address, 8 * source.shape[1]).view(np.int64)
            rows = self._cuda.view(cache.address, 4 * cache.shape[2]).view(np.float32)
            rows[: len(tokens)] = tokens

        def run():
            self._with_copies(binding, lambda: self._cuda.put(self._device.stream, encode))
            self._device.synchronize()

        return run


def test_sources_are_encoded_into_caches_on_a_device():
    cuda, one = FakeCuda(), (1, 1, 5, 1)
    state = Tensor("target.cross_key.0", "float32", one, "target.cross_key.0", "state")
    read = Tensor("source", "int64", (1, "source"), "source", "io")
    encode = Graph(ENCODE_SOURCE, (read, state), (dataclasses.replace(state, name="target.cross_key.0.out"),))
    length = Tensor("source_length", "int64", (1,), "source_length", "io")
    engine = Encoding(cuda, encode, Graph("verify", (length, state), ()))
    encoder = SourceEncoder(engine, dataclasses.replace(manifest(max_length=40), source=SECTION, graphs=(encode,)))
    for source, rows in (([7, 8, 9], [7, 8, 9, 0, 0]), ([4], [4, 8, 9, 0, 0])):
        encoder.encode(0, source, str(source))
        assert engine.host_view("target.cross_key.0", one).ravel().tolist() == rows
        assert engine.host_view("source_length", (1,)).tolist() == [len(source)]
    encoder.encode(0, [4], "[4]")
    assert encoder.runs == 2


def test_engines_encode_sources_of_every_length():
    fixed = {"backend": "tensorrt_rtx", "compute_capability": "8.9", "precision": {}}
    made = make_settings(encoder(80), **fixed, tokens=3, catch_up=2, prefill_chunk=8, max_length=40)
    assert made.profile == {"source": ((1, 1), (1, 64), (1, 80))}
    assert make_settings(encoder(7), **fixed, tokens=3, catch_up=2, prefill_chunk=8, max_length=40).profile == {
        "source": ((1, 1), (1, 7), (1, 7))
    }
