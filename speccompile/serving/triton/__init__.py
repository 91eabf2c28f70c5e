"""Bundles in NVIDIA's Triton Inference Server: its model repository, and the model that answers its requests.

tensors.py     tensors of a request and of its answer, which config.py writes into config.pbtxt
repository.py  a repository's folder, written completely or not at all
native.py      libraries of the native backend
model.py       loaded by the server's Python backend: a copy lies in the repository
requests.py    parses and checks a request
serving.py     answers requests, round by round

The last three run in the server's Python, on the runtime alone.
"""
