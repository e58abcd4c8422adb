"""The first fit of a new user, with every default, beside the simplest things that the user could have done instead.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/first_fit.py --data sst2 mrpc --rows 8 64 --out results.csv
    python benchmarks/first_fit.py --page benchmarks/results/first_fit.csv --picture docs/benchmarks/first_fit.png

The second command makes the table and the picture of docs/benchmarks/first_fit.md from the results. ``--size`` takes
other weights, with a file of results of their own: first_fit_tiny.csv is of a model of the size of tiny.

``--data`` takes files too: CSVs with the columns text and label, which are known by the names of the files.

Rows are drawn for each label, or all that a label has (for numbers, tags, questions and options: in all), five draws by
default; test rows are the same for all draws. Each score is appended to the file, with the warnings of a run that
learned too little, and one that is there is not measured again. ``fit_cpu_s`` is in seconds of the processor, which
other work beside changes less.
``--methods kbert:epochs=5,learning_rate=2e-5`` measures other parameters.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas as pd
from results_file import ResultsFile
from scipy.special import softmax
from scipy.stats import pearsonr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, roc_auc_score
from sklearn.metrics.pairwise import paired_cosine_distances
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from kbert import datasets
from kbert.hub import resolve_folder
from kbert.training.precision import dtype_policy

SIZE = "minilm-l6"
DRAWS = 5
TEST_ROWS = 1000
MESSAGES = Path(__file__).parents[1] / "examples" / "data" / "support_messages.csv"
COLUMNS = (
    "data", "rows", "draw", "method", "score", "fit_s", "predict_s", "n_rows", "told", "backend", "date", "dtype",
    "fit_cpu_s", "size",
)  # fmt: skip


class Data(NamedTuple):
    """Rows to draw from and rows to test on.

    Attributes
    ----------
    X, y, test_X, test_y
    task : {"labels", "several", "numbers", "tags", "questions", "options"}
        "several" is of several labels for a row.
    metric : callable
        ``metric(true, predicted)``.
    by_label : bool
        Whether rows are drawn for each label.
    pytorch_length : int
        The tokens to which PyTorch cuts a row: 128 as in the paper's recipe for GLUE, or all 512 that the model has for
        documents.
    """

    X: Any
    y: Any
    test_X: Any
    test_y: Any
    task: str
    metric: Callable[[Any, Any], float]
    by_label: bool
    pytorch_length: int = 128


# --- Data sets -----------------------------------------------------------------------------------------------------


def _pearson(true: Any, predicted: Any) -> float:
    return 0.0 if np.std(predicted) == 0 else float(pearsonr(true, predicted)[0])


def _glue(name: str) -> Data:
    train, dev = datasets.load(name, "train"), datasets.load(name, "dev")
    texts = [column for column in train.columns if column.startswith("text")]
    texts = texts[0] if len(texts) == 1 else texts
    dev = dev.sample(min(len(dev), TEST_ROWS), random_state=0)
    metric = {"cola": matthews_corrcoef, "stsb": _pearson}.get(name, accuracy_score)
    task = "numbers" if name == "stsb" else "labels"
    return Data(train[texts], train.label, dev[texts], dev.label, task, metric, task == "labels")


def _qnli() -> Data:
    """Parts of dev, where no text of a pair, question or sentence, is in both."""
    dev = datasets.load("qnli", "dev")
    in_test = dev.text_a.isin(dev.text_a.drop_duplicates().sample(TEST_ROWS, random_state=0))
    texts = ["text_a", "text_b"]
    test = dev[in_test][:TEST_ROWS]
    pool = dev[~in_test & ~dev.text_b.isin(test.text_b)]
    return Data(pool[texts], pool.label, test[texts], test.label, "labels", accuracy_score, True)


def _table(frame: pd.DataFrame, n_test: int) -> Data:
    frame = frame.drop_duplicates("text").sample(frac=1, random_state=7)
    test, pool = frame.iloc[:n_test], frame.iloc[n_test:]
    return Data(pool.text, pool.label, test.text, test.label, "labels", accuracy_score, True)


def _read(pattern: str, **options: Any) -> pd.DataFrame:
    return pd.read_csv(next(Path(os.environ["KBERT_DATA"]).glob(pattern)), keep_default_na=False, **options)


def _agnews() -> Data:
    return _table(_read("agnews/train*", sep="\t", quoting=csv.QUOTE_NONE), TEST_ROWS)


def _imdb() -> Data:
    return _table(_read("imdb/train*"), 500)._replace(pytorch_length=512)


def _rare(data: Data, share: float) -> Data:
    """About such a share of the rows is positive, in the draws (`drawn`) and in the test; the score is the AUC."""
    is_positive = np.asarray(data.test_y == max(data.test_y))
    positive = np.flatnonzero(is_positive)
    kept = np.sort(np.concatenate([np.flatnonzero(~is_positive), positive[: int(len(positive) * share / (1 - share))]]))
    test_X, test_y = data.test_X.iloc[kept], data.test_y.iloc[kept]
    return data._replace(test_X=test_X, test_y=test_y, metric=roc_auc_score)


def _ratings() -> Data:
    """Reviews of IMDB, whose number of stars is to be told."""
    data = _imdb()
    stars = _read("imdb/train*").rating.astype(float)
    return data._replace(
        y=stars.loc[data.y.index], test_y=stars.loc[data.test_y.index], task="numbers", metric=_pearson, by_label=False
    )


def _kinds() -> Data:
    """Sentences of CoNLL-2003, and which kinds of entity each has: none, one or several."""
    data = _conll()
    kinds = ("PER", "ORG", "LOC", "MISC")

    def found(tags: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({kind: tags.map(lambda row, tag=f"B-{kind}": int(tag in row)) for kind in kinds})

    def macro_f1(true: Any, predicted: Any) -> float:
        return float(f1_score(true, predicted, average="macro", zero_division=0))

    X, test_X = data.X.str.join(" "), data.test_X.str.join(" ")
    return Data(X, found(data.y), test_X, found(data.test_y), "several", macro_f1, False)


def _messages() -> Data:
    return _table(pd.read_csv(MESSAGES).rename(columns={"message": "text"}), 150)


def _conll() -> Data:
    from kbert.metrics import entity_f1

    train, dev = (datasets.load("conll2003", part) for part in ("train", "dev"))
    dev = dev.sample(TEST_ROWS, random_state=0)
    return Data(train.words, train.tags, dev.words, dev.tags, "tags", entity_f1, False)


def _squad() -> Data:
    from kbert.metrics import answer_scores

    train, dev = (datasets.load("squad", part) for part in ("train", "dev"))
    dev = dev.sample(500, random_state=0)
    X = ["question", "context"]

    def f1(true: Any, predicted: Any) -> float:
        return float(np.mean(answer_scores(true, predicted)[1]))

    return Data(train[X], train[["answer", "answer_start"]], dev[X], dev.answer, "questions", f1, False)


def _dream() -> Data:
    train, dev = (datasets.load("dream", part) for part in ("train", "dev"))
    X = ["context", "question", "options"]
    dev = dev.sample(TEST_ROWS, random_state=0)
    return Data(train[X], train.label, dev[X], dev.label, "options", accuracy_score, False)


def _topics(n_topics: int) -> Data:
    """Questions of SQuAD, whose label is the title of their article, of which some are drawn: many classes."""
    with gzip.open(next(Path(os.environ["KBERT_DATA"]).glob("squad/train-v1.1.json*")), "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    questions = [(qa["question"], a["title"]) for a in articles for p in a["paragraphs"] for qa in p["qas"]]
    frame = pd.DataFrame(questions, columns=["text", "label"]).drop_duplicates("text")
    frame = frame.groupby("label").filter(lambda of_title: len(of_title) >= 60)
    titles = np.random.RandomState(0).choice(sorted(frame.label.unique()), n_topics, replace=False)
    return _table(frame[frame.label.isin(titles)], TEST_ROWS)


# The share of positive rows.
RARE = {"imdb15": 0.15, "sst2_5": 0.05}
DATA = {
    **{name: (lambda name=name: _glue(name)) for name in ("sst2", "cola", "mrpc", "rte", "qqp", "stsb")},
    "qnli": _qnli,
    "agnews": _agnews,
    "imdb": _imdb,
    "imdb15": lambda: _rare(_imdb(), RARE["imdb15"]),
    "sst2_5": lambda: _rare(_glue("sst2"), RARE["sst2_5"]),
    "ratings": _ratings,
    "kinds": _kinds,
    "messages": _messages,
    "conll": _conll,
    "squad": _squad,
    "dream": _dream,
    "topics20": lambda: _topics(20),
    "topics77": lambda: _topics(77),
}


def _data(name: str) -> Data:
    """A data set of `DATA`, or a CSV with the columns text and label."""
    return DATA[name]() if name in DATA else _table(pd.read_csv(name, keep_default_na=False), TEST_ROWS)


def drawn(data: Data, name: str, rows: int, draw: int) -> tuple[Any, Any]:
    """Rows to learn from: so many of each label, or in all."""
    if not data.by_label:
        chosen = data.X.sample(min(rows, len(data.X)), random_state=draw).index
        return data.X.loc[chosen], data.y.loc[chosen]
    counts = dict.fromkeys(data.y.unique(), rows)
    if name in RARE:
        negative, positive = sorted(counts)
        counts = {negative: round(2 * (1 - RARE[name]) * rows), positive: max(1, round(2 * RARE[name] * rows))}
    parts = [
        data.y[data.y == label].sample(min(n, (data.y == label).sum()), random_state=draw)
        for label, n in counts.items()
    ]
    y = pd.concat(parts).sample(frac=1, random_state=draw)
    return data.X.loc[y.index], y


# --- Methods -------------------------------------------------------------------------------------------------------


def _name(size: str) -> str:
    """What the results call a size or a folder of weights, which has another path on each machine."""
    return "/".join(Path(size).resolve().parts[-2:]) if Path(size).is_dir() else size


def _weights(size: str) -> dict[str, str]:
    """The parameter that a size, or a folder of weights, is given by."""
    return {"weights" if Path(size).is_dir() else "size": size}


def _kbert(data: Data, draw: int, size: str, **parameters: Any) -> Any:
    from kbert import BertClassifier, BertMultipleChoice, BertQA, BertRegressor, BertTagger

    kinds = {
        "labels": BertClassifier, "several": BertClassifier, "numbers": BertRegressor, "tags": BertTagger,
        "questions": BertQA, "options": BertMultipleChoice,
    }  # fmt: skip
    return kinds[data.task](**_weights(size), random_state=draw, **parameters)


def _linear(data: Data) -> Any:
    linear = Ridge() if data.task == "numbers" else LogisticRegression(max_iter=1000)
    return OneVsRestClassifier(linear) if data.task == "several" else linear


# Tasks whose answer is of the whole text, which a linear model on one vector can have.
_OF_TEXTS = ("labels", "several", "numbers")


class _WordVectors:
    """A logistic regression on the vectors of words."""

    def __init__(self, size: str):
        self.size = size

    def fit(self, X: Any, y: Any) -> None:
        from kbert import BertVectorizer

        self.vectorizer = BertVectorizer(**_weights(self.size), level="word")
        self.linear = LogisticRegression(max_iter=1000)
        self.linear.fit(np.concatenate(self.vectorizer.fit_transform(X)), np.concatenate(y.to_list()))

    def predict(self, X: Any) -> Any:
        found = self.linear.predict(np.concatenate(self.vectorizer.transform(X)))
        return [part.tolist() for part in np.split(found, np.cumsum(X.map(len))[:-1])]


class _NearestOption:
    """The option whose vector is nearest to that of context and question; nothing is learned."""

    def __init__(self, vectorizer: Any):
        self.vectorizer = vectorizer

    def fit(self, X: Any, y: Any) -> None:
        self.vectorizer.fit([*X.context, *X.question, *X.options.explode()])

    def predict(self, X: Any) -> Any:
        asked = self.vectorizer.transform(list(X.context + " " + X.question))
        options = self.vectorizer.transform(list(X.options.explode()))
        rows = np.repeat(np.arange(len(X)), X.options.map(len))
        far = pd.Series(paired_cosine_distances(asked[rows], options))
        return far.groupby(rows).apply(np.argmin).to_numpy()


def _vectors(data: Data, draw: int, size: str) -> Any:
    from kbert import BertVectorizer

    if data.task == "tags":
        return _WordVectors(size)
    if data.task == "options":
        return _NearestOption(BertVectorizer(**_weights(size)))
    return make_pipeline(BertVectorizer(**_weights(size)), _linear(data)) if data.task in _OF_TEXTS else None


def _as_texts(X: Any) -> list[str]:
    return [" ".join(row) for row in X.to_numpy()] if getattr(X, "ndim", 1) == 2 else list(X)


class _TfIdf:
    def __init__(self, data: Data):
        self.model = make_pipeline(TfidfVectorizer(), _linear(data))

    def fit(self, X: Any, y: Any) -> None:
        self.model.fit(_as_texts(X), y)
        if hasattr(self.model, "predict_proba"):
            self.predict_proba = lambda X: self.model.predict_proba(_as_texts(X))

    def predict(self, X: Any) -> Any:
        return self.model.predict(_as_texts(X))


def _tf_idf(data: Data, draw: int, size: str) -> Any:
    if data.task == "options":
        return _NearestOption(TfidfVectorizer())
    return _TfIdf(data) if data.task in _OF_TEXTS else None


class _PyTorch:
    """Plain PyTorch and transformers with the paper's recipe."""

    def __init__(self, data: Data, draw: int, size: str):
        self.task, self.draw, self.size = data.task, draw, size
        recipe = {"max_length": data.pytorch_length, "learning_rate": 5e-5, "epochs": 3, "batch_size": 32}
        if data.pytorch_length > 128:
            recipe |= {"at_once": 8}  # 32 rows of 512 tokens take more than 18 GB
        if data.task == "questions":
            recipe |= {"max_length": 384, "stride": 128}
        self.run = {"task": "stsb" if data.task == "numbers" else "sst2", "size": size, "seed": draw, **recipe}

    def fit(self, X: Any, y: Any) -> None:
        import pytorch_choice
        import pytorch_scores
        import pytorch_squad
        import pytorch_tagging

        if self.task == "tags":
            self.predict = pytorch_tagging.fit(self.run, X, y)
            return
        if self.task == "questions":
            fitted = pytorch_squad.fit(self.run, pd.concat([X, y], axis=1))
            self.predict = lambda X: pytorch_squad.predict(*fitted, X, self.run)
            return
        if self.task == "options":
            self.predict = pytorch_choice.fit(
                resolve_folder(self.size), X.assign(label=y), pytorch_choice.RECIPE, self.draw
            )
            return
        frame = pd.DataFrame(X)
        found = pytorch_scores.fit(self.run, frame, y)
        self.predict = lambda X: found(pd.DataFrame(X))
        self.predict_proba = lambda X: softmax(found(pd.DataFrame(X), logits=True), axis=1)


