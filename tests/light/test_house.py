"""Rules of the house that no single file can keep alone: imports, sizes, paths, scripts."""

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import grimp
import pytest

from speccompile.drafters import DRAFTING_METHODS
from speccompile.runtime import Generation

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(file for folder in ("speccompile", "scripts", "tests") for file in (ROOT / folder).rglob("*.py"))
SHELL_SCRIPTS = [
    *(
        ROOT / "scripts" / name
        for name in (
            "setup",
            "demo",
            "check",
            "test",
            "gpu/check",
            "docker/lock",
            "peers/setup",
            "serving/setup",
            "triton_server/setup",
            "wheels",
        )
    ),
    ROOT / ".ci/run",
]
LONGEST_FILE = 350
LONGEST_FUNCTION = 50
"""Lines without the signature and the docstring: options of commands are parameters, and there are many."""
# Modules that run whatever a file tells them to when they read it.
UNSAFE_READERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
COMPILER_PACKAGES = ["torch", "transformers", "onnx", "pydantic", "yaml"]
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users|work|mnt|opt|tmp|var)/\w+")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def nodes(file: Path) -> list[ast.AST]:
    """Return all of a file's code, in the order of `ast.walk`."""
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def imported_modules(file: Path) -> set[str]:
    """Return the top-level names of all modules that a file imports, at any depth of its code."""
    found = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_import_rules_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_python_file_is_long() -> None:
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_function_fits_on_a_screen() -> None:
    long = {}
    for file in SOURCES:
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                length = node.end_lineno - body[0].lineno + 1 if body else 0
                if length > LONGEST_FUNCTION:
                    long[f"{name_of(file)}: {node.name}"] = length
    assert long == {}


def test_no_cpp_file_is_long() -> None:
    files = [file for each in ("cpp", "h") for file in (ROOT / "speccompile/native").rglob(f"*.{each}")]
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    long = {name for name, length in lengths.items() if length > LONGEST_FILE}
    assert long == {"speccompile/native/contract_table.h", "speccompile/native/cli/command_table.h"}  # generated


PRIVATE_OPENINGS = {"What", "Whether", "How", "Whose", "Which", "Where", "Who", "Of", "Those", "Inside"}
"""Words that open a riddle: a function's docstring begins with a verb, any other one with a noun."""
FUNCTION_OPENINGS = PRIVATE_OPENINGS | {
    "A", "After", "All", "Also", "An", "And", "As", "At", "Behind", "Beside", "Between", "Both", "By", "Computes",
    "Every", "From", "If", "Its", "Leaves", "Neither", "Never", "No", "Nor", "Not", "Nothing", "One", "Our", "Ours",
    "Raises", "Returns", "Runs", "Serves", "So", "Some", "The", "They", "When", "While", "Why", "With", "Without",
}  # fmt: skip


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    riddles = []
    for file in SOURCES:
        if not name_of(file).startswith("speccompile/") or name_of(file).startswith("speccompile/cli/"):
            continue  # the commands' docstrings are their help
        for node in nodes(file):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.split(maxsplit=1)[:1]:
                    first = text.split(maxsplit=1)[0].strip(",:")
                    riddles += [f"{name_of(file)}:{node.lineno}: {text[:60]}"] * (first in PRIVATE_OPENINGS)
    assert riddles == []


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    riddles = []
    for file in SOURCES:
        if name_of(file).startswith("speccompile/cli/"):
            continue  # the commands' docstrings are their help
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                first = text.split(maxsplit=1)[0].strip(",:")
                riddles += [f"{name_of(file)}: {node.name}: {text[:60]}"] * (first in FUNCTION_OPENINGS)
    assert riddles == []


CPP_RIDDLE = re.compile(rf"^ *// ({'|'.join(sorted(PRIVATE_OPENINGS | {'As'}))})\b.*", re.M)


