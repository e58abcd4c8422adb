"""examples/pretrain.py on made-up text: it goes from text to a comparison, and goes on where it was."""

import argparse
import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SUBJECTS = {"ada": "wrote a program", "grace": "found the bug", "alan": "broke that code"}
SMALL = ["--minutes", "0.03", "--max-length", "32", "--batch-size", "4", "--vocab-size", "200", "--epochs", "1"]


@pytest.fixture
def pretrain(tmp_path, monkeypatch):
    """The example, with data of its own: each document is about one person, and half of the reviews are of one."""
    pytest.importorskip("sentencex")
    rng = np.random.default_rng(0)
    data = tmp_path / "data"
    (data / "wiki_en").mkdir(parents=True)
    for number in range(3):
        names = rng.choice(list(SUBJECTS), 60)
        documents = ["\n".join([f"{name.title()} {SUBJECTS[name]}."] * 5) for name in names]
        (data / "wiki_en" / f"{number}.txt").write_text("\n\n".join(documents))
    (data / "sst2").mkdir()
    for part, n_rows in (("train", 40), ("dev", 20)):
        rows = [f"{'ada wrote' if i % 2 else 'grace found'} it\t{i % 2}" for i in range(n_rows)]
        (data / "sst2" / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    monkeypatch.setenv("KBERT_DATA", str(data))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("pretrain")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_it_pretrains_fine_tunes_compares_and_goes_on(pretrain, tmp_path, capsys):
    pretrain.main([*SMALL, "--rows", "40", "--seeds", "0"])
    out = capsys.readouterr().out
    folder = tmp_path / "pretrain_example"
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    facts = pd.read_csv(folder / "pretraining.csv").iloc[0]
    # Four words in five are as frequent as the others of their kind, whatever is masked.
    assert 1.5 < facts.unigram_loss < 4 and facts.tokens > 0
    assert f"masked-LM loss {facts.mlm_loss:.3f} nats" in out
    assert f"by their frequencies alone: {facts.unigram_loss:.3f} nats" in out
    runs = pd.read_csv(folder / "results.csv")
    assert runs.start.tolist() == ["pre-trained", "random start"] and (runs.rows == 40).all()
    assert "SST-2 dev accuracy" in out and "random start" in out.split("SST-2 dev accuracy")[1]

    model = (folder / "model" / "model.safetensors").read_bytes()
    pretrain.main([*SMALL, "--rows", "40", "--seeds", "0", "1"])
    assert (folder / "model" / "model.safetensors").read_bytes() == model
    assert pd.read_csv(folder / "results.csv").seed.tolist() == [0, 0, 1, 1]
    assert f"pieces, those of {Path('pretrain_example')}" in capsys.readouterr().out


def test_the_table_is_of_the_rows_that_were_asked_for(pretrain, tmp_path):
    """And not of the largest number of rows of an earlier call."""
    out = argparse.Namespace(out=tmp_path, rows=2, seeds=[0], epochs=1, fine_tuning_rate=1e-3)
    of_runs = {"epochs": 1, "learning_rate": 1e-3, "seed": 0, "seconds": 1, "date": "", "kbert": "", "keras": ""}
    starts = ("pre-trained", "random start")
    rows = [{"start": start, "rows": n, "accuracy": score} for n, score in ((4, 0.9), (2, 0.6)) for start in starts]
    pd.DataFrame([{**row, **of_runs} for row in rows]).to_csv(tmp_path / "results.csv", index=False)
    assert pretrain.compared(tmp_path / "model", out)["mean"].tolist() == [0.6, 0.6]


def test_without_data_it_says_what_to_set(pretrain, monkeypatch):
    monkeypatch.delenv("KBERT_DATA")
    with pytest.raises(SystemExit, match="KBERT_DATA"):
        pretrain.main([])


@pytest.mark.parametrize("n_documents, n_training", [(0, 10), (55, 5)])
def test_one_file_of_text_is_divided(pretrain, tmp_path, n_documents, n_training):
    path = tmp_path / "data" / "wiki_en" / "0.txt"
    options = pretrain.argparse.Namespace(text=[path], documents=n_documents)
    training, held_out = pretrain.corpora(options)
    assert (len(list(training)), len(list(held_out))) == (n_training, 50)
