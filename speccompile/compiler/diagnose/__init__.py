"""What to look at when an engine is not what the graph says, with polygraphy: before, beside and behind a build.

capability    before: the nodes that TensorRT's parser refuses
compare       beside: two graphs window by window from the same state, in ONNX Runtime or on a GPU
reduce        behind: the smallest graph that TensorRT still refuses or crashes on, for a report

polygraphy is imported when it is used, and told to keep off stdout.
"""
