"""Texts and tokens: the bundle's tokenizer (`text`), and its chat template (`chat`)."""