def test_comments_in_cpp_begin_with_a_verb_or_a_noun() -> None:
    folders = [each for each in (ROOT / "speccompile/native").iterdir() if each.name != "installed"]
    files = [
        file for folder in folders for file in (folder, *folder.rglob("*")) if file.suffix in (".cpp", ".h", ".hpp")
    ]
    riddles = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        # Only the first line of a comment: a sentence may go on with any word.
        found = [each for each in CPP_RIDDLE.finditer(text) if not re.search(r"//.*\n$", text[: each.start()][-300:])]
        riddles |= {name_of(file): found[0].group()} if found else {}
    assert riddles == {}


def test_no_path_of_one_machine() -> None:
    files = [*SOURCES, *SHELL_SCRIPTS, ROOT / "pyproject.toml", *(ROOT / "recipes").rglob("*.yaml")]
    found = {name_of(file): MACHINE_PATH.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_nothing_is_unpickled() -> None:
    found = {
        name_of(file): imported_modules(file) & UNSAFE_READERS
        for file in SOURCES
        if name_of(file).startswith("speccompile/")
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_runtime_loads_no_compiler_package() -> None:
    code = "import sys, speccompile.runtime; print(*(module for module in sys.argv[1:] if module in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code, *COMPILER_PACKAGES], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=name_of)
def test_shell_script_parses_and_can_be_started(script: Path) -> None:
    assert os.access(script, os.X_OK)
    run = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def generation(mode: str, token_ids: list[int], rounds: int, speed: float) -> Generation:
    return Generation(
        "a text", token_ids, 3, rounds, 4 / rounds, 1.0, speed, "length", mode, "toy",
        prefill_seconds=0.0, verify_seconds=0.0, draft_seconds=0.0, path_lengths=[], draft_lengths=[],
    )  # fmt: skip


def test_demo_comparison_shows_medians_and_equal_tokens() -> None:
    compare = runpy.run_path(str(ROOT / "scripts/compare.py"))
    tokens = [5, 6, 7, 8]
    speculative = [generation("speculative", tokens, 2, speed) for speed in (10.0, 30.0, 20.0)]
    autoregressive = [generation("autoregressive", tokens, 4, speed) for speed in (40.0, 42.0, 41.0)]
    lines = [line.split() for line in compare["render"](speculative, autoregressive, None).splitlines()]
    assert lines == [
        ["speculative", "autoregressive"],
        ["rounds", "2", "4"],
        ["mean", "accepted", "2.00", "1.00"],
        ["tokens/s", "20", "41"],
        ["same", "tokens", "yes,", "all", "4"],
    ]


@pytest.mark.parametrize(
    ("autoregressive", "difference"),
    [
        ([5, 6, 9, 8], "new token 2 is 7 speculatively and 9 autoregressively"),
        ([5, 6, 7], "new token 3 is 8 speculatively and None autoregressively"),
        ([5, 6, 7, 8], None),
    ],
)
def test_demo_comparison_finds_a_difference(autoregressive: list[int], difference: str | None) -> None:
    compare = runpy.run_path(str(ROOT / "scripts/compare.py"))
    assert compare["describe_difference"]([5, 6, 7, 8], autoregressive) == difference


def test_no_source_file_is_ignored_by_git() -> None:
    """Check every source: a package named like a folder of build products would be missing in every clone."""
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--", "*.py"]
    run = subprocess.run(command, cwd=ROOT / "speccompile", capture_output=True, text=True)
    if "not a git repository" in run.stderr:
        pytest.skip("this is no git checkout: nothing is ignored")
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


def rooms() -> list[str]:
    """Return modules of the layers of pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [room.strip() for line in contracts[0]["layers"] for room in line.split("|")]


def test_every_room_has_a_layer_and_says_what_it_is_for() -> None:
    found = {f"speccompile.{path.name.removesuffix('.py')}" for path in (ROOT / "speccompile").iterdir()}
    found -= {
        "speccompile.__init__",
        "speccompile.__init__.pyi",
        "speccompile.__main__",
        "speccompile.__pycache__",
        "speccompile.py.typed",
    }
    assert {".".join(room.split(".")[:2]) for room in rooms()} == found
    assert len(found) <= 18
    for folder in (ROOT / "speccompile").rglob("__init__.py"):
        said = ast.get_docstring(ast.parse(folder.read_text(encoding="utf-8"))) or ""
        assert 0 < len(said.splitlines()) <= 10, folder
        package = ".".join(folder.relative_to(ROOT).parent.parts)
        if package.count(".") == 1 or package in rooms():
            assert re.search(r"^Imported by |\. Imported by ", said, re.M), folder


def test_no_modules_import_each_other() -> None:
    """Imports for types alone count as well."""
    graph = grimp.build_graph("speccompile", cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    assert sorted(left) == []


def test_no_parts_of_a_room_import_each_other() -> None:
    """Parts are the modules and folders of one folder, whose arrows are those of all modules in them."""
    graph = grimp.build_graph("speccompile", cache_dir=None)
    rooms = {module.rpartition(".")[0] for module in graph.modules} - {"", "speccompile"}
    for room in sorted(rooms):
        left: dict[str, set[str]] = {part: set() for part in graph.find_children(room)}
        for part in left:
            within = {part, *graph.find_descendants(part)}
            imported = {name for module in within for name in graph.find_modules_directly_imported_by(module)}
            left[part] = {
                other for other in left if other != part and any(f"{n}.".startswith(f"{other}.") for n in imported)
            }
        while free := {part for part, others in left.items() if not others & left.keys()}:
            left = {part: others for part, others in left.items() if part not in free}
        assert sorted(left) == [], f"parts of {room} import each other"


def asked_by_name(file: Path) -> list[str]:
    """Yield comparisons of something with the name of a drafting method."""
    found = []
    for node in nodes(file):
        if isinstance(node, ast.Compare):
            about, parts = ast.unparse(node.left), [node.left, *node.comparators]
        elif isinstance(node, ast.match_case):
            about, parts = "kind", [node.pattern]
        else:
            continue
        named = {each.value for part in parts for each in ast.walk(part) if isinstance(each, ast.Constant)}
        if "kind" in about and named & DRAFTING_METHODS.keys():
            found.append(f"{name_of(file)}: {ast.unparse(node)}")
    return found


def test_nothing_outside_of_drafters_asks_for_a_method_by_its_name() -> None:
    outside = [file for file in (ROOT / "speccompile").rglob("*.py") if "drafters" not in file.parts]
    assert [place for file in outside for place in asked_by_name(file)] == []


SEE_THE_PLAN = {
    "decides": ("recipe/",),
    "shows": ("cli/plan.py",),
    "writes manifest and lock": ("compiler/build/metadata.py",),
    "predicts": ("cli/predict.py", "measure/predict/"),
    "gives stages their inputs": (
        "compiler/build/__init__.py", "compiler/build/inputs.py", "compiler/build/writer.py",
    ),
    "orders a build": (
        "cli/model_bundle.py", "compiler/from_recipe.py", "measure/compare/", "measure/tune/",
        "train/answers/bundle_generator.py", "train/answers/make.py", "train/evaluate/checkpoint.py",
    ),
}  # fmt: skip
"""Reason -> modules and rooms that may have a whole plan in hand."""


def annotations(file: Path) -> set[str]:
    """Return names in the annotations of a file's parameters, results and fields."""
    found = set()
    for node in nodes(file):
        for said in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                said = ast.parse(said.value)
            found |= {each.id for each in ast.walk(said) if isinstance(each, ast.Name)} if said else set()
    return found


def test_the_whole_plan_goes_to_few() -> None:
    """Name the stages that take the whole plan, and so depend on all of it: `compiler/build/inputs.py` gives each its
    part."""
    package = [file for file in SOURCES if name_of(file).startswith("speccompile/")]
    seen = {name_of(file).removeprefix("speccompile/") for file in package if "Plan" in annotations(file)}
    known = tuple(place for places in SEE_THE_PLAN.values() for place in places)
    assert {name for name in seen if not name.startswith(known)} == set()
    assert {place for place in known if not any(name.startswith(place) for name in seen)} == set()


def test_every_script_has_its_line() -> None:
    said = set(re.findall(r"^\| `([^`]+?)/?` \|", (ROOT / "scripts/README.md").read_text(encoding="utf-8"), re.M))
    others = {"README.md", "__pycache__", "mutation", "performance"}
    assert said == {path.name for path in (ROOT / "scripts").iterdir()} - others
