"""Bundles in NVIDIA's Triton Inference Server: the model repository that it reads, and what answers its requests.

tensors.py     the tensors of a request and of its answer
config.py      config.pbtxt
repository.py  a repository's folder, written whole or not at all
native.py      the libraries of the native backend
model.py       what the server's Python backend loads: a copy lies in the repository
requests.py    a request, read and checked
serving.py     requests to answers, round by round

The last three run in the server's Python, on the runtime alone.
"""
