"""Files of the project itself: dependencies, workflows, hooks, issue forms, changelog, policies and spelling."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import mcflow
import mcflow_bench
from mcflow.files.atomic import FORMAT_VERSION

ROOT = Path(__file__).parent.parent
PROJECTS = {
    name: tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]
    for name in ("pyproject.toml", "bench/pyproject.toml")
}
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in sorted((GITHUB / "workflows").glob("*.yml"))}
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
SYSTEMS = ("ubuntu-latest", "macos-latest", "windows-latest")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")

#: Operators of version specifiers that keep nobody from a newer version.
OPEN_ENDED = {">=", ">", "!="}
#: Sections of Keep a Changelog, in its order.
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
#: What codespell reads.
SPELLED = (
    "src",
    "bench/src",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def requirements() -> Iterator[tuple[str, Requirement]]:
    """Yield the direct dependencies of both distributions and of their extras, with the file that names them."""
    for name, project in PROJECTS.items():
        extras = project.get("optional-dependencies", {}).values()
        for line in itertools.chain(project["dependencies"], *extras):
            yield name, Requirement(line)


def pins() -> dict[str, Version]:
    lines = [line for line in text_of("constraints.txt").splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+-]+", line) for line in lines), "constraints.txt has other lines than pins"
    names = [canonicalize_name(line.split("==")[0]) for line in lines]
    assert len(names) == len(set(names)), "constraints.txt names a package twice"
    return {name: Version(line.split("==")[1]) for name, line in zip(names, lines, strict=True)}


def jobs_of(workflow: str) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = read_yaml(WORKFLOWS[workflow])["jobs"]
    return jobs


def triggers_of(workflow: str) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as a boolean.
    triggers: dict[str, Any] = read_yaml(WORKFLOWS[workflow])[True]
    return triggers


def steps_of(workflow: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs_of(workflow).items():
        for step in job["steps"]:
            yield name, step


def script_of(workflow: str, job: str) -> str:
    return "\n".join(step.get("run", "") for step in jobs_of(workflow)[job]["steps"])


# ---------------------------------------------------------------- dependencies


def test_dependencies_have_no_upper_bounds() -> None:
    for name, requirement in requirements():
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators <= OPEN_ENDED, f"{name}: {requirement}"
    for name, project in PROJECTS.items():
        assert re.fullmatch(r">=3\.\d+", project["requires-python"]), name


def test_direct_dependencies_have_a_pinned_version_that_they_allow() -> None:
    pinned = pins()
    for name, requirement in requirements():
        if requirement.name != "mcflow-impute":
            version = pinned.get(canonicalize_name(requirement.name))
            assert version is not None, f"{name}: constraints.txt has no version of {requirement.name}"
            assert requirement.specifier.contains(version), f"{name}: {requirement} does not allow {version}"


def test_both_distributions_have_one_version_and_one_lowest_python() -> None:
    assert mcflow.__version__ == mcflow_bench.__version__
    assert {project["requires-python"] for project in PROJECTS.values()} == {f">={PYTHONS[0]}"}


# ---------------------------------------------------------------- workflows


def test_tests_run_on_every_system_with_every_python() -> None:
    matrix = jobs_of("ci")["test"]["strategy"]["matrix"]
    assert set(matrix) == {"os", "python-version"}, "the matrix leaves combinations out or adds some"
    assert set(itertools.product(matrix["os"], matrix["python-version"])) == set(itertools.product(SYSTEMS, PYTHONS))
    script = script_of("ci", "test")
    assert "make test " in script
    assert 'python -m pytest -m "not slow"' in script


def test_tests_run_with_the_lowest_and_the_pinned_dependencies() -> None:
    for name in ("lowest", "pinned"):
        setup = next(step for step in jobs_of("ci")[name]["steps"] if "setup-python" in step.get("uses", ""))
        assert setup["with"]["python-version"] == PYTHONS[0]
    assert "--resolution lowest-direct" in script_of("ci", "lowest")
    extras = set(re.findall(r"--extra (\w+)", script_of("ci", "lowest")))
    assert extras == set(PROJECTS["pyproject.toml"]["optional-dependencies"]) - {"dev", "docs"}
    assert script_of("ci", "pinned").strip() == "make test"


def test_documentation_and_benchmark_have_jobs() -> None:
    assert {"docs", "bench"} <= set(jobs_of("ci"))
    assert "make docs" in script_of("ci", "docs")
    assert "mcflow benchmark" in script_of("ci", "bench")


def test_release_publishes_both_distributions_when_a_tag_is_pushed() -> None:
    assert triggers_of("release") == {"push": {"tags": ["v*"]}}
    publish = jobs_of("release")["publish"]
    assert publish["strategy"]["matrix"]["distribution"] == [project["name"] for project in PROJECTS.values()]
    assert publish["environment"]["name"] == "pypi"
    assert publish["needs"] == "build"
    assert any(step["uses"].startswith("pypa/gh-action-pypi-publish@") for step in publish["steps"])
    script = script_of("release", "build")
    for project in PROJECTS.values():
        assert f"python -m build --outdir dist/{project['name']} " in script


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflow_has_the_least_permissions(workflow) -> None:
    assert read_yaml(WORKFLOWS[workflow])["permissions"] in ({}, {"contents": "read"})
    for name, job in jobs_of(workflow).items():
        allowed = {"id-token": "write"} if (workflow, name) == ("release", "publish") else {"contents": "read"}
        assert job.get("permissions", allowed) == allowed, name
    assert "secrets." not in WORKFLOWS[workflow].read_text(encoding="utf-8")
    for name, step in steps_of(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, name


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflow_pins_actions_by_major_version_and_limits_the_time_of_jobs(workflow) -> None:
    for name, step in steps_of(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step["uses"]), f"{name}: {step['uses']}"
    assert all(job["timeout-minutes"] <= 120 for job in jobs_of(workflow).values())


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_targets_and_files_that_a_workflow_uses_exist(workflow) -> None:
    makefile = text_of("Makefile")
    for name, step in steps_of(workflow):
        for target in re.findall(r"^\s*make ([a-z-]+)", step.get("run", ""), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name}: no target {target}"
        for path in re.findall(r"(?:src|bench|tests)/[\w/]+\.(?:py|toml)", str(step)):
            assert (ROOT / path).is_file(), f"{name}: there is no {path}"


def test_dependabot_updates_packages_and_actions() -> None:
    updates = read_yaml(GITHUB / "dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"pip", "github-actions"}


# ---------------------------------------------------------------- hooks and forms


def test_hooks_run_pinned_tools() -> None:
    repositories = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook for repository in repositories for hook in repository["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy", "codespell"} <= set(hooks)
    assert {"end-of-file-fixer", "check-yaml", "check-toml"} <= set(hooks)
    pinned = pins()
    for repository in repositories:
        if repository["repo"] != "local":
            assert re.fullmatch(r"v\d+\.\d+\.\d+", repository["rev"]), repository["repo"]
            continue
        for hook in repository["hooks"]:
            program = hook["entry"].split()[0]
            assert hook["language"] == "system", hook["id"]
            assert program.startswith(".venv/bin/"), hook["id"]
            assert Path(program).name in pinned, hook["id"]


def test_hook_of_codespell_reads_what_the_test_reads() -> None:
    local = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    pattern = next(hook["files"] for hook in local if hook["id"] == "codespell")
    for name in SPELLED:
        assert re.search(pattern, name if name.endswith(".md") else f"{name}/file"), name


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_has_all_keys_and_asks_for_something(path) -> None:
    form = read_yaml(path)
    assert set(form) == {"name", "description", "labels", "body"}
    fields = [element for element in form["body"] if element["type"] != "markdown"]
    assert {element["type"] for element in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({element["id"] for element in fields}) == len(fields)
    assert all(element["attributes"]["label"] for element in fields)
    assert any(element.get("validations", {}).get("required") for element in fields)


def test_issue_forms_cover_bugs_features_and_questions() -> None:
    assert {path.stem for path in FORMS} == {"bug", "feature", "question"}
    assert read_yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["blank_issues_enabled"] is False
    assert (GITHUB / "pull_request_template.md").is_file()


# ---------------------------------------------------------------- pages


def test_changelog_begins_with_this_version_or_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.MULTILINE)
    names = [re.fullmatch(r"\[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d\d-\d\d)?", heading) for heading in headings]
    assert names, "CHANGELOG.md has no versions"
    assert all(names), f"CHANGELOG.md has other headings than versions: {headings}"
    versions = [name[1] for name in names if name]
    assert versions[0] in ("Unreleased", mcflow.__version__)
    released = [Version(version) for version in versions if version != "Unreleased"]
    assert released == sorted(released, reverse=True)
    assert all(version <= Version(mcflow.__version__) for version in released)


def test_changelog_has_the_sections_of_keep_a_changelog_in_order() -> None:
    for version in re.split(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert sections == [section for section in SECTIONS if section in sections], version.splitlines()[0]


def test_glossary_is_alphabetical_and_explains_every_term_shortly() -> None:
    _, *entries = re.split(r"^## ", text_of("docs/glossary.md"), flags=re.MULTILINE)
    terms = [entry.splitlines()[0] for entry in entries]
    assert terms == sorted(terms, key=str.casefold)
    assert len(terms) == len({term.casefold() for term in terms})
    for entry in entries:
        term, _, meaning = entry.partition("\n")
        assert 5 <= len(meaning.split()) <= 60, term


def test_compatibility_page_states_the_tested_pythons_and_the_format_of_model_files() -> None:
    page = text_of("docs/compatibility.md")
    assert f"| Python | {PYTHONS[0]} and newer | {', '.join(PYTHONS[:-1])} and {PYTHONS[-1]} |" in page
    assert f"The current format is {FORMAT_VERSION}." in page
    assert "FutureWarning" in page


@pytest.mark.parametrize("page", ["glossary", "compatibility", "releasing"])
def test_page_is_in_the_contents(page) -> None:
    contents = re.findall(r"^```\{toctree\}\n(.*?)^```", text_of("docs/reference.md"), re.MULTILINE | re.DOTALL)
    assert any(page in block.splitlines() for block in contents)


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"])
def test_policy_has_links_that_exist_and_no_address_of_a_person(name) -> None:
    text = text_of(name)
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        assert target.startswith("https://") or (ROOT / target).is_file(), target
    assert not re.search(r"[\w.]+@[\w-]+\.\w+", text)


def test_policies_name_private_reporting() -> None:
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert "*Report a vulnerability*" in text_of(name)


def test_codespell_finds_no_errors() -> None:
    if importlib.util.find_spec("codespell_lib") is None:
        pytest.skip("codespell is not installed: pip install codespell")
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *SPELLED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
