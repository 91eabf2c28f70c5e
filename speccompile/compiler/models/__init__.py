"""From a checkpoint folder to a torch module that is known to go through the attention hook."""
