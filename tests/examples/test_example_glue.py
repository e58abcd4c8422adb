"""examples/glue.py on a made-up GLUE: what it records, resumes, shows and submits."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--size", "tiny", "--weights", "none", "--epochs", "1", "--max-length", "32"]
# The files' columns, and two labels.
LAYOUTS = {
    "cola": (["source", "label", "original_mark", "sentence"], "0 1"),
    "sst2": (["sentence", "label"], "0 1"),
    "mrpc": (["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], "0 1"),
    "stsb": (["index", "sentence1", "sentence2", "score"], "0.5 4.5"),
    "qqp": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], "0 1"),
    "mnli": (["index", "sentence1", "sentence2", "gold_label"], "contradiction neutral"),
    "qnli": (["index", "question", "sentence", "label"], "entailment not_entailment"),
    "rte": (["index", "sentence1", "sentence2", "label"], "entailment not_entailment"),
    "wnli": (["index", "sentence1", "sentence2", "label"], "0 1"),
}
LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


def write_part(root: Path, task: str, part: str, n_rows: int) -> None:
    """A file in which every second row is "good" and has the second label."""
    names, labels = LAYOUTS[task]
    if part.startswith("test"):
        names = [name for name in names if name not in LABELS]
    lines = ["\t".join(names)]
    for i in range(n_rows):
        word = ["bad", "good"][i % 2]
        cells = {name: labels.split()[i % 2] for name in LABELS} | {"source": "x", "original_mark": ""}
        lines.append("\t".join(cells.get(name, str(i) if "id" in name.lower() else f"{word} {i}") for name in names))
    (root / task).mkdir(parents=True, exist_ok=True)
    (root / task / f"{part}.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """MRPC and STS-B whole, QNLI without a train part, and no other task."""
    for task in ("mrpc", "stsb"):
        for part, n_rows in (("train", 24), ("dev", 12), ("test", 6)):
            write_part(tmp_path / "data", task, part, n_rows)
    write_part(tmp_path / "data", "qnli", "dev", 4)
    monkeypatch.setenv("KBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.fixture
def glue(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("glue")


@pytest.fixture
def fits(glue, monkeypatch):
    """Instead of training: a list of the runs that were fitted. Their share of right answers grows with the rate."""
    runs = []

    def fit(run, texts, labels):
        runs.append(run)
        n_right = round(run["learning_rate"] * 1e5) + run["seed"]
        low, high = min(labels), max(labels)

        def predict(frame):
            good = frame.iloc[:, 0].str.startswith("good").to_numpy()
            return [high if right == (i < n_right) else low for i, right in enumerate(good)]

        return SimpleNamespace(predict=predict)

    monkeypatch.setattr(glue, "fit", fit)
    return runs


def read_table() -> pd.DataFrame:
    return pd.read_csv("glue_table.csv", keep_default_na=False).set_index(["task", "metric"])


@pytest.mark.filterwarnings("ignore::kbert.errors.DatasetWarning", "ignore:An input array is constant")
def test_it_fine_tunes_records_shows_and_submits(glue, data, capsys):
    glue.main(["stsb", "qnli", "mnli", *TINY, "--rows", "16", "--submission", "mine"])
    runs = pd.read_csv("glue_results.csv", keep_default_na=False)
    assert list(runs.columns) == glue.COLUMNS
    setting = runs[["task", "size", "weights", "epochs", "rows", "dev_rows", "seed"]]
    assert setting.to_numpy().tolist() == [["stsb", "tiny", "none", 1, 16, 12, 0]]
    table = read_table()
    assert list(table.index) == [
        *(("stsb", "pearson"), ("stsb", "spearman")),
        *(("mnli", "accuracy"), ("mnli", "mm"), ("qnli", "accuracy")),
    ]
    stsb = table.loc[("stsb", "spearman")]
    assert (float(stsb["mean"]), stsb["paper, test"]) == (runs.spearman[0], "0.858")
    assert stsb.notes == (
        "tiny from a random start, not BERT-base; dev, not test; 16 of 5,749 training rows; 12 of 1,500 dev rows"
    )
    assert table.loc[("qnli", "accuracy"), ["seeds", "mean", "notes"]].tolist() == [0, "", "no data: no train part"]
    assert table.loc[("mnli", "mm"), ["seeds", "mean", "notes"]].tolist() == [0, "", "no data: no train part"]
    assert [line.split("\t")[0] for line in Path("mine/STS-B.tsv").read_text().splitlines()] == ["index", *"012345"]
    out = capsys.readouterr().out
    assert "qnli: The train part of qnli is not there" in out
    assert "qnli: no data: no train part" in out


def test_finished_runs_are_not_made_again(glue, data, fits, capsys):
    glue.main(["mrpc", "--seeds", "0"])
    first = Path("glue_results.csv").read_text()
    glue.main(["mrpc", "stsb", "--seeds", "0", "1"])
    assert [(run["task"], run["seed"]) for run in fits] == [("mrpc", 0), ("mrpc", 1), ("stsb", 0), ("stsb", 1)]
    assert Path("glue_results.csv").read_text().startswith(first)
    assert "done before: accuracy 0.417" in capsys.readouterr().out
    spread = read_table().loc[("mrpc", "accuracy"), ["seeds", "mean", "std"]].tolist()
    assert spread == [2, 0.4584, 0.0589]
    # Whatever is set otherwise is another run.
    glue.main(["mrpc", "--learning-rate", "3e-5"])
    glue.main(["mrpc", "--rows", "20"])
    assert len(fits) == 6


def test_the_grid_keeps_the_best_on_dev(glue, data, fits):
    glue.main(["mrpc", "--grid"])
    assert len(fits) == 18 and len(pd.read_csv("glue_results.csv")) == 18
    table = read_table()
    assert len(table) == 2
    row = table.loc[("mrpc", "f1")]
    assert float(row.learning_rate) == 5e-5
    assert row.notes.endswith("the best of 18 settings on dev")


@pytest.mark.filterwarnings("ignore::kbert.errors.DatasetWarning")
def test_the_best_run_on_dev_is_submitted_whenever_it_was_made(glue, data, fits):
    glue.main(["mrpc", "--seeds", "5"])
    glue.main(["mrpc", "--seeds", "0", "5", "1", "--submission", "mine"])
    assert [run["seed"] for run in fits] == [5, 0, 1, 5]
    answers = [line.split("\t")[1] for line in Path("mine/MRPC.tsv").read_text().splitlines()[1:]]
    assert answers == list("010101")  # with seed 5 all are right, with the others the last one is wrong
    assert len(pd.read_csv("glue_results.csv")) == 3


@pytest.mark.filterwarnings("ignore::kbert.errors.DatasetWarning")
def test_all_nine_tasks_have_their_scores(glue, data, fits):
    for task in LAYOUTS:
        parts = ["train", "dev_matched", "dev_mismatched", "test_matched"] if task == "mnli" else ["train", "dev"]
        for part in parts:
            write_part(data, task, part, 12)
    glue.main(["all", "--submission", "mine"])
    assert [run["task"] for run in fits] == list(LAYOUTS)
    table = read_table()
    # Each gets 5 of 12 right: 2 of the 6 good ones, and 3 of the 6 others.
    shares = {"accuracy": 0.4167, "mm": 0.4167, "f1": 0.3636, "mcc": -0.169, "pearson": -0.169, "spearman": -0.169}
    assert table["mean"].tolist() == [shares[metric] for _, metric in table.index]
    assert table.seeds.tolist() == [1] * 13
    assert table.loc[("mnli", "mm"), "paper, test"] == "0.834"
    assert Path("mine/MNLI-m.tsv").exists() and not Path("mine/MNLI-mm.tsv").exists()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::kbert.errors.DatasetWarning", "ignore::kbert.errors.FailedRunWarning")
@pytest.mark.filterwarnings("ignore::kbert.errors.UnderfitWarning")
def test_the_defaults_choose_all_settings(glue, data, monkeypatch):
    from kbert import BertRegressor

    fitted = []
    fit = BertRegressor.fit
    monkeypatch.setattr(BertRegressor, "fit", lambda self, *data: fitted.append(self) or fit(self, *data))
    defaults = ["stsb", "--size", "tiny", "--weights", "none", "--defaults"]
    glue.main(defaults)
    glue.main(defaults)  # is done already
    (estimator,) = fitted
    assert estimator.get_params() == BertRegressor("tiny", weights=None, random_state=0, verbose=1).get_params()
    glue.main(["stsb", *TINY])
    runs = pd.read_csv("glue_results.csv")
    assert runs.learning_rate.to_list() == ["auto", "5e-05"] and runs.epochs.to_list() == ["auto", "1"]
    notes = pd.read_csv("glue_table.csv", keep_default_na=False).query("metric == 'pearson'").notes
    assert notes.str.contains("kbert's defaults").to_list() == [True, False]


def test_the_messages_are_not_submitted(glue, data, fits, capsys):
    glue.main(["messages", "--submission", "mine"])
    assert "no submission: messages is no task of GLUE" in capsys.readouterr().out and not Path("mine").exists()


def test_without_arguments_it_takes_a_slice_of_three_tasks(glue, data, fits):
    for part, n_rows in (("train", 500), ("dev", 4)):
        write_part(data, "sst2", part, n_rows)
    glue.main([])
    glue.main(["--learning-rate", "1e-4", "--results", "new/mine.csv"])
    assert [run["task"] for run in fits] == ["sst2", "mrpc", "stsb"] * 2
    assert [(run["rows"], run["learning_rate"]) for run in fits[::3]] == [(400, 2e-4), (400, 1e-4)]
    assert {(run["epochs"], run["batch_size"], run["max_length"]) for run in fits} == {(3, 16, 128)}
    assert len(pd.read_csv("new/mine_table.csv")) == 5


def test_a_task_that_is_none_is_an_error(glue, capsys):
    with pytest.raises(SystemExit):
        glue.main(["mrcp"])
    assert "'mrcp' is no task; the tasks are cola, sst2, mrpc" in capsys.readouterr().err


def test_the_table_alone_runs_nothing(glue, data, fits, capsys):
    glue.main(["all", "--table"])
    assert not fits and not Path("glue_results.csv").exists()
    assert read_table().loc["mrpc", "notes"].tolist() == ["not run", "not run"]
    glue.main(["--table"])
    assert read_table().empty
    assert "glue_results.csv has no runs yet" in capsys.readouterr().out


def test_one_number_for_all_rows_has_a_correlation_of_0(glue):
    labels, texts = pd.Series([1.0, 2.0, 3.0]), pd.DataFrame({"text": list("abc")})
    with pytest.warns(match="constant"):
        assert glue.dev_scores("stsb", lambda texts: [2.0] * 3, texts, labels) == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.thorough
def test_without_arguments_and_data_it_says_what_to_set_and_runs(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "KBERT_DATA"} | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(EXAMPLES / "glue.py"), *TINY]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "KBERT_DATA is not set" in done.stdout
    runs = pd.read_csv(tmp_path / "glue_results.csv")
    assert runs[["task", "rows", "dev_rows"]].to_numpy().tolist() == [["messages", 400, 125]]
    assert "messages: tiny from a random start, not BERT-base; no score in the paper" in done.stdout
    assert "400/400" in done.stderr  # the progress bar
