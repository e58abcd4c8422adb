"""The examples of the API's docstrings run as they stand, each by itself, with a small BERT."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PUBLIC = re.findall(r"^   ~(kbert\.\S+)$", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def found(name):
    """The public object of a name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def examples():
    """The docstrings with an example, of the public names and of their methods; one that is inherited comes once."""
    docstrings = {}
    for name in PUBLIC:
        public = found(name)
        docstrings[name] = inspect.getdoc(public) or ""
        if inspect.isclass(public):
            for method, function in inspect.getmembers(public, callable):
                if not method.startswith("_") and getattr(function, "__module__", "").startswith("kbert."):
                    docstrings[function.__qualname__] = inspect.getdoc(function) or ""
    return {name: text for name, text in docstrings.items() if ">>>" in text}


EXAMPLES = examples()


@pytest.mark.parametrize("module", ["kbert", "kbert.datasets", "kbert.metrics", "kbert.plots", "kbert.pretraining"])
def test_every_public_name_is_on_the_page(module):
    public = importlib.import_module(module)
    described = {name for name in public.__all__ if callable(getattr(public, name))}  # not modules, nor NAMES
    assert described and {f"{module}.{name}" for name in described} <= set(PUBLIC)


def test_every_public_name_has_an_example():
    assert PUBLIC and [name for name in PUBLIC if name not in EXAMPLES] == []


def test_the_code_fits_the_page():
    wide = [line for text in EXAMPLES.values() for line in text.splitlines() if line.startswith((">>>", "..."))]
    assert [line for line in wide if len(line) > 88] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")  # so small a model learns little
@pytest.mark.usefixtures("bert_tiny_for_all", "one_pass")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = []
    assert runner.run(test, out=said.append).failed == 0, "".join(said)
