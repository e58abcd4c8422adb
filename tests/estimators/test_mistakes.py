"""X and y that cannot be meant are refused, or warned of, with the line to write instead."""

import ast
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder

from kbert import BertClassifier, BertPretrainer, BertQA, BertRegressor, BertVectorizer
from kbert.data.mistakes import looks_like_text, refuse_swapped, warn_of_other_order
from kbert.errors import LabelsWarning, ParameterWarning

pytestmark = pytest.mark.slow

FILLERS = "the a table chair room with was and it this".split()


def messages(n, seed=0):
    rng = np.random.default_rng(seed)
    return [f"{' '.join(rng.choice(FILLERS, 5))} number {i}" for i in range(n)]


@pytest.fixture
def df():
    """Support messages and their labels, in two columns."""
    return pd.DataFrame({"message": messages(40), "label": ["billing", "bug", "login", "other"] * 10})


@pytest.fixture
def clf(toy):
    return toy()


def refused(call, *parts):
    with pytest.raises(ValueError) as error:
        call()
    for part in parts:
        assert part in str(error.value)


def quiet(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        return call()


RIGHT = 'clf.fit(df["message"], df["label"])'


# --- y among the columns of X


def test_a_column_of_X_that_is_y_is_refused_with_the_right_call(clf, df):
    refused(lambda: clf.fit(df, df.label), "X's column 'label' is y", RIGHT)
    refused(lambda: clf.fit(df, df.label.to_numpy()), "X's column 'label' is y", RIGHT)
    refused(lambda: clf.fit(df[["label", "message"]], df[["label"]]), "X's column 'label' is y", RIGHT)
    refused(
        lambda: clf.fit(df.to_numpy(), df.label.tolist()), "Column 1 of X is y", "clf.fit([row[0] for row in X], y)"
    )
    refused(lambda: clf.fit(df.label, df.label), "X is y: the same values in every row", 'clf.fit(texts, df["label"])')


def test_it_is_refused_in_a_cross_validation_too(clf, df):
    df["label"] = np.random.default_rng(0).permutation(df.label)
    with pytest.raises(ValueError, match="All the 5 fits failed") as error:
        cross_val_score(clf, df, df.label)
    assert RIGHT in str(error.value)
    with pytest.raises(ValueError, match=re.escape(RIGHT)):
        cross_val_score(clf, df, df.label, error_score="raise")


def test_labels_that_are_numbers_are_not_to_be_made_texts(clf, df):
    df["label"] = df.label.astype("category").cat.codes
    refused(lambda: clf.fit(df, df.label), "X's column 'label' is y", RIGHT)
    stars = pd.DataFrame({"review": messages(40), "stars": np.linspace(1, 5, 40)})
    regressor = BertRegressor(weights=clf.weights)
    refused(lambda: regressor.fit(stars, stars.stars), 'estimator.fit(df["review"], df["stars"])')


def test_the_name_of_y_alone_is_enough(clf, df):
    told = "X's column 'label' has the name of y"
    refused(lambda: clf.fit(df, df.label.str.upper()), told, 'clf.fit(df["message"], y)', "y.rename(None)")
    stars = pd.DataFrame({"message": df.message, "stars": np.arange(40) % 5})
    refused(
        lambda: clf.fit(stars, stars.stars > 2), "X's column 'stars' has the name of y", 'clf.fit(df["message"], y)'
    )


def test_labels_that_were_made_from_a_column_of_words_may_have_its_name(clf, df):
    words = pd.DataFrame({"word": [f"word{number}" for number in range(40)], "message": df.message})
    quiet(lambda: clf.fit(words, words.word.map(lambda word: word[-1] in "02468")))
    # Numbers are no words, as a CSV that was read with dtype=str has them.
    prices = pd.DataFrame({"message": df.message, "price": [str(number * 1.5) for number in range(40)]})
    refused(lambda: clf.fit(prices, prices.price.astype(float) > 30), "X's column 'price' has the name of y")
    empty = pd.DataFrame({"a": [], "b": []})
    refused(lambda: clf.fit(empty, empty.b), "0 sample")


def test_labels_written_in_another_way_are_y_too(clf, df):
    told = "X's column 'label' tells y: it has another value for each of y's"
    for y, right in (
        (LabelEncoder().fit_transform(df.label), 'clf.fit(df["message"], y)'),
        (pd.factorize(df.label)[0].tolist(), 'clf.fit(df["message"], y)'),
        (df.label.str.upper().rename("topic"), 'clf.fit(df["message"], df["topic"])'),
        (pd.get_dummies(df.label, dtype=int).to_numpy(), 'clf.fit(df["message"], y)'),
    ):
        with pytest.warns(LabelsWarning, match=re.escape(told)) as caught:
            clf.fit(df, y)
        assert right in str(caught[0].message)
    # Labels that hold several words are no texts either.
    df["label"] = "it is " + df.label
    with pytest.warns(LabelsWarning, match=re.escape(told)):
        clf.fit(df, LabelEncoder().fit_transform(df.label))


def test_of_more_columns_y_is_told_too(clf, df):
    long = "Credit reporting, credit repair services, or other personal consumer reports: "
    table = pd.DataFrame({"id": range(40), "narrative": df.message, "product": long + df.label})
    refused(
        lambda: clf.fit(table, table["product"]),
        "X's column 'product' is y",
        "clf.fit(df['narrative'], df[\"product\"])",
    )
    refused(
        lambda: clf.fit(table, pd.factorize(table["product"])[0]), "X's column 'product'", "clf.fit(df['narrative'], y)"
    )


def test_the_other_labels_of_y_are_kept_in_the_right_call(clf, df):
    table = pd.DataFrame({"text": df.message, "money": [0, 1] * 20, "parcel": [1, 1, 0, 0] * 10})
    refused(
        lambda: clf.fit(table[["text", "money"]], table[["money", "parcel"]]),
        "X's column 'money' has the name of y",
        'clf.fit(df["text"], df[["money", "parcel"]])',
    )


def test_two_columns_that_both_tell_y_are_taken(clf):
    """A toy: which of them is y is not known, and a model that reads it is what was asked for."""
    pairs = pd.DataFrame({"one": ["so good", "so bad"] * 10, "two": ["yes", "no"] * 10})
    quiet(lambda: clf.fit(pairs, ["pos", "neg"] * 10))


def test_a_pipeline_is_refused_too(clf, df):
    pipeline = make_pipeline(BertVectorizer(weights=clf.weights, max_length=16), LogisticRegression())
    refused(lambda: pipeline.fit(df, df.label), "X's column 'label' is y", 'estimator.fit(df["message"], df["label"])')


def test_what_may_be_meant_is_taken(clf, df):
    # Texts beside another column, y made from them, which keeps their name.
    two = pd.DataFrame({"message": df.message, "reply": df.message[::-1].to_numpy()})
    quiet(lambda: clf.fit(two, two.message.str.contains("red|the")))
    short = df.assign(reply=["the red one", "a blue one", "a red one", "the blue one"] * 10)[["message", "reply"]]
    quiet(lambda: clf.fit(short, short.reply.str.contains("red")))
    # Pairs of a text and its topic, and another y.
    quiet(lambda: clf.fit(df, pd.Series(["yes", "no"] * 20, name="answer")))
    # Numbers to learn from texts that say them.
    BertRegressor(weights=clf.weights, epochs=1, max_length=16).fit([str(i) for i in range(20)], range(20))


@pytest.mark.parametrize(
    "columns, proposed",
    [
        ({"id": range(40), "text": messages(40)}, "df['text']"),
        ({"text": messages(40), "when": ["2024-05-01 10:00"] * 40}, "df['text']"),
        ({"question": messages(40), "answer": messages(40, 1)}, "df[['question', 'answer']]"),
        (
            {"a": messages(40), "b": [f"{text} and more of it" for text in messages(40)], "c": messages(40, 2)},
            "df['b']",
        ),
    ],
)
def test_of_three_columns_those_that_look_like_texts_are_proposed(clf, columns, proposed):
    df = pd.DataFrame({**columns, "label": ["pos", "neg"] * 20})
    n = len(df.columns)
    with pytest.raises(ValueError, match=rf"X has {n} columns .*, where 1 or 2 are expected\.") as error:
        clf.fit(df, ["yes", "no", "no", "yes"] * 10)
    assert str(error.value).endswith(f"Choose those that hold the texts, for example {proposed}.")
    refused(lambda: clf.fit(df, df.label), "X's column 'label' is y", f'clf.fit({proposed}, df["label"])')


def test_no_column_is_proposed_if_none_looks_like_texts(clf):
    df = pd.DataFrame({"a": range(8), "b": ["x", "y"] * 4, "c": ["pos", "neg"] * 4})
    with pytest.raises(ValueError, match=r"Choose those that hold the texts\.$"):
        clf.fit(df, df.c)


def test_what_looks_like_text():
    assert looks_like_text(messages(10)) and looks_like_text(["这部电影非常好看我喜欢", "这部电影不好看浪费时间"])
    assert looks_like_text(["one long premise that is the same in three rows of four, or in all"] * 4)
    for values in (
        ["pos", "neg"] * 5,
        [1, 2],
        [],
        [None, None],
        ["account locked", "billing issue"] * 5,
        ["a1-b2", "c3"],
    ):
        assert not looks_like_text(values)


# --- X and y exchanged


def test_labels_as_X_and_texts_as_y_are_refused_with_the_right_call(clf, df):
    refused(lambda: clf.fit(df.label, df.message), "X and y are exchanged: X holds 4 different values", RIGHT)
    refused(lambda: clf.fit(df.label.tolist(), df.message.tolist()), "Texts go first: clf.fit(y, X)")
    df["label"] = df.label.astype("category").cat.codes
    refused(lambda: clf.fit(df[["label"]], df.message), RIGHT)
    refused(lambda: clf.fit(df.label[:4], df.message[:4]), RIGHT)
    stars = pd.DataFrame({"review": messages(40), "stars": np.linspace(1, 5, 40)})
    regressor = BertRegressor(weights=clf.weights)
    refused(lambda: regressor.fit(stars.stars, stars.review), 'estimator.fit(df["review"], df["stars"])')


def test_texts_that_come_twice_and_pairs_as_y_are_refused(clf, df):
    texts = df.message.repeat(2).reset_index(drop=True)
    labels = df.label.repeat(2).reset_index(drop=True)
    refused(lambda: clf.fit(labels, texts), "X and y are exchanged", RIGHT)
    df["answer"] = messages(40, seed=1)
    right = 'clf.fit(df[["message", "answer"]], df["label"])'
    refused(lambda: clf.fit(df.label, df[["message", "answer"]]), "X and y are exchanged", right)
    quiet(lambda: clf.fit(texts, labels))
    few = pd.Series(["please close the account", "the bill was paid twice"] * 20)
    quiet(lambda: clf.fit(few, ["account locked", "billing issue"] * 20))  # labels of several words
    for X in ([""] * 90 + ["broken again", "came late"] * 5, ["lamp", "chair", "bed", "table"] * 25):
        labels = [f"{how} {what}" for how in ("very", "rather") for what in ("good", "bad", "cheap", "late", "dear")]
        refuse_swapped(X, labels * 10, "clf.fit")  # few texts, and more labels of several words


def test_answers_as_X_and_questions_as_y_are_refused_with_the_right_call(toy):
    df = pd.DataFrame(
        {"question": ["who left"] * 4, "context": ["Ada left"] * 4, "answer": ["Ada"] * 4, "answer_start": [0] * 4}
    )
    qa = BertQA(weights=toy().weights)
    right = 'estimator.fit(df[["question", "context"]], df[["answer", "answer_start"]]).'
    refused(lambda: qa.fit(df[["answer", "answer_start"]], df[["question", "context"]]), "exchanged", right)


# --- Labels that look like something else


def test_more_labels_than_half_of_the_rows(clf, df):
    with pytest.warns(LabelsWarning, match="y holds 40 different labels in 40 rows.*free text or an id"):
        clf.fit(df.message, [f"ticket {i}" for i in range(40)])
    with pytest.warns(LabelsWarning, match="y holds 21 different labels in 40 rows.*use BertRegressor"):
        clf.fit(df.message, [*range(20), *[20] * 20])
    for labels in (pd.Series([*range(20), *[20] * 20], name="n"), [*range(20), *[20] * 20]):
        for kind in ("int64", "Int64", "category") if isinstance(labels, pd.Series) else (None,):
            y = labels if kind is None else labels.astype(kind)
            with pytest.warns(LabelsWarning) as told:
                clf.fit(df.message, y)
            line = str(told[0].message).partition("joined into one: ")[2].rstrip(".")
            given = {"pd": pd, "y": y, "df": pd.DataFrame({"n": y})}
            exec(line, given)
            assert given["y"].value_counts().to_dict() == {"20": 20, "other": 20}
    quiet(lambda: clf.fit(df.message, [*range(20)] * 2))
    quiet(lambda: clf.fit(df.message[:3], ["a", "b", "c"]))  # a first try


def test_rare_labels_are_not_to_be_joined_where_none_would_be_left(clf, df):
    with pytest.warns(LabelsWarning, match="y holds 30 different labels in 40 rows, most of them once") as told:
        clf.fit(df.message, [f"c{i % 30}" for i in range(40)])
    assert "joined" not in str(told[0].message)
    with pytest.warns(LabelsWarning, match="y holds 22 different labels in 40 rows: a label is learned from") as told:
        clf.fit(df.message, [f"c{i % 22}" for i in range(40)])
    assert "joined" not in str(told[0].message)


def test_a_column_of_polars_has_lines_that_can_be_run(clf, df):
    pl = pytest.importorskip("polars")
    lists = pl.Series("labels", ["['a', 'b']", "['b']"] * 20)
    with pytest.raises(ValueError, match="lists written as strings") as error:
        clf.fit(df.message, lists)
    given = {"df": pl.DataFrame({"labels": lists})}
    exec(str(error.value).partition("several labels a row: ")[2].rstrip("."), given)
    assert given["y"].tolist() == [["a", "b"], ["b"]] * 20
    numbers = pl.Series("n", [*range(20), *[20] * 20])
    with pytest.warns(LabelsWarning) as told:
        clf.fit(df.message, numbers)
    given = {"df": pl.DataFrame({"n": numbers})}
    exec(str(told[0].message).partition("joined into one: ")[2].rstrip("."), given)
    assert given["y"].value_counts().to_dict() == {"20": 20, "other": 20}
    with pytest.warns(LabelsWarning, match="several labels in one string") as told:
        clf.fit(df.message, pl.Series("labels", ["a,b", "a"] * 20))
    line = str(told[0].message).partition("a row write y = ")[2].rstrip(".")
    assert list(eval(line, {"df": pl.DataFrame({"labels": ["a,b", "a"]})})[0]) == ["a", "b"]


def test_a_one_hot_y_is_fitted_as_several_labels_with_a_warning(clf, df):
    y = pd.get_dummies(df.label)
    for given, line in (
        (y, "y = y.idxmax(axis=1)."),
        (y.to_numpy(), "y = y.argmax(axis=1)."),
        (y.to_numpy().astype(int).tolist(), "y = np.argmax(y, axis=1)."),
        (sparse.csr_matrix(y.to_numpy().astype(int)), "y = np.asarray(y.argmax(axis=1)).ravel()."),
    ):
        with pytest.warns(LabelsWarning, match="Each row of y has exactly one label") as caught:
            clf.fit(df.message, given)
        assert str(caught[0].message).endswith(line)
        assert clf.y_type_ == "indicator" and clf.predict(df.message[:2]).shape == (2, 4)
    y.iloc[0] = False
    quiet(lambda: clf.fit(df.message, y))


@pytest.mark.parametrize("label", ["['a', 'b']", '["a"]', "('a', 'b')", "{'a'}", "[1, 2]", "[]"])
def test_lists_of_labels_in_strings_are_refused(clf, df, label):
    df["labels"] = [label, "['b']"] * 20
    refused(lambda: clf.fit(df.message, df.labels), 'import ast; y = df["labels"].apply(ast.literal_eval).')
    refused(lambda: clf.fit(df.message, df.labels.tolist()), "y = [ast.literal_eval(labels) for labels in y].")


@pytest.mark.parametrize(
    "labels, line, made",
    [
        (["['a' 'b']", "['b']"], """y = df["labels"].str.findall(r"'([^']+)'").""", ["a", "b"]),
        (["['it is' 'b']", "['a' 'it is'\n 'b']"], """y = df["labels"].str.findall(r"'([^']+)'").""", ["it is", "b"]),
        (["[0 1 0]", "[1 0 0]"], 'y = np.array(df["labels"].str.strip("[]").str.split().tolist(), float).', [0, 1, 0]),
        (["[0. 1.]", "[1. 0.]"], 'y = np.array(df["labels"].str.strip("[]").str.split().tolist(), float).', [0, 1]),
    ],
)
def test_arrays_in_strings_are_refused_with_a_line_that_reads_them(clf, df, labels, line, made):
    df["labels"] = labels * 20
    refused(lambda: clf.fit(df.message, df.labels), "NumPy arrays written as strings", line)
    assert list(eval(line.removeprefix("y = ").removesuffix("."), {"df": df, "np": np})[0]) == made


@pytest.mark.parametrize(
    "labels, line",
    [
        (["comedy, drama", "drama, romance", "horror", "comedy", "romance"], 'df["labels"].str.split(", ")'),
        (["pos", "neg", "mixed", "pos,neg", "neg,mixed"], 'df["labels"].str.split(",")'),
        (["a,b", "b,c", "a"], 'df["labels"].str.split(",")'),
        (["a,b", "c,d", "c,d"], 'df["labels"].str.split(",")'),
        (["a,b", "a"], 'df["labels"].str.split(",")'),
        (["a", "a", "a", "c", "a|b"], 'df["labels"].str.split("|")'),
        (["red, blue", "red", "blue", "blue, red", "blue, red", "red, blue"], 'df["labels"].str.split(", ")'),
        (["a;b", "b;c", "a;b"], 'df["labels"].str.split(";")'),
        (["a, b", "b,a", "a"], r'df["labels"].str.split(r"\s*,\s*", regex=True)'),
        (["a|b", "b | a", "a"], r'df["labels"].str.split(r"\s*\|\s*", regex=True)'),
        (["a|b", "b|c", "a|b"], 'df["labels"].str.split("|")'),
        (["a, b", "b", "a"], 'df["labels"].str.split(", ")'),
        (["Action, Drama", "Drama", "Comedy", "Action"], 'df["labels"].str.split(", ")'),
        (["a; b", "b", "a"], 'df["labels"].str.split("; ")'),
        (["a, b", "b, c", "a"], 'df["labels"].str.split(", ")'),
    ],
)
def test_labels_with_a_mark_between_them_are_warned_of(clf, labels, line):
    df = pd.DataFrame({"message": messages(30), "labels": (labels * 30)[:30]})
    with pytest.warns(LabelsWarning, match=re.escape(f"For several labels a row write y = {line}.")):
        clf.fit(df.message, df.labels)
    assert clf.y_type_ == "labels"
    made = {label for row in eval(line, {"df": df}) for label in row}
    assert made == {part.strip() for label in labels for part in re.split("[,;|]", label)}


@pytest.mark.parametrize(
    "rows, warning, line",
    [
        (["a,b", "", "a"], '"" is a label of y', "[[label for label in row if label] for row in y]"),
        (["a, b", "b", "a"], "' b' and 'b' are two labels of y", "[[label.strip() for label in row] for row in y]"),
    ],
)
def test_lists_of_labels_that_were_split_carelessly_are_warned_of(clf, rows, warning, line):
    y = [row.split(",") for row in rows * 10]
    with pytest.warns(LabelsWarning, match=re.escape(f"{warning}") + ".*" + re.escape(f"write y = {line};")):
        clf.fit(messages(30), y)
    better = eval(line, {"y": y})
    assert quiet(lambda: clf.fit(messages(30), better)).classes_.tolist() == ["a", "b"]
    # The same labels as columns of 0 and 1.
    columns = sorted({label for row in y for label in row})
    y = pd.DataFrame({column: [int(column in row) for row in y] for column in columns})
    with pytest.warns(LabelsWarning, match=re.escape(f"{warning}")) as told:
        clf.fit(messages(30), y)
    line = re.search("write y = (.*);", str(told[0].message))[1]
    tidy = eval(line, {"y": y})
    assert quiet(lambda: clf.fit(messages(30), tidy)).classes_.tolist() == ["a", "b"]
    assert tidy.to_numpy().tolist() == [[int(label in row) for label in "ab"] for row in better]


@pytest.mark.parametrize(
    "labels",
    [
        ["Paris, France", "Lyon, France", "Rome, Italy"],
        ["1,5", "2,5", "3"],
        ["1,5", "1", "5"],
        ["pos", "neg", "a,b"],
        ["Portland, Oregon", "Salem, Oregon", "Portland, Maine", "Augusta, Maine"],
        ["[not sure]", "[0]", "yes"],
        ["[PER]", "[LOC]", "(other)"],
        ["{{0}}", "{[1]}"],
        ["[" + "'aa' " * 40 + "'a", "yes"],  # an array that was cut: it takes no time to see that
    ],
)
def test_labels_that_only_look_a_little_like_it_are_taken(clf, labels):
    quiet(lambda: clf.fit(messages(30), (labels * 30)[:30]))


# --- The learning rate


@pytest.mark.parametrize("rate", [5, 0.03, 1e10])
def test_a_rate_that_no_weights_survive_is_warned_of(clf, df, rate):
    with pytest.warns(ParameterWarning, match="learning_rate=.* Usual are 1e-5 to 5e-4"):
        try:
            clf.set_params(learning_rate=rate).fit(df.message, df.label)
        except RuntimeError:
            pass


def test_usual_rates_are_not_warned_of(clf, df):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        for rate in (0.02, "auto", 1e-5):
            clf.set_params(learning_rate=rate).fit(df.message, df.label)


def test_pre_training_warns_too(toy_folder):
    pretrainer = BertPretrainer(weights=toy_folder, max_steps=1, nsp=False, learning_rate=5, max_length=16)
    with pytest.warns(ParameterWarning, match="learning_rate=5 is so high"):
        pretrainer.fit(["the chair was great"] * 4)


# --- Sizes


def test_a_hub_name_of_a_size_is_kept_as_given_and_has_that_sizes_rate():
    from kbert import BertConfig
    from kbert.estimators.parameters import checked_parameters
    from kbert.estimators.recipe import settle_training
    from kbert.tasks import SingleLabel

    classifier = BertClassifier(size="bert-large-cased")
    assert classifier.size == "bert-large-cased" == classifier.get_params()["size"]
    parameters = checked_parameters(classifier)
    settle_training(parameters, SingleLabel.recipe, BertConfig.from_size("large"), 100)
    assert parameters.learning_rate == 2e-5


def test_a_hub_name_of_no_size_is_refused_with_weights(df):
    with pytest.raises(
        ValueError, match="Unknown size 'user/name'.*for a folder or a hub name write weights='user/name'"
    ):
        BertClassifier(size="user/name").fit(df.message, df.label)


def test_y_of_other_rows_than_X_is_warned_of(clf, df):
    fits = "y shares .* of its .* index labels with X"
    with pytest.warns(LabelsWarning, match=fits):
        clf.fit(df.message[:30], df.label[10:])
    shuffled = df.sample(frac=1, random_state=0)
    with pytest.warns(LabelsWarning, match=fits):
        clf.fit(shuffled.message[:30], shuffled.label[10:])
    quiet(lambda: clf.fit(df.message[:20], df.label[20:]))  # nothing in common: perhaps new objects
    quiet(lambda: clf.fit(pd.Series(df.message[5:30].tolist()), df.label[5:30].sample(frac=1, random_state=0)))
    quiet(lambda: clf.fit(shuffled.message[:30].reset_index(drop=True), shuffled.label[:30]))
    counted = shuffled.label[:30].set_axis(pd.Index(list(range(30))))
    quiet(lambda: clf.fit(shuffled.message[:30], counted))
    warn_of_other_order(df.message[:2], pd.Series(["a", "b"], index=pd.Index([{}, {1: 2}], dtype=object)))


def test_numbers_words_and_names_of_columns_get_advice_that_helps(clf, df):
    refused(lambda: clf.fit(np.ones((40, 5)), df.label), "These are numbers: give the texts as they are")
    with pytest.raises(TypeError, match="without a vectorizer before kbert's estimator"):
        clf.fit(sparse.csr_matrix(np.ones((40, 5))), df.label)
    refused(lambda: clf.fit(df.message.str.split()[:2].tolist() + [["a"]] * 38, df.label), '[" ".join(words) for words')
    refused(lambda: clf.fit(df.message, "label"), "If it is the name of a column, give the column: df['label']")


def test_labels_of_which_the_model_knows_none_are_warned_of(clf, df):
    clf.fit(df.message, df.label)
    with pytest.warns(LabelsWarning, match="y has no label that the model knows: y has 'BILLING', 'BUG', 'LOGIN'"):
        assert clf.score(df.message, df.label.str.upper()) == 0
    quiet(lambda: clf.score(df.message[:2], ["else", "other"]))
    quiet(lambda: clf.score(df.message[:1], ["else"]))  # one row left out in cross-validation


def test_y_in_another_order_than_X_is_warned_of(clf, df):
    for y in (df.label.sample(frac=1, random_state=1), df[["label"]].iloc[::-1]):
        with pytest.warns(LabelsWarning, match=r"^y has the index of X, in another order.*y = y.loc\[X.index\]"):
            clf.fit(df.message, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        clf.fit(df.message, df.label.reset_index(drop=True).set_axis(df.index + len(df)))  # other rows' names
        clf.fit(df.message.iloc[::-1], df.label.iloc[::-1])
        for levels in ([range(2), range(20)], [range(2), range(2), range(10)]):  # whatever indices are
            several = df.set_axis(pd.MultiIndex.from_product(levels))
            clf.fit(df.message, several.label)
            clf.fit(several.message, df.label)
    mixed = df.label.sample(frac=1, random_state=1)
    with pytest.warns(LabelsWarning, match=r"eval_set's y has the index of eval_set's X, in another order"):
        clf.fit(df.message, df.label, eval_set=(df.message, mixed))
    weights = pd.Series(1.0, mixed.index)
    with pytest.warns(LabelsWarning, match=r"sample_weight = sample_weight.loc\[X.index\]"):
        clf.fit(df.message, df.label, weights)


def test_y_in_another_order_than_X_is_warned_of_where_it_is_judged_by(clf, df):
    clf.fit(df.message, df.label)
    mixed = df.label.sample(frac=1, random_state=1)
    for call in (clf.score, lambda X, y: clf.report(X, y, explain=False)):
        with pytest.warns(LabelsWarning, match=r"^y has the index of X, in another order"):
            call(df.message, mixed)
    with pytest.warns(LabelsWarning, match=r"^labels has the index of X, in another order"):
        clf.explain(df.message[:2], labels=df.label[1::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        clf.score(df.message, df.label)
        clf.explain(df.message[:2], labels=df.label[:2])


@pytest.mark.parametrize("bands", [["(0, 10)", "(10, 20)"], ["[0, 17]", "[18, 64]"], ["[0.5, 1e3]", "[-2, +1.5]"]])
def test_two_numbers_in_order_are_a_band(toy, bands):
    classifier = quiet(lambda: toy(epochs=1).fit(messages(24), bands * 12))
    assert sorted(classifier.classes_) == sorted(bands)


@pytest.mark.parametrize("lists", [["[0, 1]", "[1, 0]"], ["[3, 7]", "[7]"], ["(1, 2, 3)", "(2, 3)"]])
def test_other_lists_of_numbers_are_refused(clf, lists):
    refused(lambda: clf.fit(messages(24), lists * 12), "lists written as strings")


def test_the_advice_for_lists_in_a_categorical_works(toy, df):
    y = pd.Series(["['a', 'b']", "['a']"] * 20, dtype="category", name="labels")
    refused(lambda: toy().fit(df.message, y), '["labels"].apply(ast.literal_eval)')
    assert list(toy(epochs=1).fit(df.message, y.apply(ast.literal_eval)).classes_) == ["a", "b"]
