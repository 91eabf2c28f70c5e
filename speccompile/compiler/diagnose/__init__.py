"""Diagnosis of engines that fail or differ from their graph, with polygraphy: before, during and after a build.

capability    before: the nodes that TensorRT's parser refuses
compare       during: two graphs window by window from the same state, in ONNX Runtime or on a GPU
reduce        after: the smallest graph that TensorRT still refuses or crashes on, for a report

In: graphs, an engine. Out: a report. polygraphy is imported on first use, and kept off stdout.
Imported by `build`; imports `prove`, `lower` and the rooms below.
"""
