"""ONNX -> TensorRT engine, for both flavours: settings, a builder in a separate process, a cache.

In: a graph's file and settings. Out: an engine's file and its size in memory, or EngineError.
It also runs on the device (`speccompile finish`), so it imports only errors, contract, progress, bundle, the standard
library and a TensorRT module, which comes as an argument. Imported by `diagnose`, `build` and `cli`.
"""

from speccompile.compiler.engines.build import build_or_load, check_limits, plan_file, store_weights_once
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.settings import Settings, make_settings

__all__ = ["Limits", "Settings", "build_or_load", "check_limits", "make_settings", "plan_file", "store_weights_once"]