def _pytorch(data: Data, draw: int, size: str) -> Any:
    return _PyTorch(data, draw, size) if data.task != "several" else None


class _SetFit:
    """setfit as its documentation shows it: one epoch of contrastive pairs, batch 16, then a logistic regression."""

    def __init__(self, draw: int, size: str):
        self.draw, self.size = draw, size

    def fit(self, X: Any, y: Any) -> None:
        import setfit
        from datasets import Dataset

        self.classes, numbers = np.unique(y, return_inverse=True)
        model = setfit.SetFitModel.from_pretrained(str(resolve_folder(self.size)))
        rows = Dataset.from_dict({"text": list(X), "label": numbers.tolist()})
        arguments = setfit.TrainingArguments(
            batch_size=16, num_epochs=1, seed=self.draw, report_to="none", save_strategy="no", show_progress_bar=False
        )
        setfit.Trainer(model=model, args=arguments, train_dataset=rows).train()
        self.model = model

    def predict(self, X: Any) -> Any:
        return self.classes[np.asarray(self.model.predict(list(X), as_numpy=True))]


def _setfit(data: Data, draw: int, size: str) -> Any:
    return _SetFit(draw, size) if data.task == "labels" and getattr(data.X, "ndim", 1) == 1 else None


METHODS = {"tf-idf": _tf_idf, "vectors": _vectors, "pytorch": _pytorch, "setfit": _setfit}


