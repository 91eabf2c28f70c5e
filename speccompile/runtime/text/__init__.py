"""Text and tokens: the bundle's tokenizer (`tokenizer`), and its chat template (`chat`)."""
