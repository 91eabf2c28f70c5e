#!/usr/bin/env python3
"""AMD PACE in bfloat16, its only precision without calibration: for processors with AVX512-BF16.

The kind of cache is its server's default. The time to the first token ends at the second call of its streamer: the
first call has the prompt.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

from common import Form, Generated, Peer, main, with_tokenizer

FORMS = {"bfloat16": Form("bf16", "bfloat16")}


def prepare(model: Path, folder: Path, form: Form) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if with_tokenizer(model, folder) is model:
        folder.symlink_to(model.resolve(), target_is_directory=True)


class Session:
    def __init__(self, folder: Path, form: Form, threads: int) -> None:
        import torch
        from pace.llm import LLMModel
        from pace.llm.attention import KVCacheType

        torch.set_num_threads(threads)
        self._model = LLMModel(
            str(folder), dtype=torch.bfloat16, kv_cache_type=KVCacheType.SLAB_POOL, disable_tqdm=True
        )

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        import torch
        from pace.llm import SamplingConfig

        watch = _watch()
        config = SamplingConfig(max_new_tokens=new_tokens, min_new_tokens=new_tokens, ignore_eos=True, pad_token_id=0)
        start = perf_counter()
        with torch.inference_mode():
            made = self._model.generate(torch.tensor([prompt]), config, text_streamer=watch)
        tokens = made.output_token_ids[0].tolist()[-new_tokens:]
        return Generated(tokens, watch.seen[1] - start, watch.seen[-1] - start)


def _watch() -> Any:
    """Return a streamer that records the times of its calls: with the prompt, then with each token."""
    from transformers import TextStreamer

    class Watch(TextStreamer):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def put(self, value: Any) -> None:
            self.seen.append(perf_counter())

        def end(self) -> None: ...

    return Watch()


if __name__ == "__main__":
    main(Peer("amd-pace", FORMS, prepare, Session))
