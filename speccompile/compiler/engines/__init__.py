"""ONNX -> TensorRT engine, for both flavours: settings, a builder in a separate process, a cache.

It also runs on the device (`speccompile finish`), so it imports only errors, contract, progress, bundle, the standard
library and a TensorRT module, which comes as an argument.
"""

from speccompile.compiler.engines.build import build_or_load, check_limits, plan_file, store_weights_once
from speccompile.compiler.engines.limits import Limits
from speccompile.compiler.engines.settings import Settings, make_settings

__all__ = ["Limits", "Settings", "build_or_load", "check_limits", "make_settings", "plan_file", "store_weights_once"]
