"""The bundle on disk, written completely or not at all and verified when it is opened; and the build cache.

In: a manifest and files, or a folder. Out: the folder, or its content.
Imported by every room above it; imports the ground and `machine`, and neither torch nor onnx.
"""

from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import OpenedBundle, open_bundle
from speccompile.bundle.writer import BundleWriter, check_output

__all__ = ["BundleWriter", "EngineEntry", "Manifest", "OpenedBundle", "check_output", "open_bundle"]
