"""From the torch round to the graphs of engines.

export       torch -> neutral ONNX (opset 24, the neutral ops as ONNX functions with a reference body)
translations torch operators of ours -> neutral ops, for torch's exporter
neutral      the neutral ops: schema and reference body
onnxruntime  neutral ONNX -> ONNX for ONNX Runtime on a CPU: the ordered list of passes, each with its reason
static_cache neutral ONNX -> ONNX for TensorRT and CUDA, likewise
pass_list    run such a list; the last passes, which all lists share
passes       one rewrite per file: Model -> number of rewrites
"""
