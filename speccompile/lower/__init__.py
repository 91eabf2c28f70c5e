"""From the torch round to graphs an engine takes.

export       torch -> neutral ONNX (opset 24, the two neutral ops as ONNX functions with a reference body)
neutral      the neutral ops: schema, reference body, translation
onnxruntime  neutral ONNX -> ONNX for ONNX Runtime: the ordered list of passes, each with its reason
passes       one rewrite a file: Model -> Model, with a count of how often it fired
"""
