"""Metrics under vLLM's names, so that monitoring and routing for vLLM's servers can read them."""

import threading
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from typing import TypeVar

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)

from speccompile.runtime import Generation
from speccompile.runtime.images.encoder import Encoder
from speccompile.serving.scheduler import Observer

_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
_REQUEST = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

MEDIA = CONTENT_TYPE_PLAIN_0_0_4

_ENDS = {"capacity": "length", "cancelled": "abort", "timeout": "abort"}
"""Finish reasons -> vLLM's words for them."""

_COUNTERS = {
    "prompt_tokens": "Prompt tokens of admitted sequences.",
    "prompt_tokens_cached": "Prompt tokens of admitted sequences that were still cached.",
    "generation_tokens": "New tokens of finished sequences.",
    "prefix_cache_queries": "Prompt tokens that were looked up in the cache.",
    "prefix_cache_hits": "Prompt tokens that were found in the cache.",
    "mm_cache_queries": "Pictures whose encoded rows were looked up in the cache.",
    "mm_cache_hits": "Pictures whose encoded rows were found in the cache.",
    "num_preemptions": "Sequences that lost their batch slot to one of higher priority.",
    "spec_decode_num_drafts": "Rounds of a sequence with draft tokens.",
    "spec_decode_num_draft_tokens": "Verified draft tokens.",
    "spec_decode_num_accepted_tokens": "Accepted draft tokens.",
}
_GAUGES = {
    "num_requests_running": "Sequences that have a batch slot.",
    "num_requests_waiting": "Requests that wait for a batch slot.",
    "kv_cache_usage_perc": "Filled share of all cache slots, 0 to 1.",
    "mm_cache_bytes": "Bytes of cached rows of pictures. vLLM has no such metric.",
}
_HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("Time from the request to its first token.", _FIRST_TOKEN),
    "inter_token_latency_seconds": ("Time between two tokens. Tokens of one round share its time.", _PER_TOKEN),
    "request_time_per_output_token_seconds": ("Time of each token after the first one of a sequence.", _PER_TOKEN),
    "e2e_request_latency_seconds": ("Time from the request to its end.", _REQUEST),
    "request_queue_time_seconds": ("Time until the request got a batch slot.", _REQUEST),
    "request_prefill_time_seconds": ("Prefill of the request.", _REQUEST),
    "request_encode_time_seconds": ("Encoding of the request's pictures. vLLM has no such metric.", _REQUEST),
    "request_decode_time_seconds": ("Decoding of the request, after its prefill.", _REQUEST),
    "request_prompt_tokens": ("Prompt tokens of the request.", _TOKENS),
    "request_generation_tokens": ("New tokens of the request.", _TOKENS),
    "iteration_tokens_total": ("Prompt tokens and new tokens of one step of the engine.", _STEP_TOKENS),
}


F = TypeVar("F", Counter, Gauge, Histogram)


