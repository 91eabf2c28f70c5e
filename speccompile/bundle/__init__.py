"""The bundle on disk: written whole or not at all, verified when opened."""

from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import OpenedBundle, open_bundle
from speccompile.bundle.writer import BundleWriter, check_output

__all__ = ["BundleWriter", "EngineEntry", "Manifest", "OpenedBundle", "check_output", "open_bundle"]
