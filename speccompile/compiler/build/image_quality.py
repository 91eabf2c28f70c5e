"""Logits of a bundle behind pictures, and their quality beside transformers' in float32."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.media import MEDIA
from speccompile.compiler.prove import quality
from speccompile.contract import has_recurrent_states
from speccompile.runtime import Bundle
from speccompile.runtime.images.reader import SeenPrompt
from speccompile.runtime.rounds.media_inputs import MediaInputs


def measure_quality(bundle: Bundle, seen: SeenPrompt, expected: NDArray[np.float32]) -> dict[str, Any]:
    """Return how far the next tokens in a prompt with pictures are those of transformers in float32, the loss by the
    encoder's precision included. expected: transformers' logits [n, V] over its own rows. tokens: number of those that
    were compared."""
    size = bundle.manifest.prefill_chunk if has_all_logits(bundle) else 1
    found = {
        place: row
        for start, logits in read_chunks(bundle, seen, size)
        for place, row in zip(count(start), logits, strict=False)
        if place + 1 < len(seen.ids)
    }
    texts = [[0, *(seen.ids[place + 1] for place in found)]]
    both = (np.stack(list(found.values())), expected[list(found)])
    agreed = quality.agreement(
        *(quality.predictions([(0, logits)], texts, logits.shape[1], "pictures") for logits in both)
    )
    return {"tokens": len(found)} | {name: agreed[name] for name in ("same_argmax", "kl_divergence")}


def has_all_logits(bundle: Bundle) -> bool:
    """Return whether a window gives the logits of all its tokens: a tree's gives those of the last one, and recurrent
    states read no token twice."""
    return bundle.manifest.tree == "chain" and not has_recurrent_states(bundle.manifest.graphs, "target")


def read_chunks(bundle: Bundle, seen: SeenPrompt, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Read a prompt in chunks from an empty cache. Yield (place of the first, logits [n, V]) of all tokens of a chunk,
    if `has_all_logits`, then of its last one."""
    engine, manifest, media = bundle.engine, bundle.manifest, seen.media
    assert media is not None, "the prompt has pictures"
    batch, reads_all = manifest.batch_size, has_all_logits(bundle)
    n_given, n_total, length = (engine.host_view(name, (batch,)) for name in ("n_given", "n_total", "length"))
    n_given[:] = n_total[:] = length[:] = 0
    inputs, stop = MediaInputs(engine, manifest.graphs, batch, manifest.prefill_chunk), 0
    while (start := stop) < len(seen.ids):
        stop = media.chunk_stop(start, min(start + size, len(seen.ids)))
        part, span = seen.ids[start:stop], (media, range(start, stop))
        rows = inputs.count([span])
        widths = {"window": len(part), "logit_rows": len(part), "history": 1, "allowed": 1, MEDIA: rows}
        verify = engine.bind("verify", widths, ("logits",))
        engine.host_view("window", (batch, len(part)))[0] = part
        inputs.write(len(part), range(batch), {0: span}, rows)
        logits = engine.host_view("logits", (batch, len(part), manifest.vocabulary_size))
        n_total[0] = len(part)
        if reads_all:  # as drafts, for their logits
            n_given[0] = 1
            verify()
            yield start, logits[0].copy()
        n_given[0] = len(part)  # as given tokens, for the caches
        verify()
        yield stop - 1, logits[0, :1].copy()
        length[0] += len(part)
