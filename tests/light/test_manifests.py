"""The manifests in scripts/examples: by Kubernetes' own schemas, and by what KServe's says beside them."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from speccompile.cli.serve import command
from speccompile.serving.http.app import make_app
from speccompile.serving.http.model import ServedModel

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"
KUBERNETES = "1.34"

NAMES = (
    "annotations", "baseRefs", "kvCacheOffloading", "labels", "parallelism", "prefill", "rolloutStrategy", "scaling",
    "storageInitializer", "tracing", "worker",
)  # fmt: skip
MODEL = {"uri": {"type": "string"}, "name": {"type": "string"}, "lora": {}, "confidential": {}}
LLM_INFERENCE_SERVICE = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "serving.kserve.io/v1alpha2"},
        "kind": {"const": "LLMInferenceService"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {} for name in NAMES} | {
                "model": {
                    "type": "object",
                    "required": ["uri"],
                    "additionalProperties": False,
                    "properties": MODEL,
                },
                "replicas": {"type": "integer"},
                "router": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {name: {"type": "object"} for name in ("gateway", "ingress", "route", "scheduler")},
                },
                "template": {"type": "object"},
            },
        },
    },
}  # fmt: skip
"""Names of KServe's custom resource, of config/crd/full/llmisvc/serving.kserve.io_llminferenceservices.yaml in its
repository, as of 21 August 2026. Its `template` is a pod's specification."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def pods() -> list[dict[str, Any]]:
    return [documents("kubernetes.yaml")[0]["spec"]["template"]["spec"], documents("llm-d.yaml")[0]["spec"]["template"]]


def test_kubernetes_takes_them():
    for document in documents("kubernetes.yaml"):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert [each["kind"] for each in documents("kubernetes.yaml")] == ["Deployment", "Service"]


def test_kserve_takes_its_own():
    (document,) = documents("llm-d.yaml")
    Draft202012Validator(LLM_INFERENCE_SERVICE).validate(document)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": document["metadata"], "spec": document["spec"]["template"]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("pod", pods(), ids=["kubernetes", "llm-d"])
def test_what_they_ask_the_server_for_is_there(pod):
    (container,) = pod["containers"]
    paths = {route.path for route in make_app(ServedModel("demo")).routes}
    probes = [container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert probes == ["/health", "/health", "/version"]
    assert {*probes, "/metrics"} <= paths
    arguments = [*container.get("command", ["speccompile"])[1:], *container["args"]]
    assert (arguments[0], Path(arguments[1]).name) == ("serve", "models")
    # The command line knows them all: it fails because there is no such folder.
    found = CliRunner().invoke(command, arguments[1:])
    assert "No such option" not in found.output
    assert type(found.exception).__name__ == "BundleError"


@pytest.mark.parametrize("pod", pods(), ids=["kubernetes", "llm-d"])
def test_requests_may_finish_before_a_pod_is_killed(pod):
    (container,) = pod["containers"]
    grace = int(container["args"][container["args"].index("--grace") + 1])
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert before + grace + 5 <= pod["terminationGracePeriodSeconds"]
    readiness = container["readinessProbe"]
    assert before >= readiness["periodSeconds"] * readiness["failureThreshold"]


def test_the_metrics_that_the_router_reads_are_there():
    """llm-d's endpoint picker, by its default for vLLM."""
    from tests.light.serve_example import toy_server

    with toy_server() as server:
        text = server.ask("GET", "/metrics").data.decode()
    for name in ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"):
        assert f"\n{name}{{" in text
