"""Files that others write, as both the compiler and the runtime read them: JSON objects, safetensors, PEFT's adapters.

In: paths. Out: where tensors lie, their numbers, and what an adapter changes.
Imported by every room but the ground; imports that and the machine alone.
"""
