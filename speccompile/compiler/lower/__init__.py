"""From the torch round to graphs an engine takes.

export       torch -> neutral ONNX (opset 24, the two neutral ops as ONNX functions with a reference body)
neutral      the neutral ops: schema, reference body, translation
onnxruntime  neutral ONNX -> ONNX for ONNX Runtime on a CPU: the ordered list of passes, each with its reason
masked       neutral ONNX -> ONNX for TensorRT and CUDA, likewise
pass_list    how such a list is run, and its end, which all share
passes       one rewrite a file: Model -> Model, with a count of how often it fired
"""