def model_of(method: str, data: Data, draw: int, size: str) -> Any:
    """A model of a method: a name of `METHODS`, or "kbert" with parameters, "kbert:epochs=5"."""
    if method in METHODS:
        return METHODS[method](data, draw, size)
    name, _, text = method.partition(":")
    if name != "kbert":
        raise SystemExit(f"{method!r} is no method: {', '.join(METHODS)}, or kbert and parameters.")
    parameters = dict(_parameter(part) for part in text.split(",") if part)
    if "few_labels" in parameters and data.task != "labels":
        return None
    return _kbert(data, draw, size, **parameters)


def _parameter(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            pass
    return name, {"True": True, "False": False, "None": None}.get(value, value)


# --- Measuring -----------------------------------------------------------------------------------------------------


def measure(name: str, rows: int, draw: int, method: str, data: Data, size: str = SIZE) -> dict[str, Any] | None:
    """One row of the results; None where the method does not have this task."""
    model = model_of(method, data, draw, size)
    if model is None:
        return None
    X, y = drawn(data, name, rows, draw)
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y)
        fitted, fitted_cpu = time.perf_counter(), time.process_time()
        if data.metric is roc_auc_score:
            found = model.predict_proba(data.test_X)[:, 1]
        else:
            found = model.predict(data.test_X)
    score, end = data.metric(data.test_y, found), time.perf_counter()
    times = {"fit_s": round(fitted - start, 2), "predict_s": round(end - fitted, 2)}
    outcome = {warning.category.__name__ for warning in told} & {"FailedRunWarning", "UnderfitWarning"}
    return {
        "score": round(float(score), 4), **times, "n_rows": len(X), "told": " ".join(sorted(outcome)),
        "backend": keras.backend.backend(), "date": str(date.today()),
        "dtype": "float32" if method in ("tf-idf", "setfit") else dtype_policy(getattr(model, "dtype", "auto")),
        "fit_cpu_s": round(fitted_cpu - start_cpu, 2), "size": _name(size),
    }  # fmt: skip


