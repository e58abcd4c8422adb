"""What ``import kbert`` costs, and which part of the package may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kbert

PACKAGE = Path(kbert.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# A part may import those of its own rank and below. The parts not named here are leaves, which nothing else imports.
RANKS = {
    **dict.fromkeys(("backend", "config", "config_json", "errors", "files", "forks", "hub", "kerashub_json"), 0),
    **dict.fromkeys(("learning_rates", "metrics", "processor", "sizes", "startup_messages", "values", "warn"), 0),
    **{"text": 1, "data": 2, "model": 3, "weights": 4, "training": 5, "tasks": 6, "pretraining": 7, "estimators": 8},
    **{"plots": 8, "reports": 9, "tables": 10},
}
LEAVES = {"__init__", "__main__", "cli", "datasets", "versions"}
# BertEncoder.from_pretrained and .save_pretrained belong to the class, and reach up when they are called.
ALLOWED = {("model/encoder.py", "weights"), ("model/pretraining.py", "weights")}
# So does an estimator's report.
ALLOWED |= {("estimators/fine_tuned.py", "reports")}

BACKENDS = {"keras", "tensorflow", "jax", "torch", "keras_hub"}


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import, which this test does not follow"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imports(path)}


def _run(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_importing_kbert_loads_the_standard_library_alone():
    names = "{name.partition('.')[0] for name in sys.modules}"
    loaded = _run(f"import sys; before = {names}; import kbert; print(*{names} - before)").split()
    # "__mp_main__" is the program itself, as multiprocessing calls it.
    assert set(loaded) - sys.stdlib_module_names - {"__mp_main__"} == {"kbert"}


def test_loading_weights_names_and_tokenizers_needs_no_backend():
    code = "import sys; from kbert import BertConfig, WordPieceTokenizer; import kbert.hub, kbert.data.batches; "
    loaded = _run(code + "print(' '.join({name.partition('.')[0] for name in sys.modules}))").split()
    assert "tokenizers" in loaded and not BACKENDS & set(loaded)


def test_estimators_that_predict_are_imported_without_keras_and_its_backend():
    names = "BertClassifier, BertRegressor, BertTagger, BertQA, BertMultipleChoice, BertVectorizer, load, predict_table"
    loaded = _run(f"import sys; from kbert import {names}; print(*{{name.partition('.')[0] for name in sys.modules}})")
    assert "sklearn" in loaded.split() and not BACKENDS & set(loaded.split())


def test_keras_is_imported_by_one_module():
    """Which first makes sure that a backend is there, and starts quietly. Types and versions need not."""

    def imports_keras(path: Path) -> bool:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
        skipped = {inner for node in for_types for inner in ast.walk(node)}
        nodes = [node for node in ast.walk(tree) if node not in skipped]
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        return any(name.partition(".")[0] == "keras" for name in names)

    users = {path.relative_to(PACKAGE).as_posix() for path in FILES if imports_keras(path)}
    assert users == {"model/setup.py", "model/compile_cache.py", "model/dispatch.py", "versions.py"}


def test_reading_data_sets_and_scoring_need_no_backend():
    code = "import sys, kbert; kbert.datasets.load, kbert.metrics.entity_f1; "
    loaded = _run(code + "print(' '.join({name.partition('.')[0] for name in sys.modules}))").split()
    assert "pandas" in loaded and not (BACKENDS | {"sklearn", "scipy", "transformers", "datasets"}) & set(loaded)


@pytest.mark.parametrize("name", kbert.__all__)
def test_every_public_name_can_be_imported_and_is_listed(name):
    value = getattr(kbert, name)
    assert value.__name__.rpartition(".")[2] == name
    assert name in dir(kbert)
    assert set(dir(kbert)) == {*kbert.__all__, "__version__"}  # what completion shows


def test_an_unknown_name_is_an_attribute_error_that_lists_the_names():
    with pytest.raises(AttributeError, match="'BertNothing'.*BertClassifier"):
        kbert.BertNothing  # noqa: B018


def test_every_part_has_a_place_in_the_order_of_imports():
    assert {_part(path) for path in FILES} - set(RANKS) <= LEAVES


@pytest.mark.parametrize(
    "path", [path for path in FILES if _part(path) in RANKS], ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_imports_between_the_parts_go_one_way(path):
    parts = {name.split(".")[1] for name in _imports(path) if name.startswith("kbert.")}
    file = path.relative_to(PACKAGE).as_posix()
    # A name that is no part, such as that of ``from kbert import BertConfig``, would hide where it comes from.
    upward = {part for part in parts if RANKS.get(part, 99) > RANKS[_part(path)] and (file, part) not in ALLOWED}
    assert not upward


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """All modules that one imports, itself or through others."""
    reached, waiting = set(), [start]
    while waiting:
        for name in imports[waiting.pop()] - reached:
            reached.add(name)
            waiting.append(name)
    return reached


def test_no_module_imports_itself_through_others():
    modules = {_module(path): path for path in FILES}
    imports = {}
    for module, path in modules.items():
        file = path.relative_to(PACKAGE).as_posix()
        names = {name if name in modules else name.rpartition(".")[0] for name in _imports(path)}
        imports[module] = {
            name
            for name in names & set(modules)
            if (file, name.removeprefix("kbert.").partition(".")[0]) not in ALLOWED
        }
    assert "kbert.errors" in _reached("kbert.hub", imports)
    assert not {module for module in modules if module in _reached(module, imports)}


def test_the_parts_before_the_model_import_no_backend():
    before = [path for path in FILES if RANKS.get(_part(path), 99) < RANKS["model"]]
    assert {"config.py", "batches.py", "wordpiece.py"} <= {path.name for path in before}
    assert not {path.name: _packages(path) & BACKENDS for path in before if _packages(path) & BACKENDS}


def test_pandas_is_known_to_frames_data_sets_estimators_and_what_judges_them_alone():
    users = {path.relative_to(PACKAGE).as_posix() for path in FILES if "pandas" in _packages(path)}
    assert "data/frames.py" in users
    above = ("datasets/", "estimators/", "reports/", "tables/")
    assert not {user for user in users if user != "data/frames.py" and not user.startswith(above)}
