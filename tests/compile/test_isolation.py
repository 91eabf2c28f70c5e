"""A bundle runs where nothing of the compiler is installed, and loads nothing of it where it is."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import speccompile

pytestmark = pytest.mark.builds(2)

COMPILER = (
    "torch",
    "transformers",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "pydantic",
    "yaml",
    "safetensors",
    "huggingface_hub",
)
BEYOND_DECLARED = ("markupsafe",)
"""What the declared dependencies themselves cannot do without: jinja2's."""

GENERATE = """
import json, sys
from speccompile.runtime import Bundle
folder, prompts, *forbidden = sys.argv[1:]
generations = Bundle.open(folder).generate_batch(json.loads(prompts), max_new_tokens=30)
loaded = [name for name in forbidden if name in sys.modules]
print(json.dumps({"tokens": [one.token_ids for one in generations], "loaded": loaded}))
"""
LOOK = """
import sys
from importlib.util import find_spec
sys.path.append(sys.argv[1])
print([name for name in sys.argv[2:] if find_spec(name)])
"""
COMMAND_LINE = "import sys; sys.path.append(sys.argv.pop(1)); from speccompile.cli import main; main()"


def installed_files(name: str) -> set[Path]:
    """Return the folders and files that a distribution put beside the others."""
    distribution = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or () if ".." not in file.parts}
    return {Path(distribution.locate_file(top)).resolve() for top in tops}


@pytest.fixture(scope="module")
def runtime_only(tmp_path_factory) -> Path:
    """Make a folder of packages as `pip install speccompile` makes it: the declared dependencies, without the
    extras."""
    site = tmp_path_factory.mktemp("site")
    project = Path(speccompile.__file__).parents[1]
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [*(Requirement(line).name for line in declared), *BEYOND_DECLARED]
    metadata = {file for file in installed_files("speccompile") if file.suffix in (".dist-info", ".egg-info")}
    for file in {project / "speccompile", *metadata}.union(*map(installed_files, names)):
        if file.name != "__pycache__":
            (site / file.name).symlink_to(file)
    return site


@pytest.fixture
def run(runtime_only):
    """Run the command line with those packages and the standard library alone."""

    def run(*arguments: object) -> tuple[int, str, str]:
        command = [sys.executable, "-I", "-S", "-c", COMMAND_LINE, runtime_only, *map(str, arguments)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        return finished.returncode, finished.stdout, finished.stderr

    return run


@pytest.mark.parametrize("name", ["model_4", "lookup_3"])
def test_a_generation_loads_nothing_of_the_compiler(built, name):
    case = built(name)
    prompts = [case.prompts()[0], case.prompts()[6]]
    command = [sys.executable, "-c", GENERATE, case.path, json.dumps(prompts), *COMPILER]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert json.loads(finished.stdout) == {"tokens": [case.reference(prompt) for prompt in prompts], "loaded": []}


def test_these_packages_are_not_there(runtime_only):
    command = [sys.executable, "-I", "-S", "-c", LOOK, runtime_only, *COMPILER, "numpy"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "['numpy']\n"


def test_the_command_line_generates_without_the_compiler(built, run):
    case = built("model_4")
    prompt = case.prompts()[6]
    ids = ",".join(map(str, prompt))
    code, out, err = run("-q", "generate", case.path, "--token-ids", ids, "--max-new-tokens", 30, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert printed["token_ids"] == case.reference(prompt)
    text = run("-q", "generate", case.path, "--prompt", "def größe(self)", "--max-new-tokens", 5)
    assert (text[0], text[2]) == (0, "")


def test_the_other_commands_need_no_compiler_either(built, run, tmp_path):
    folder = built("model_4").path
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "def"}\n')
    assert json.loads(run("inspect", folder, "--json")[1])["manifest"]["name"] == "model_4"
    measured = run("-q", "bench", folder, "--prompts", prompts, "--max-new-tokens", 9, "--repeats", 1, "--json")
    assert json.loads(measured[1])["equal_prompts"] == 1
    proven = run("-q", "prove", folder, "--prompts", prompts, "--json")
    assert json.loads(proven[1])["equal"] == 1
    found = json.loads(run("doctor", "--json")[1])
    assert (found["can_run"]["possible"], found["can_compile"]["possible"]) == (True, False)


def test_a_build_says_what_to_install(built, run):
    code, out, err = run("build", built("model_4").folder)
    assert (code, out) == (1, "")
    assert "expected the extra 'compile', which this command needs\nhint: pip install 'speccompile[compile]'" in err
    assert "Traceback" not in err