def main() -> None:
    """Measure what is asked for and not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), metavar="DATA", help=f"{', '.join(DATA)}, or a CSV")
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 16, 64, 250, 1000, 4000])
    parser.add_argument("--draws", nargs="+", type=int, default=list(range(DRAWS)))
    parser.add_argument("--methods", nargs="+", default=["tf-idf", "vectors", "kbert"])
    parser.add_argument("--size", default=SIZE, help="a size or a folder of weights; a file of results each")
    parser.add_argument("--out", type=Path, default=Path("first_fit.csv"))
    parser.add_argument("--page", type=Path, help="make the table of a file of results, and measure nothing")
    parser.add_argument("--picture", type=Path, help="with --page: make this picture too")
    options = parser.parse_args()
    if options.page:
        make_page(options.page, options.picture)
        return
    for source in options.data:
        if source not in DATA and (not Path(source).is_file() or Path(source).stem in DATA):
            parser.error(f"{source!r} is no data set and no file of a name of its own: {', '.join(DATA)}, or a CSV")
    results = ResultsFile(options.out, *COLUMNS[:4])
    size = _name(options.size)
    if options.out.exists() and (others := set(results.read()["size"]) - {size}):
        parser.error(f"{options.out} has the results of {others.pop()}: give --out another file for {size}")
    loaded: dict[str, Data] = {}
    for draw in options.draws:
        for rows in options.rows:
            for source in options.data:
                name = Path(source).stem
                if name not in loaded:
                    loaded[name] = _data(source)
                data = loaded[name]
                for method in options.methods:
                    key = dict(zip(COLUMNS[:4], (name, rows, draw, method), strict=True))
                    if key not in results and (found := measure(name, rows, draw, method, data, options.size)):
                        results.append(key | found)
                        print(*key.values(), *found.values(), flush=True)


# --- The page ------------------------------------------------------------------------------------------------------

# The methods of the table and the picture, as they are called there.
NAMES = {
    "tf-idf": "TF-IDF + linear",
    "vectors": "BertVectorizer + linear",
    "kbert": "kbert",
    "kbert:few_labels=True": "kbert, few_labels",
    "setfit": "setfit 1.2",
    "pytorch": "PyTorch, the paper's recipe",
}


def make_page(path: Path, picture: Path | None) -> None:
    """Write the table beside the file of results, as FILE_table.csv, and a picture."""
    results = pd.read_csv(path).drop_duplicates(["data", "rows", "draw", "method"], keep="last")
    results = results[results.method.isin(NAMES)].assign(method=results.method.map(NAMES))
    table(results).to_csv(path.with_name(f"{path.stem}_table.csv"), index=False)
    if picture is not None:
        draw(results, picture)


# Every line is of the draws that all of these have measured, as far as they have the task.
ALWAYS = ("TF-IDF + linear", "BertVectorizer + linear", "kbert")


def table(results: pd.DataFrame) -> pd.DataFrame:
    """Mean score, and standard deviation over the draws; a line a data set and number of rows.

    All means of a line are over the same draws. Where a method has fewer of them, their number is beside its mean.
    ``n_rows`` is the number of rows in all, which is smaller than the classes' times ``rows`` where a class has fewer.
    """
    columns = [name for name in NAMES.values() if name in set(results.method)]
    lines = []
    for (data, rows), of_line in results.groupby(["data", "rows"], sort=False):
        scores = of_line.pivot(index="draw", columns="method", values="score")
        shared = scores.dropna(subset=scores.columns.intersection(ALWAYS))
        if len(shared):
            cells = {name: _cell(shared[name].dropna(), len(shared)) for name in columns if name in shared}
            n_rows = int(of_line.n_rows.max())
            lines.append({"data": data, "rows": rows, "n_rows": n_rows, "draws": len(shared), **cells})
    found = pd.DataFrame(lines, columns=["data", "rows", "n_rows", "draws", *columns]).fillna("")
    return found.sort_values(["data", "rows"], key=lambda keys: keys.map(lambda key: _ORDER.get(key, key)))


_ORDER = {name: number for number, name in enumerate(DATA)}


def _cell(scores: pd.Series, n_draws: int) -> str:
    if scores.empty:
        return ""
    spread = f" ± {scores.std():.3f}" if len(scores) > 1 else ""
    return f"{scores.mean():.3f}{spread}" + (f" ({len(scores)})" if len(scores) < n_draws else "")


def draw(results: pd.DataFrame, path: Path) -> None:
    """A panel for each data set: mean score by number of rows, a line a method."""
    import matplotlib.pyplot as plt

    names = [name for name in DATA if results.loc[results.data == name, "rows"].nunique() > 1]
    n_columns = min(2, len(names))  # as wide as the page, so that its letters are as large as the page's
    n_rows = -(-len(names) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(3.6 * n_columns, 2.1 * n_rows + 1.1), squeeze=False, layout="constrained"
    )
    for ax, name in zip(axes.flat, names, strict=False):
        for number, method in enumerate(NAMES.values()):
            scores = results[(results.data == name) & (results.method == method)].groupby("rows").score
            if scores.ngroups:
                mean, spread = scores.mean(), scores.std().fillna(0)
                ax.errorbar(mean.index, mean, spread, label=method, color=f"C{number}", marker="o", markersize=3)
        sizes = sorted(results.loc[results.data == name, "rows"].unique())
        ax.set(title=name, xscale="log", xticks=sizes, xticklabels=sizes)
        ax.minorticks_off()
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    labels = {label: h for ax in axes.flat for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", ncols=2, frameon=False)
    figure.supxlabel("rows a class (stsb, kinds, conll, squad: in all)")
    figure.savefig(path, dpi=140)


if __name__ == "__main__":
    main()
