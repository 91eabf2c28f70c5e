"""What runs a graph over static buffers: ONNX Runtime on a processor or a device, or TensorRT; which of them a bundle's
engines need (`engines`), and what all have in common (`engine`).
"""
