"""examples/features.py on a made-up CoNLL-2003: what it records, resumes and shows."""

import importlib
from pathlib import Path

import pandas as pd
import pytest

from kbert.model import LAYER_CHOICES

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--size", "tiny", "--weights", "none", "--max-length", "32"]
SENTENCE = "Ada B-PER, Lovelace I-PER, lived O, in O, London B-LOC"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """24 sentences to train on, and 12 of dev: all the same one."""
    cells = [cell.split() for cell in SENTENCE.split(", ")]
    lines = [f"{word} X X {tag}" for word, tag in cells]
    (tmp_path / "data" / "conll2003").mkdir(parents=True)
    for part, n_rows in (("train", 24), ("dev", 12)):
        (tmp_path / "data" / "conll2003" / f"{part}.txt").write_text("\n".join([*lines, ""] * n_rows))
    monkeypatch.setenv("KBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def features(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("features")


@pytest.fixture
def scored(features, monkeypatch):
    """Instead of BERT: a list of the runs. The scores are in the paper's order, but for the embeddings."""
    runs = []

    def score(run, train, dev):
        runs.append(run)
        return 1.0 if run["layers"] == "embeddings" else features.PAPER[run["layers"]] - 0.1 - run["seed"] / 100

    monkeypatch.setattr(features, "score", score)
    return runs


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_it_scores_words_by_their_vectors(features, data, monkeypatch, capsys):
    assert tuple(features.PAPER) == LAYER_CHOICES
    # Two of them: each is compiled for itself.
    monkeypatch.setattr(features, "PAPER", {name: features.PAPER[name] for name in ("last", "concat_last_4")})
    features.main([*TINY, "--rows", "16", "-C", "1"])
    runs = pd.read_csv("features_results.csv", keep_default_na=False)
    setting = runs[["layers", "size", "weights", "rows", "dev_rows", "C", "seed"]]
    assert setting.to_numpy().tolist() == [[name, "tiny", "none", 16, 12, 1, 0] for name in ("last", "concat_last_4")]
    assert runs.f1.tolist() == [1.0, 1.0]  # five words that are always the same
    assert "16 of 14,041 sentences of train; 12 of 3,250 sentences of dev" in capsys.readouterr().out


def test_the_order_beside_the_papers(features, data, scored, capsys):
    features.main(["--seeds", "0", "2", "--rows", "10"])
    assert [run["layers"] for run in scored] == list(LAYER_CHOICES) * 2
    assert [run["seed"] for run in scored] == [0] * 6 + [2] * 6
    out = capsys.readouterr().out
    lines = [line.split() for line in out.partition("paper's rank")[2].splitlines()]
    table = {name: cells for name, *cells in filter(None, lines) if name in LAYER_CHOICES}
    assert table["embeddings"] == "2 1.000 0.0000 0.910 1 6".split()
    assert table["concat_last_4"] == "2 0.851 0.0141 0.961 2 1".split()
    assert "Spearman 0.14, Kendall 0.33" in out
    assert "minilm-l6, not BERT-base cased; 10 of 14,041" in out and "logistic regression of each word" in out


def test_finished_choices_are_not_scored_again(features, data, scored, capsys):
    features.main([])
    first = Path("features_results.csv").read_text()
    features.main(["--seeds", "0", "1"])
    assert len(scored) == 12
    assert Path("features_results.csv").read_text().startswith(first)
    assert capsys.readouterr().out.count("done before") == 6
    features.main(["-C", "0.5"])
    features.main(["--rows", "20", "--results", "new/mine.csv"])
    assert len(scored) == 24


def test_without_data_it_says_what_to_set(features, monkeypatch):
    monkeypatch.delenv("KBERT_DATA", raising=False)
    monkeypatch.setattr("kbert.datasets.catalogue.library_is_installed", lambda: False)
    with pytest.raises(SystemExit, match="KBERT_DATA is not set"):
        features.main([])
