"""What `speccompile serve` counts, read by Prometheus' own parser."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from speccompile.serving.http.metrics import Metrics
from tests.light.serve_example import toy_server
from tests.light.test_serve_lives import generation

LABELS = {"model_name": "toy", "engine": "here"}


def samples(text: str) -> dict[tuple[str, str], float]:
    """Name and last label of all samples of ours, with the labels that all have taken off."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:"):
                labels = {name: value for name, value in sample.labels.items() if name not in LABELS}
                assert LABELS.keys() <= sample.labels.keys()
                found[sample.name.removeprefix("vllm:"), ",".join(labels.values())] = sample.value
    return found


@pytest.fixture
def metrics():
    return Metrics("toy", "here", positions=4)


def test_they_have_vllms_names(metrics):
    metrics.refused("requests")
    metrics.queued(3, 2)
    metrics.admitted(10, 4, 0.25)
    metrics.first_token(0.5)
    metrics.inter_token_latency(0.3, 3)
    metrics.round(7, [4, 0, 4], [3, 0, 1])
    metrics.stepped(12, 0.75)
    metrics.stepped(0, 0.75)
    metrics.ended(generation())
    metrics.ended(replace(generation(reason="capacity"), encode_seconds=0.5))
    metrics.ended(generation(reason="cancelled", tokens=(), first_token_seconds=None))
    metrics.failed(ValueError())
    found = samples(metrics.text().decode())
    expected = {
        ("num_requests_waiting", ""): 3, ("num_requests_running", ""): 2, ("kv_cache_usage_perc", ""): 0.75,
        ("prompt_tokens_total", ""): 10, ("prompt_tokens_cached_total", ""): 4, ("generation_tokens_total", ""): 4,
        ("prefix_cache_queries_total", ""): 10, ("prefix_cache_hits_total", ""): 4,
        ("admission_rejections_total", "requests"): 1, ("request_failures_total", ""): 1,
        ("request_success_total", "length"): 2, ("request_success_total", "abort"): 1,
        ("spec_decode_num_drafts_total", ""): 2, ("spec_decode_num_draft_tokens_total", ""): 8,
        ("spec_decode_num_accepted_tokens_total", ""): 4,
        ("spec_decode_num_accepted_tokens_per_pos_total", "0"): 2,
        ("spec_decode_num_accepted_tokens_per_pos_total", "2"): 1,
        ("spec_decode_num_accepted_tokens_per_pos_total", "3"): 0,
        ("time_to_first_token_seconds_sum", ""): 0.5, ("request_queue_time_seconds_sum", ""): 0.25,
        ("inter_token_latency_seconds_count", ""): 3, ("iteration_tokens_total_sum", ""): 12,
        ("iteration_tokens_total_count", ""): 1, ("e2e_request_latency_seconds_sum", ""): 3.75,
        ("request_prefill_time_seconds_count", ""): 3, ("request_decode_time_seconds_count", ""): 3,
        ("request_encode_time_seconds_count", ""): 1, ("request_encode_time_seconds_sum", ""): 0.5,
        ("request_prompt_tokens_sum", ""): 12, ("request_generation_tokens_sum", ""): 4,
        ("request_time_per_output_token_seconds_count", ""): 2,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_pictures_are_counted_by_their_encoder():
    encoder: Any = SimpleNamespace(queries=0, hits=0, kept_bytes=0)
    metrics = Metrics("toy", "here", positions=4, pictures=encoder)
    for queries, hits, kept in ((3, 1, 800), (5, 3, 400)):
        encoder.queries, encoder.hits, encoder.kept_bytes = queries, hits, kept
        for _ in range(2):
            found = samples(metrics.text().decode())
            names = "mm_cache_queries_total", "mm_cache_hits_total", "mm_cache_bytes"
            assert tuple(found[name, ""] for name in names) == (queries, hits, kept)


def test_a_server_counts_its_requests():
    with toy_server() as running:
        assert running.complete(max_tokens=5).status == running.chat(max_tokens=7, stream=True).status == 200
        answered = running.ask("GET", "/metrics", Accept="application/openmetrics-text")
        assert answered.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        found = samples(answered.data.decode())
        assert found["request_success_total", "length"] == 2
        assert found["generation_tokens_total", ""] == 12
        assert found["request_generation_tokens_count", ""] == 2
        assert 'engine="onnxruntime-cpu"' in answered.data.decode()
