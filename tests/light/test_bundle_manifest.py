import json

import pytest

from speccompile.bundle import Manifest
from speccompile.bundle.manifest import canonical_json
from speccompile.contract import supports_batch_slices
from speccompile.errors import BundleError
from tests.light.bundle_example import manifest, several_rows


def test_a_manifest_survives_its_file():
    written = canonical_json(manifest().to_json())
    assert Manifest.from_json(json.loads(written)) == manifest()


def test_a_bundle_for_several_rows_has_a_name_for_their_number():
    several = manifest(**several_rows())
    assert Manifest.from_json(json.loads(canonical_json(several.to_json()))) == several
    assert [supports_batch_slices(each.graphs) for each in several.engines] == [True, False]


def test_equal_data_gives_equal_bytes():
    assert canonical_json({"b": 1, "a": "größe"}) == '{\n "a": "größe",\n "b": 1\n}\n'.encode()
    assert canonical_json({"b": 1, "a": 2}) == canonical_json({"a": 2, "b": 1})


def test_json_that_no_other_program_reads_is_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"margin": float("nan")})


@pytest.mark.parametrize("name", sorted(manifest().to_json()))
def test_a_missing_field_is_named(name):
    data = manifest().to_json()
    del data[name]
    with pytest.raises(BundleError, match=rf"^manifest\.json: the field '{name}' is missing$") as caught:
        Manifest.from_json(data)
    assert caught.value.hint == "build the bundle again with this speccompile"


@pytest.mark.parametrize("name", sorted(manifest().to_json()))
def test_a_field_of_the_wrong_type_is_named(name):
    with pytest.raises(BundleError, match=rf"^manifest\.json: {name}: expected \w+, got NoneType None$"):
        Manifest.from_json(manifest().to_json() | {name: None})


def test_an_unknown_field_is_named():
    with pytest.raises(BundleError, match=r"^x/manifest\.json: unknown field 'colour', 'shade'$"):
        Manifest.from_json(manifest().to_json() | {"shade": 1, "colour": 2}, "x/manifest.json")


def test_true_is_no_number():
    with pytest.raises(BundleError, match="tokens: expected int, got bool True"):
        Manifest.from_json(manifest().to_json() | {"tokens": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["eos_token_ids"].append("2"), r"eos_token_ids\[2\]: expected int, got str '2'"),
        (
            lambda data: data["engines"][0]["precision"].update(target=32),
            r"engines\[0\]: precision\.target: expected str, got int 32",
        ),
        (lambda data: data["engines"][0].pop("build"), r"engines\[0\]: the field 'build' is missing"),
        (lambda data: data["engines"][0].update(build={}), r"engines\[0\]: build: the field 'deferred' is missing"),
        (lambda data: data["engines"][0].update(build=3), r"engines\[0\]: build: expected dict, got int 3"),
        (lambda data: data["engines"][0]["graphs"][0].update(kind=1), r"engines\[0\]: graphs\[0\]: unknown field"),
        (lambda data: data["engines"][0]["files"].update(verify=1), r"engines\[0\]: files\.verify: expected str"),
        (lambda data: data["engines"][0].pop("backend"), r"engines\[0\]: the field 'backend' is missing"),
        (lambda data: data["engines"][0].update(device=0), r"engines\[0\]: unknown field 'device'"),
        (lambda data: data["engines"].append("cpu"), r"engines\[1\]: expected dict, got str 'cpu'"),
        (lambda data: data["graphs"][0].update(name=1), r"graphs\[0\]: name: expected str, got int 1"),
        (lambda data: data["graphs"][0].update(kind=1), r"graphs\[0\]: unknown field 'kind'"),
        (
            lambda data: data["graphs"][0]["inputs"][0]["shape"].append(2.5),
            r"graphs\[0\]: inputs\[0\]: shape\[2\]: expected int, got float 2\.5",
        ),
        (lambda data: data["graphs"][0]["outputs"][1].pop("dtype"), r"outputs\[1\]: the field 'dtype' is missing"),
        (lambda data: data["graphs"][0]["aliases"].clear(), r"aliases are {}, its inputs and outputs say {'target"),
        (
            lambda data: data["graphs"][0]["inputs"].pop(1),
            r"graphs\[0\]: an output updates the state 'target\.key\.0', which no input reads",
        ),
    ],
)
def test_what_is_wrong_deep_inside_is_named(change, message):
    data = manifest().to_json()
    change(data)
    with pytest.raises(BundleError, match=message):
        Manifest.from_json(data)


def test_buffers_must_be_those_of_the_graphs():
    data = manifest().to_json()
    data["buffers"][0]["shape"] = [7]
    with pytest.raises(BundleError, match=r"manifest\.json: buffers are not those of its graphs"):
        Manifest.from_json(data)