class Metrics(Observer):
    """Observer that counts the events of a service. Any thread may call `text`."""

    def __init__(self, model: str, engine: str, positions: int, pictures: Encoder | None = None) -> None:
        """model, engine: labels of all metrics. positions: maximum number of drafts in a round. pictures: their
        encoder, which counts them itself."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._labels = {"model_name": model, "engine": engine}
        names = tuple(self._labels)
        self._counters = {
            name: self._own(Counter(f"vllm:{name}", says, names, registry=None)) for name, says in _COUNTERS.items()
        }
        self._gauges = {
            name: self._own(Gauge(f"vllm:{name}", says, names, registry=None)) for name, says in _GAUGES.items()
        }
        self._histograms = {
            name: self._own(Histogram(f"vllm:{name}", says, names, buckets=buckets, registry=None))
            for name, (says, buckets) in _HISTOGRAMS.items()
        }
        self._success = self._counter("request_success", "Finished sequences by reason.", "finished_reason")
        self._refused = self._counter("admission_rejections", "Requests that were not taken, by reason.", "reason")
        self._failed = self._own(Counter("vllm:request_failures", "Requests that failed.", names, registry=None))
        accepted = self._counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by position.", "position"
        )
        self._pictures, self._counting, self._counted = pictures, threading.Lock(), Tally[str]()
        self._accepted = [accepted.labels(**self._labels, position=str(place)) for place in range(positions)]

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format. In OpenMetrics' format the names would lose their colon."""
        if self._pictures is not None:
            self._count(self._pictures)
        return generate_latest(self._registry)

    def families(self) -> Iterable[Metric]:
        """Return name, type, documentation and values of all metrics."""
        return self._registry.collect()

    def refused(self, reason: str) -> None:
        self._refused.labels(**self._labels, reason=reason).inc()

    def queued(self, waiting: int, running: int) -> None:
        self._gauges["num_requests_waiting"].set(waiting)
        self._gauges["num_requests_running"].set(running)

    def admitted(self, prompt_tokens: int, cached_tokens: int, queue_seconds: float) -> None:
        for name in ("prompt_tokens", "prefix_cache_queries"):
            self._counters[name].inc(prompt_tokens)
        for name in ("prompt_tokens_cached", "prefix_cache_hits"):
            self._counters[name].inc(cached_tokens)
        self._histograms["request_queue_time_seconds"].observe(queue_seconds)

    def preempted(self) -> None:
        self._counters["num_preemptions"].inc()

    def first_token(self, seconds: float) -> None:
        self._histograms["time_to_first_token_seconds"].observe(seconds)

    def inter_token_latency(self, seconds: float, tokens: int) -> None:
        for _ in range(tokens):
            self._histograms["inter_token_latency_seconds"].observe(seconds / tokens)

    def round(self, tokens: int, drafts: Sequence[int], accepted: Sequence[int]) -> None:
        self._counters["spec_decode_num_drafts"].inc(sum(map(bool, drafts)))
        self._counters["spec_decode_num_draft_tokens"].inc(sum(drafts))
        self._counters["spec_decode_num_accepted_tokens"].inc(sum(accepted))
        for place, count in Tally(place for each in accepted for place in range(each)).items():
            self._accepted[place].inc(count)

    def stepped(self, tokens: int, used: float) -> None:
        if tokens:
            self._histograms["iteration_tokens_total"].observe(tokens)
        self._gauges["kv_cache_usage_perc"].set(used)

    def ended(self, generation: Generation) -> None:
        new, first = len(generation.token_ids), generation.first_token_seconds
        whole = generation.queue_seconds + generation.seconds
        self._counters["generation_tokens"].inc(new)
        seen: dict[str, float] = {
            "e2e_request_latency_seconds": whole,
            "request_prefill_time_seconds": generation.prefill_seconds,
            "request_decode_time_seconds": max(0.0, generation.seconds - generation.prefill_seconds),
            "request_prompt_tokens": generation.prompt_tokens,
            "request_generation_tokens": new,
        }
        if generation.encode_seconds is not None:
            seen["request_encode_time_seconds"] = generation.encode_seconds
        if first is not None and new > 1:
            seen["request_time_per_output_token_seconds"] = max(0.0, whole - first) / (new - 1)
        for name, value in seen.items():
            self._histograms[name].observe(value)
        reason = _ENDS.get(generation.finish_reason, generation.finish_reason)
        self._success.labels(**self._labels, finished_reason=reason).inc()

    def failed(self, error: Exception) -> None:
        self._failed.inc()

    def _count(self, pictures: Encoder) -> None:
        self._gauges["mm_cache_bytes"].set(pictures.kept_bytes)
        with self._counting:
            for name, count in (("mm_cache_hits", pictures.hits), ("mm_cache_queries", pictures.queries)):
                self._counters[name].inc(count - self._counted[name])
                self._counted[name] = count

    def _counter(self, name: str, says: str, label: str) -> Counter:
        """Return a counter with one more label."""
        return Counter(f"vllm:{name}", says, (*self._labels, label), registry=self._registry)

    def _own(self, family: F) -> F:
        """Register a metric that has only the common labels."""
        self._registry.register(family)
        return family.labels(**self._labels)
