"""Texts to numbers: one column or several, in any unit."""

import datetime
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.preprocessing import StandardScaler

from kbert import BertClassifier, BertRegressor
from kbert.data.mistakes import warn_of_far_number
from kbert.errors import FailedRunWarning, KbertWarning, LabelsWarning, WeightsMismatchError
from kbert.tasks.regression import Regression

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def make(quick_folder):
    """A function that makes a BertRegressor on toy weights that learn."""
    values = dict(weights=quick_folder, max_length=16, epochs=8, batch_size=16, learning_rate=6e-3, dtype="float32")
    return lambda **changes: BertRegressor(**{**values, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def priced(reviews):
    """Texts and prices: a good word is worth much, and some words something."""
    extra = reviews.text.str.count("table") * 0.5 + reviews.text.str.count("chair") * 0.25
    return reviews.text, (reviews.label == "good") * 2.0 + extra


@pytest.fixture(scope="module")
def fitted(make, priced):
    return make().fit(*priced)


def test_the_score_is_of_what_a_subclass_predicts(fitted, priced, answering):
    assert answering(fitted, np.full(200, priced[1].mean())).score(*priced) == pytest.approx(0)
    assert answering(fitted, priced[1].to_numpy()[:, None]).score(*priced) == 1


@pytest.mark.backend
def test_numbers_are_learned(fitted, priced):
    texts, prices = priced
    predicted = fitted.predict(texts)
    assert predicted.shape == (200,) and predicted.dtype == np.float64
    assert fitted.score(texts, prices) == r2_score(prices, predicted) > 0.8
    assert fitted.n_iter_ == 8 and fitted.history_["loss"][-1] < 0.4 < fitted.history_["loss"][0]
    assert fitted.y_mean_[0] == pytest.approx(prices.mean()) and fitted.y_scale_[0] == pytest.approx(prices.std(ddof=0))


def test_the_unit_of_y_does_not_matter(make, priced):
    texts, prices = priced[0][:48], priced[1][:48]
    plain = make(epochs=3).fit(texts, prices).predict(texts)
    large = make(epochs=3).fit(texts, prices * 1e6 - 3e6).predict(texts)
    np.testing.assert_allclose((large + 3e6) / 1e6, plain, atol=1e-4)


@pytest.mark.compiles
@pytest.mark.backend
def test_numbers_far_from_0_are_learned_under_bfloat16_too(make, reviews):
    years = np.where(reviews.label == "good", 2001.0, 2000.0)
    regressor = make(epochs=8, dtype="bfloat16").fit(reviews.text, years, eval_set=(reviews.text, years))
    assert regressor.score(reviews.text, years) == pytest.approx(regressor.history_["val_score"][-1], abs=0.01)
    assert regressor.score(reviews.text, years) > 0.9


def test_numbers_that_float32_cannot_tell_apart_are_refused(make, priced):
    texts, prices = priced[0][:32], priced[1][:32]
    with pytest.raises(
        ValueError, match=r"The mean of y is 1e\+06.*standard deviation.*Subtract a constant.*Transformed"
    ):
        make().fit(texts, prices / prices.std() + 1e6)
    with pytest.raises(ValueError, match="The mean of y of column 'stamp' is -1e"):
        make().fit(texts, pd.DataFrame({"price": prices, "stamp": prices - 1e7}))
    with pytest.raises(ValueError, match="y holds numbers over 3.4e38, at row 3, which float32 can not hold"):
        make().fit(texts, [*prices[:3], -1e39, *prices[4:]])
    with pytest.raises(ValueError, match="infinity or a value too large for dtype.*row 0"):
        make().fit(texts, [10**400, *prices[1:]])
    scaled = TransformedTargetRegressor(make(epochs=1), transformer=StandardScaler()).fit(texts, prices + 1e9)
    assert scaled.predict(texts) == pytest.approx(1e9, abs=20)


@pytest.mark.parametrize("constant", [0.1, 1e9 / 3])
def test_y_may_be_constant(make, priced, constant):
    predicted = make(epochs=3).fit(priced[0][:32], [constant] * 32).predict(priced[0][:32])
    np.testing.assert_allclose(predicted, constant, atol=0.5, rtol=1e-6)


def test_from_a_constant_y_all_is_learned_that_there_is(make, priced):
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbertWarning)
        assert (make(head_start="probe").fit(priced[0][:32], [3.0] * 32).predict(priced[0][:8]) == 3).all()


@pytest.mark.parametrize("head_start", ["random", "probe"])
def test_numbers_of_rows_without_weight_may_be_anything(make, priced, head_start):
    texts, prices = priced[0][:32], priced[1][:32]
    weights = np.where(np.arange(32) % 4, 1.0, 0.0)
    fits = [
        make(epochs=1, head_start=head_start).fit(texts, np.where(weights, prices, of_masked), sample_weight=weights)
        for of_masked in (1e20, 0.0)
    ]
    np.testing.assert_array_equal(*(fit.predict(texts) for fit in fits))


@pytest.mark.compiles
@pytest.mark.backend
def test_several_columns_are_learned_at_once(make, priced):
    texts, prices = priced
    both = pd.DataFrame({"price": prices, "cents": -100 * prices})
    regressor = make().fit(texts, both)
    predicted = regressor.predict(texts)
    assert predicted.shape == (200, 2) and regressor.score(texts, both) > 0.75
    assert np.corrcoef(predicted.T)[0, 1] < -0.9
    assert regressor.y_columns_ == ["price", "cents"]


def test_one_column_of_a_table_stays_a_column(make, priced):
    texts, prices = priced[0][:32], priced[1][:32]
    column = make(epochs=1).fit(texts, prices.to_numpy()[:, None]).predict(texts)
    assert column.shape == (32, 1)
    assert np.array_equal(column[:, 0], make(epochs=1).fit(texts, prices).predict(texts))


@pytest.mark.parametrize(
    "container",
    [list, tuple, np.array, lambda y: y.astype("Float64"), lambda y: y.astype("float32"), lambda y: pd.Index(y)],
)
def test_every_container_of_numbers_gives_the_same(make, priced, container):
    texts, prices = priced[0][:32], priced[1][:32]
    expected = make(epochs=1).fit(texts, prices).predict(texts)
    np.testing.assert_allclose(make(epochs=1).fit(texts, container(prices)).predict(texts), expected, atol=1e-5)


def test_pairs(make, pairs):
    regressor = make(epochs=12).fit(pairs[["left", "right"]], pairs.both.astype(float))
    assert regressor.score(pairs[["left", "right"]], pairs.both.astype(float)) > 0.5
    assert regressor.feature_names_in_.tolist() == ["left", "right"]


@pytest.mark.thorough
def test_windows_give_the_mean_of_their_numbers(make, priced):
    texts, prices = "the table and a chair with this room was it " * 2 + priced[0], priced[1]
    assert make(long_text="window", epochs=25, learning_rate=3e-3).fit(texts, prices).score(texts, prices) > 0.4


def test_sample_weight_counts(make, priced):
    texts, prices = priced
    wrong = np.arange(200) % 4 < 2
    regressor = make().fit(texts, np.where(wrong, -prices, prices), np.where(wrong, 0, 1))
    assert regressor.score(texts, prices) > 0.6


def test_early_stopping_watches_r2(make, priced):
    texts, prices = priced
    regressor = make(early_stopping=True, n_iter_no_change=3, validation_fraction=0.25).fit(texts, prices)
    assert max(regressor.history_["val_score"]) > 0.4
    regressor = make(epochs=2).fit(texts[:100], prices[:100], eval_set=(texts[100:], prices[100:]))
    assert regressor.history_["val_score"][-1] == pytest.approx(regressor.score(texts[100:], prices[100:]), abs=1e-5)


def test_it_goes_on_in_the_unit_of_y(make, priced):
    texts, prices = priced
    regressor = make(warm_start=True).fit(texts, prices * 1000)
    before = regressor.score(texts, prices * 1000)
    regressor.set_params(epochs=1, learning_rate=1e-6).fit(texts[:50], prices[:50] * 1000)
    assert regressor.score(texts, prices * 1000) == pytest.approx(before, abs=0.02)


def test_early_stopping_on_one_row_goes_by_the_loss(make, priced):
    texts, prices = priced
    regressor = make(epochs=5, early_stopping=True, n_iter_no_change=5)
    regressor.fit(texts, prices, eval_set=(texts[:1], prices[:1]))
    losses = regressor.history_["val_loss"]
    assert np.isnan(regressor.history_["val_score"]).all() and np.argmin(losses) > 0
    off = (regressor.predict(texts[:1]) - prices[0]) / regressor.y_scale_
    assert off[0] ** 2 == pytest.approx(min(losses), abs=1e-5)


def test_a_failed_run_is_told(make):
    with pytest.warns(FailedRunWarning, match="the mean of y alone gives 1.000. Nothing was learned"):
        make(epochs=3).fit(["the table"] * 64, np.arange(64.0))


@pytest.mark.backend
def test_saved_and_loaded_it_predicts_the_same(fitted, priced, tmp_path):
    fitted.save(tmp_path / "saved")
    loaded = BertRegressor.load(tmp_path / "saved", verify=True)
    np.testing.assert_allclose(loaded.predict(priced[0]), fitted.predict(priced[0]), atol=1e-5)
    assert loaded.y_ndim_ == 1 and loaded.get_params()["epochs"] == 8
    with pytest.raises(WeightsMismatchError, match="load it with kbert.BertRegressor.load"):
        BertClassifier.load(tmp_path / "saved")
    # Without kbert.json, as transformers leaves a folder, the numbers are in the unit of y too.
    (tmp_path / "saved" / "kbert.json").unlink()
    found = BertRegressor.load(tmp_path / "saved").set_params(max_length=16).predict(priced[0])
    np.testing.assert_allclose(found, fitted.predict(priced[0]), atol=1e-4)


@pytest.mark.parity
@pytest.mark.parametrize(("unit", "mean"), [(1e-5, 0), (1.0, 3e4)])
def test_verify_and_export_notice_other_numbers_in_any_unit(make, priced, tmp_path, unit, mean):
    regressor = make(epochs=1).fit(priced[0][:48], priced[1][:48] * unit + mean)
    regressor.save(tmp_path)
    BertRegressor.load(tmp_path, verify=True)
    numbers = regressor.predict(priced[0][:8])[:, None]
    off = 0.01 * np.ptp(priced[1]) * unit
    last_digit = np.abs(np.spacing(numbers.astype("float32")))
    assert (regressor._off(numbers, numbers + last_digit) <= 1e-4).all()
    assert not (regressor._off(numbers, numbers + off) <= 1e-4).any()
    arrays = load_file(tmp_path / "model.safetensors")
    arrays["mean_classifier.weight"] *= 0
    save_file(arrays, tmp_path / "model.safetensors", {"format": "pt"})
    # Without the checksum of the weights, as in folders of earlier versions.
    values = json.loads((tmp_path / "kbert.json").read_text())
    del values["golden"]["weights"]
    (tmp_path / "kbert.json").write_text(json.dumps(values))
    with pytest.raises(WeightsMismatchError, match="does not predict what it did"):
        BertRegressor.load(tmp_path, verify=True)


def test_transformers_opens_it_with_the_same_numbers(make, priced, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    fitted = make(classifier_pooling="cls", epochs=1).fit(*priced)
    fitted.save(tmp_path / "saved")
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert model.config.problem_type == "regression" and model.config.num_labels == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    texts = priced[0][:20].tolist()
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits[:, 0].numpy()
    np.testing.assert_allclose(fitted.predict(texts), logits, atol=2e-5)


@pytest.mark.thorough
def test_it_works_in_searches_and_pipelines(make, priced):
    texts, prices = priced[0][:100], priced[1][:100]
    search = GridSearchCV(make(), {"epochs": [1, 15]}, cv=2).fit(texts, prices)
    assert search.best_params_ == {"epochs": 15}
    logged = TransformedTargetRegressor(make(), func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    assert logged.fit(texts, prices).predict(texts).min() > -1
    assert cross_val_predict(make(epochs=1), texts, prices, cv=2).shape == (100,)
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, "requires y to be passed"),
        ([1.0, 2.0], ValueError, "X has 3 rows and y has 2"),
        ([1.0, np.nan, 2.0], ValueError, "Input y contains NaN: 1 missing, at row 1"),
        ([1.0, np.inf, 2.0], ValueError, "contains infinity.*row 1"),
        (["1", "2", "3"], TypeError, "y should be numeric: row 0 is '1', of type str. Convert with pd.to_numeric"),
        (
            ["1,5", "2", "3"],
            TypeError,
            r'row 0 is .1,5.*Convert with pd.Series\(y\).str.replace\(",", "."\).astype\(float\)',
        ),
        (
            pd.Series(pd.date_range("2026-01-01", periods=3)),
            TypeError,
            r"days: y = pd.Series\(pd.to_datetime\(y\)\); y = \(y - y.min\(\)\).dt.days",
        ),
        (
            pd.to_timedelta([1, 2, 3], unit="s"),
            TypeError,
            r"Convert with pd.Series\(pd.to_timedelta\(y\)\).dt.total_seconds\(\)",
        ),
        ([np.str_("1"), np.str_("2"), np.str_("3")], TypeError, "y should be numeric: row 0 is .*1"),
        (list(np.ones(3, "complex64")), TypeError, "should be numeric: row 0 is .*complex64"),
        (np.ones((3, 0)), ValueError, "y has no columns"),
        (pd.Series([1, None, 3], index=[7, 8, 9], dtype="Int64"), ValueError, r"row 1 \(index 8\)"),
        (np.array(["2024-05-01"] * 3, "M8[ns]"), TypeError, "row 0 is 2024-05-01, of type datetime64"),
        (list(np.array(["2024-05-01"] * 3, "M8[D]")), TypeError, "should be numeric: row 0 is 2024-05-01"),
        (np.array([1, 2, 3], "m8[ns]"), TypeError, r"should be numeric: row 0 is .*timedelta64\(1,'ns'\)"),
    ],
)
def test_y_that_cannot_be_used_is_named(make, y, error, message):
    with pytest.raises(error, match=message):
        make().fit(["a", "b", "c"], y)


