"""What a stranger finds beside the code: workflows call what is there, links lead somewhere, versions agree."""

import re
from pathlib import Path

import pytest
import yaml

import speccompile

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def read(path: Path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_scripts_that_are_there(path):
    steps = [step for job in read(path)["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split()[0] for step in steps if "run" in step]
    assert commands
    for command in commands:
        assert (ROOT / command).is_file(), command
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)


def test_workflows_run_ci_build_wheels_and_the_site():
    called = {
        step["run"]
        for path in WORKFLOWS
        for job in read(path)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    }
    assert {".ci/run", "scripts/wheels", "scripts/docs"} <= called


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_ends_and_may_write_nothing_that_it_does_not_say(path):
    workflow = read(path)
    assert workflow["permissions"]["contents"] == "read"
    assert all(job["timeout-minutes"] <= 90 for job in workflow["jobs"].values())


@pytest.mark.parametrize(("name", "script"), [("wheels", "scripts/wheels"), ("docs", "scripts/docs")])
def test_a_workflow_uploads_the_folder_that_the_script_writes(name, script):
    (job,) = read(ROOT / f".github/workflows/{name}.yml")["jobs"].values()
    (folder,) = [step["with"]["path"] for step in job["steps"] if "upload" in step.get("uses", "")]
    assert folder.rstrip("/") in (ROOT / script).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_a_form_needs(path):
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    assert {field["type"] for field in form["body"]} <= {"checkboxes", "dropdown", "input", "markdown", "textarea"}
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(ids) == len({*ids}) > 0
    assert all(field["attributes"].get("label") for field in form["body"] if field["type"] != "markdown")


def test_the_citation_is_of_this_version():
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == speccompile.__version__
    assert citation["license"] == "Apache-2.0"
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_changelog_has_the_sections_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert {*sections} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    first, *released = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert [title for title in released if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", title)] == []


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "scripts/examples/README.md"]
)
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_readme_fits_on_some_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180
