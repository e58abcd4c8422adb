"""Text beside numbers and categories: text alone, columns alone, and the ways to join them.

    pip install --no-deps bokeh_sampledata==2026.1
    KERAS_BACKEND=torch python benchmarks/columns.py [--splits 5] [--rows 1000] [--cv 3]

The table is that of the package bokeh_sampledata (films from Wikidata, CC0, retrieved 2026-10-18): 5,428 films that
are called a drama, a comedy, a documentary or a horror film and nothing else. The text is the title; the numbers are
year, running time, critics' score, number of reviews and box office; the categories are rating, first language and
first country. In each split, other rows are drawn to train and to test on. The classifier of titles is minilm-l6 with
the lower four layers frozen and else the defaults. Its out-of-fold probabilities are computed once a split, from the
folds that StackingClassifier would make, and serve all cases. Each split is appended to benchmarks/results/columns.csv;
those that stand there with the same options are not run again. The summary of these is
benchmarks/results/columns_table.csv.

    python benchmarks/columns.py --write examples/data/films.csv    # the sample for docs/howto/columns.md
"""

import argparse
import sqlite3
import time
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from results_file import ResultsFile, made_with
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline

RESULTS = Path(__file__).parent / "results" / "columns.csv"
TABLE = RESULTS.with_name("columns_table.csv")
GENRES = ["Drama", "Comedy", "Documentary", "Horror"]
NUMBERS = ["year", "runtime", "critics", "reviews", "box_office"]
CATEGORIES = ["rating", "language", "country"]
TEST_ROWS = 1500
QUERY = """
    SELECT Title AS title, Year AS year, Runtime AS runtime, omdb.Rating AS rating, Language AS language,
           Country AS country, Meter AS critics, Reviews AS reviews, BoxOffice AS box_office, Genre AS genre
    FROM omdb JOIN tomatoes USING (ID) ORDER BY ID
"""


def read() -> pd.DataFrame:
    """The films with one of the four genres alone."""
    package = find_spec("bokeh_sampledata")
    if package is None:
        raise SystemExit("Run: pip install --no-deps bokeh_sampledata==2026.1")
    connection = sqlite3.connect(Path(package.submodule_search_locations[0]) / "_data" / "movies.db")
    films = pd.read_sql(QUERY, connection)
    connection.close()
    films = films[films.genre.isin(GENRES)].reset_index(drop=True)
    for column in ("language", "country"):
        films[column] = films[column].str.split(", ").str[0].replace("", None)
    return films


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=8, random_state=0)


def probability_columns(probabilities: np.ndarray, rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of some rows, and the probabilities beside them."""
    names = [f"p{i}" for i in range(probabilities.shape[1])]
    return rows[NUMBERS + CATEGORIES].join(pd.DataFrame(probabilities, index=rows.index, columns=names))


def run(films: pd.DataFrame, split: int, rows: int, cv: int) -> list[dict]:
    """Train and score every case on one split."""
    from kbert import BertClassifier, BertVectorizer

    X, y = films.drop(columns="genre"), films.genre
    train, test, y_train, y_test = train_test_split(
        X, y, train_size=rows, test_size=TEST_ROWS, stratify=y, random_state=split
    )
    made = made_with()
    found = []

    def record(case: str, probabilities: np.ndarray, start: float, before: float = 0.0) -> None:
        answers = np.unique(y)[probabilities.argmax(axis=1)]
        found.append({
            "split": split, "case": case, "accuracy": round(accuracy_score(y_test, answers), 4),
            "macro_f1": round(f1_score(y_test, answers, average="macro"), 4),
            "log_loss": round(log_loss(y_test, probabilities), 4),
            "cpu_s": round(time.process_time() - start + before, 1), "rows": rows, "cv": cv,
            **{name: made[name] for name in ("backend", "date", "kbert")},
            "scikit_learn": version("scikit-learn"), "data": "bokeh_sampledata 2026.1",
        })  # fmt: skip
        print(*list(found[-1].values())[:6], flush=True)

    def fit(case: str, model, columns: list[str]) -> None:
        start = time.process_time()
        model.fit(train[columns], y_train)
        record(case, model.predict_proba(test[columns]), start)

    both = make_column_transformer(
        (make_pipeline(BertVectorizer("minilm-l6"), PCA(20, random_state=0)), ["title"]),
        ("passthrough", NUMBERS + CATEGORIES),
    ).set_output(transform="pandas")
    fit("most frequent label", DummyClassifier(strategy="prior"), NUMBERS)
    fit("columns: boosting", boosting(), NUMBERS + CATEGORIES)
    fit("title: vectors", make_pipeline(BertVectorizer("minilm-l6"), LogisticRegression(max_iter=2000)), ["title"])
    fit("vectors and columns: boosting", make_pipeline(both, boosting()), list(train))

    # The classifier of titles, on all rows and in folds.
    start = time.process_time()
    text = BertClassifier("minilm-l6", freeze=4, random_state=0).fit(train[["title"]], y_train)
    tested = text.predict_proba(test[["title"]])
    record("title: fine-tuned", tested, start)
    seen = text.predict_proba(train[["title"]])
    out_of_fold = cross_val_predict(clone(text), train[["title"]], y_train, cv=cv, method="predict_proba")
    spent = time.process_time() - start

    # Probabilities as columns; and as a trap, those of rows that the classifier was trained on.
    for case, given in (("out-of-fold", out_of_fold), ("in-sample", seen)):
        start = time.process_time()
        model = boosting().fit(probability_columns(given, train), y_train)
        record(f"{case} probabilities and columns: boosting",
               model.predict_proba(probability_columns(tested, test)), start, spent)  # fmt: skip

    # StackingClassifier's way: a model of the columns beside that of the titles, and a linear one above them.
    start = time.process_time()
    columns = NUMBERS + CATEGORIES
    of_columns = cross_val_predict(boosting(), train[columns], y_train, cv=cv, method="predict_proba")
    above = LogisticRegression().fit(np.hstack([out_of_fold, of_columns]), y_train)
    answers = np.hstack([tested, boosting().fit(train[columns], y_train).predict_proba(test[columns])])
    record("stacking of both: linear", above.predict_proba(answers), start, spent)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--cv", type=int, default=3)
    parser.add_argument("--write", type=Path, help="write a sample of 1,000 films, and stop")
    options = parser.parse_args()
    films = read()
    if options.write:
        films.sample(1000, random_state=0).to_csv(options.write, index=False)
        return
    films[CATEGORIES] = films[CATEGORIES].astype("category")
    warnings.simplefilter("ignore")
    results = ResultsFile(RESULTS, "split", "rows", "cv")
    for split in range(options.splits):
        if {"split": split, "rows": options.rows, "cv": options.cv} not in results:
            results.append(*run(films, split, options.rows, options.cv))
    runs = results.read()
    table = (
        runs[(runs.split < options.splits) & (runs.rows == options.rows) & (runs.cv == options.cv)]
        .groupby("case", sort=False)
        .agg(
            accuracy=("accuracy", "mean"),
            spread=("accuracy", "std"),
            macro_f1=("macro_f1", "mean"),
            log_loss=("log_loss", "mean"),
            cpu_s=("cpu_s", "median"),
        )
        .round({"accuracy": 3, "spread": 3, "macro_f1": 3, "log_loss": 3, "cpu_s": 1})
    )
    table.to_csv(TABLE)
    print(table.to_string())


if __name__ == "__main__":
    main()
