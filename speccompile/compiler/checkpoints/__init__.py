"""Files of checkpoints in Hugging Face layout, read without torch: JSON objects and headers of safetensors."""
