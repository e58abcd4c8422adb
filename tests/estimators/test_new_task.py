"""A new task is one file and an estimator that names it: docs/project/architecture.md has the whole of one."""

import re
import sys
import types
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import kbert
from kbert import BertClassifier, BertMultipleChoice, BertQA, BertRegressor, BertTagger
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.reports.given import kind_of
from kbert.tables import commands, outputs
from kbert.tasks import Choice, Questions, Regression, SeveralLabels, SingleLabel, Tagging

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "project" / "architecture.md"


@pytest.mark.parametrize(
    ("estimator", "task"),
    [(BertClassifier, SingleLabel), (BertClassifier, SeveralLabels), (BertRegressor, Regression), (BertTagger, Tagging),
     (BertQA, Questions), (BertMultipleChoice, Choice)],
)  # fmt: skip
def test_a_field_of_a_task_is_a_parameter_of_its_estimator(estimator, task):
    """A name that is misspelt would keep the field's default, whatever the user gave."""
    given = {field.name for field in fields(task) if field.init and not field.name.endswith("_")}
    assert given and given <= set(estimator().get_params())


@pytest.fixture(scope="module")
def grades():
    """The module that the page shows."""
    text = PAGE.read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class Grades" in block)
    assert code.count("\n") < 110
    module = types.ModuleType("grades")
    sys.modules["grades"] = module  # where dataclasses and pickle look for it
    exec(code, vars(module))
    yield module
    del sys.modules["grades"]


def test_tables_and_reports_know_every_estimator_that_is_fitted_to_a_y():
    """Where they are listed: architecture.md, "Which file to open"."""
    public = [value for name in kbert.__all__ if isinstance(value := getattr(kbert, name), type)]
    estimators = [each for each in public if issubclass(each, FineTunedEstimator)]
    assert len(estimators) >= 5
    for each in estimators:
        assert kind_of(each()) and each in outputs._COLUMNS and each.__name__ in commands._TASKS.values()


@pytest.fixture
def rated():
    """Texts with the grades 1 to 3, each of which has a word of its own."""
    rng = np.random.default_rng(0)
    y = np.tile([1, 2, 3], 32)
    texts = [f"{rng.choice(['the', 'a', 'this'])} chair was {('awful', 'plain', 'great')[grade - 1]}" for grade in y]
    return texts, y


def test_the_new_task_learns_saves_and_loads(grades, rated, quick_folder, tmp_path):
    parameters = dict(weights=quick_folder, max_length=16, epochs=16, batch_size=16, learning_rate=3e-3, random_state=0)
    texts, y = rated
    grader = grades.BertGrader(**parameters, early_stopping=True, n_iter_no_change=16).fit(texts, y)
    assert np.mean(np.abs(grader.predict(texts) - y)) < 0.3
    assert grader.score(texts, y) == pytest.approx(-np.mean(np.abs(grader.predict(texts) - y)))
    assert max(grader.history_["val_score"]) <= 0 and grader.classes_.tolist() == [1, 2, 3]
    grader.save(tmp_path / "grader")
    loaded = grades.BertGrader.load(tmp_path / "grader", verify=True)
    assert np.array_equal(loaded.predict(texts), grader.predict(texts))
    assert loaded.set_params(warm_start=True).fit(texts[:16], y[:16]).classes_.tolist() == [1, 2, 3]


def test_the_new_task_refuses_unknown_grades(grades, rated, quick_folder):
    texts, y = rated
    grader = grades.BertGrader(weights=quick_folder, max_length=16, epochs=1)
    with pytest.raises(ValueError, match=r"eval_set's y holds grades that y of fit did not: \[7\]"):
        grader.fit(texts, y, eval_set=(texts, y * 0 + 7))
