"""The files around the code: the version, the changelog, the workflows and the addresses say the same."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import kbert

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github/workflows").iterdir()
}
HOME = PROJECT["urls"]["Repository"]


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _module(ROOT / ".ci" / "release.py")


def test_the_workflow_tests_every_python_that_is_promised_and_every_backend():
    matrix = WORKFLOWS["ci"]["jobs"]["test"]["strategy"]["matrix"]
    named = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert matrix["python"] == named and PROJECT["requires-python"] == f">={named[0]}"
    backends = {name for name in PROJECT["optional-dependencies"] if name in ("tensorflow", "jax", "torch")}
    assert set(matrix["backend"]) == backends
    # Only combinations that cannot be installed are left out, and none of the lowest Python.
    assert all(left_out["python"] != named[0] for left_out in matrix["exclude"])


def test_each_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    texts = [*(ROOT / ".github").rglob("*.*"), ROOT / "CONTRIBUTING.md", ROOT / "README.md", ROOT / ".ci" / "run"]
    named = {
        target
        for path in texts
        for target in re.findall(r"(?:`|run: |^)make (?:-C \w+ )?([a-z-]+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert {"test", "lint", "docs", "coverage"} <= named <= targets


def test_jobs_need_jobs_that_exist_and_have_a_time_limit():
    for workflow in WORKFLOWS.values():
        jobs = workflow["jobs"]
        for job in jobs.values():
            needed = job.get("needs", [])
            assert set([needed] if isinstance(needed, str) else needed) <= set(jobs)
            assert "timeout-minutes" in job or "uses" in job


def test_only_the_jobs_that_publish_may_write():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}
        allowed = {job: facts["permissions"] for job, facts in workflow["jobs"].items() if "permissions" in facts}
        publishing = {"pypi": {"id-token": "write"}, "github": {"contents": "write"}}
        assert allowed == (publishing if name == "release" else {})


def test_every_text_names_the_same_repository():
    texts = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.*")]
    named = {
        address
        for path in texts
        for address in re.findall(r"https://github\.com/[\w.-]+/kbert\b", path.read_text(encoding="utf-8"))
    }
    assert named == {HOME}
    assert all(url.startswith(HOME) for url in PROJECT["urls"].values() if "github.com" in url)


def test_the_changelog_keeps_its_form():
    headings = re.findall(r"^(##+) (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == ("##", "[Unreleased]")
    kinds = {text for marks, text in headings if marks == "###"}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert all(
        re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", text) for marks, text in headings[1:] if marks == "##"
    )


@pytest.fixture
def releasable(tmp_path):
    """A repository that may be released as v1.2.3 of owner/kbert."""
    (tmp_path / "kbert").mkdir()
    (tmp_path / "kbert" / "__init__.py").write_text('x = 1\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n### Added\n- a\n\n## [1.2.2]\n- b\n"
    )
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nHomepage = "https://github.com/owner/kbert"\n')
    return tmp_path


def test_a_release_has_the_notes_of_its_version(releasable):
    assert release.faults(releasable, "v1.2.3", "owner/kbert") == []
    assert release.notes_of((releasable / "CHANGELOG.md").read_text(), "1.2.3") == "### Added\n- a"
    assert release.version_of(Path(kbert.__file__).parents[1]) == kbert.__version__


@pytest.mark.parametrize(
    "file, old, new, fault",
    [
        ("kbert/__init__.py", "1.2.3", "1.2.4", "The tag is v1.2.3, and kbert/__init__.py has version 1.2.4"),
        ("CHANGELOG.md", "[1.2.3] - 2026-01-31", "[1.2.3]", "has no section '## [1.2.3] - YYYY-MM-DD'"),
        ("CHANGELOG.md", "### Added\n- a\n", "", "or an empty one"),
        ("pyproject.toml", "owner/kbert", "owner/kbert-fork", "and this repository is https://github.com/owner/kbert"),
    ],
)
def test_what_does_not_agree_is_not_released(releasable, file, old, new, fault):
    path = releasable / file
    path.write_text(path.read_text().replace(old, new))
    found = release.faults(releasable, "v1.2.3", "owner/kbert")
    assert found and any(fault in line for line in found)
