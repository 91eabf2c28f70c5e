"""Engines over static buffers: ONNX Runtime on a processor or a device, and TensorRT. `engines` chooses one for a
bundle, `engine` is their interface."""
