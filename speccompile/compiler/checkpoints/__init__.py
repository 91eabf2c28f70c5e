"""Files of checkpoints in Hugging Face layout, read without torch: JSON objects and headers of safetensors.

In: a folder. Out: its config, the names and shapes of its tensors, and facts about the model.
Imported by the compiler's other rooms and all above them; imports `plan`, `machine` and the ground.
"""
