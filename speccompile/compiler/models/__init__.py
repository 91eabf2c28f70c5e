"""From a checkpoint folder to a torch module whose attention is known to go through the attention hook."""