@pytest.mark.parametrize("names", [["a", "b"], [20, 10], [1, 0]])
def test_columns_are_found_by_their_names(make, priced, names, tmp_path):
    texts, prices = priced[0][:32], priced[1][:32]
    both = pd.DataFrame(dict(zip(names, (prices, 100 - prices), strict=True)))
    turned = both[names[::-1]]
    regressor = make(epochs=2, warm_start=True).fit(texts, both, eval_set=(texts, turned))
    assert regressor.y_columns_ == names
    score = regressor.score(texts, both)
    assert regressor.history_["val_score"][-1] == pytest.approx(score, abs=1e-5)
    assert regressor.score(texts, turned) == regressor.score(texts, both.to_numpy()) == score
    regressor.save(tmp_path / "saved")
    again = BertRegressor.load(tmp_path / "saved")
    assert again.y_columns_ == names
    again.fit(texts, both), regressor.fit(texts, turned)
    np.testing.assert_allclose(again.predict(texts), regressor.predict(texts), atol=1e-4)
    other = both.rename(columns={names[1]: "z"})
    with pytest.raises(ValueError, match="eval_set's y has the columns .*'z', and y of fit had"):
        make().fit(texts, both, eval_set=(texts, other))
    with pytest.raises(ValueError, match="y has the columns .*'z'"):
        regressor.score(texts, other)


