"""From the torch round to the graphs of engines.

export       torch -> neutral ONNX; `translations`: torch operators of ours -> `neutral` ops, for torch's exporter
onnxruntime  neutral ONNX -> ONNX for ONNX Runtime on a CPU: the ordered list of passes, each with its reason
static_cache neutral ONNX -> ONNX for TensorRT and CUDA, likewise; `pass_list` runs such a list
passes       one rewrite per file: Model -> number of rewrites

In: a torch module of the round. Out: neutral and lowered graphs, in files that name their weights.
Imported by `prove`, `diagnose` and `build`; imports `models`, `step`, `weights` and what lies below.
"""
