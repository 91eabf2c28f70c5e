"""The decode loop: prefill in chunks, then rounds that draft, verify, accept and commit, until all sequences end.

decode_loop       one call; `slots` are batch slots, `bound_graphs` the graphs of a round and their buffers
draft_controller  who drafts and how much: `adaptive_length` decides by `speedup_model`; `host_drafts` are the host's
sampling_inputs   settings and random numbers as inputs of the graphs; `token_masks` writes the allowed tokens
drafter_state     persistent drafter state, which outlives a generation
"""