def test_score_takes_weights_as_fit_does(fitted, priced):
    texts, prices = priced
    weight = np.linspace(0, 1, 200)
    expected = r2_score(prices, fitted.predict(texts), sample_weight=weight)
    assert fitted.score(texts, prices, weight) == pytest.approx(expected, rel=1e-6)
    assert fitted.score(texts, prices, 2) == pytest.approx(fitted.score(texts, prices))
    with pytest.raises(ValueError, match="Negative values.*row 0"):
        fitted.score(texts, prices, weight - 1)


def test_score_refuses_a_wrong_y_before_it_predicts(fitted, priced, monkeypatch):
    monkeypatch.setattr(Regression, "predict", lambda *_: pytest.fail("it predicted"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(priced[0][:4], [1.0, 2.0, 3.0])


def test_other_columns_than_those_of_fit_are_refused(make, priced):
    texts, prices = priced[0][:32], priced[1][:32]
    with pytest.raises(ValueError, match=r"eval_set's y has 2 columns of numbers, and y of fit had 1\."):
        make().fit(texts, prices, eval_set=(texts, np.stack([prices, prices], axis=1)))
    table = pd.DataFrame({"price": prices, "size": prices})
    with pytest.raises(ValueError, match=r"y has 1 columns of numbers, and y of fit had 2, \['price', 'size'\]\."):
        make(epochs=1).fit(texts, table).score(texts, table[["size"]])


DATES = [datetime.date(2026, 1, 1 + day) for day in range(3)]


@pytest.mark.parametrize("y", [DATES, pd.Series(DATES), np.array(DATES, "M8[D]"), pd.to_datetime(DATES)], ids=type)
def test_the_advice_for_dates_works(make, y):
    with pytest.raises(TypeError, match="Count the days: ") as error:
        make().fit(["a", "b", "c"], y)
    code = str(error.value).split("Count the days: ")[1].split(", or use ")[0]
    names = {"y": y, "pd": pd}
    exec(code, names)
    assert list(names["y"]) == [0, 1, 2]


def test_a_few_numbers_far_from_the_others_are_told_together():
    """The second would hide the first: without either the standard deviation is still large."""
    y = np.tile([1.0, 2.0], 50)
    y[[3, 4]] = 900, 1000
    with pytest.warns(LabelsWarning, match=r"y holds 900, 1000, and all others are from 1 to 2\. .*logarithm"):
        warn_of_far_number(y)
    with pytest.warns(LabelsWarning, match=r"y holds -900, -1000, and all others are from -2 to -1\.") as told:
        warn_of_far_number(-y)
    assert "logarithm" not in str(told[0].message)
    y[[3, 4]] = 900, 1e6  # without the second one alone the first would look like one of the others
    with pytest.warns(LabelsWarning, match="y holds 900, 1e.06, and all others are from 1 to 2"):
        warn_of_far_number(y)
    y[:6] = 1000  # so many are no slips
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        warn_of_far_number(y)


def test_a_number_far_from_the_others_is_told_where_it_counts(make):
    """As a slip of the decimal point is; numbers of rows without weight may be anything."""
    texts, y = ["a b", "b c"] * 8, np.array([1.0, 2.0] * 8)
    y[3], weights = 200, np.ones(16)
    with pytest.warns(LabelsWarning, match=r"y holds 200, and all others are from 1 to 2\. .* 9\d times as large"):
        make().fit(texts, y)
    table = pd.DataFrame({"price": y, "size": [1.0, 2.0] * 8})
    with pytest.warns(LabelsWarning, match="y, column 'price', holds 200"):
        make().fit(texts, table)
    weights[3] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        make().fit(texts, y, weights)
        for fine in ([0.1] * 15 + [5.0], np.exp(np.random.default_rng(0).normal(size=16))):
            make(epochs=1).fit(texts, fine)
