"""`speccompile finish` on a bundle that it may not write."""

import errno

import pytest

from speccompile.bundle import BundleWriter, EngineEntry
from speccompile.bundle.manifest import TensorRTBuild
from speccompile.compiler.engines import flavour
from speccompile.compiler.engines.finish import finish
from speccompile.errors import BuildError
from tests.light.bundle_example import fill, manifest, verify_graph


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """Return a bundle with one deferred engine, which this machine could build."""
    monkeypatch.setattr(flavour, "check_buildable", lambda backend: None)
    monkeypatch.setattr(flavour, "find_gpu", lambda: None)
    build = TensorRTBuild("no GPU", {"verify": "graphs/verify.onnx"}, {"verify": {}}, {})
    entry = EngineEntry("later", "tensorrt", "cuda", {}, {"target": "float16"}, (verify_graph(),), "9.0", build)
    with BundleWriter(tmp_path / "demo") as writer:
        fill(writer.folder)
        writer.finish(manifest(engines=(entry,)), {}, {})
    return tmp_path / "demo"


def test_a_bundle_that_cannot_be_written_is_told(bundle, monkeypatch):
    def refuse(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("speccompile.bundle.writer.tempfile.TemporaryDirectory", refuse)
    with pytest.raises(BuildError, match=r"the output .*demo cannot be used: Read-only file system") as raised:
        finish(bundle)
    assert (
        raised.value.hint == "copy the bundle to a folder that can be written, with room beside it, and finish it there"
    )
    assert [path.name for path in bundle.parent.iterdir()] == ["demo"]
