"""examples/ner.py on a made-up CoNLL-2003: what it records, resumes and shows."""

import importlib
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--size", "tiny", "--weights", "none", "--epochs", "1", "--max-length", "32"]
SENTENCES = ["Ada B-PER, met O, Alan I-PER, Turing I-PER", "It O, rains O, in O, Oslo I-LOC", "Rain O"]


def write_part(root: Path, part: str, n_documents: int) -> None:
    """Documents of the same three sentences, in four columns and with IOB1 tags."""
    lines = []
    for _ in range(n_documents):
        lines += ["-DOCSTART- -X- -X- O", ""]
        for sentence in SENTENCES:
            lines += [" ".join(cell.split()[:1] + ["X", "X"] + cell.split()[1:]) for cell in sentence.split(", ")]
            lines.append("")
    (root / "conll2003").mkdir(parents=True, exist_ok=True)
    (root / "conll2003" / f"{part}.txt").write_text("\n".join(lines))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """24 sentences to train on, and 12 of dev."""
    write_part(tmp_path / "data", "train", 8)
    write_part(tmp_path / "data", "dev", 4)
    monkeypatch.setenv("KBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ner(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("ner")


@pytest.fixture
def fits(ner, monkeypatch):
    """Instead of training: a list of the runs."""
    runs = []

    def fit_and_score(run, train, dev):
        runs.append(run)
        return {"fit_s": 1, "f1_argmax": 0.5 + run["seed"] / 10, "f1_bio": 0.75, "f1_documents": 0.25}

    monkeypatch.setattr(ner, "fit_and_score", fit_and_score)
    return runs


def test_it_fine_tunes_records_and_shows(ner, data, capfd, monkeypatch):
    monkeypatch.setattr(ner, "DOCUMENT_WORDS", 16)
    ner.main([*TINY, "--rows", "20", "--passages", "0.5"])
    runs = pd.read_csv("ner_results.csv", keep_default_na=False)
    setting = runs[["size", "weights", "epochs", "rows", "dev_rows", "passages", "seed"]]
    assert setting.to_numpy().tolist() == [["tiny", "none", 1, 20, 12, 0.5, 0]]
    assert runs[list(ner.SCORES.values())].apply(lambda scores: scores.between(0, 1)).to_numpy().all()
    out, err = capfd.readouterr()
    assert "36 words in 3 documents of about 16 words: 36 tags" in out
    assert f"entity F1 {runs.f1_documents[0]:.4f}, and {runs.f1_argmax[0]:.4f} sentence by sentence" in out
    assert "word_start" in out and "paper, dev" in out
    assert (
        "tiny from a random start, not BERT-base cased; 20 of 14,041 sentences of train; 12 of 3,250 sentences of dev; "
        "50% of the training documents as passages; dev sentences by themselves" in out
    )
    assert "fit: 100%" in err


def test_finished_runs_are_not_made_again(ner, data, fits, capsys):
    ner.main(["--seeds", "0"])
    first = Path("ner_results.csv").read_text()
    ner.main(["--seeds", "0", "1"])
    assert [run["seed"] for run in fits] == [0, 1]
    assert Path("ner_results.csv").read_text().startswith(first)
    out = capsys.readouterr().out
    assert "done before" in out
    assert out.splitlines()[-6].split() == "argmax 2 0.55 0.0707 0.50 0.60 0.964".split()
    for changes in (["--learning-rate", "5e-5"], ["--rows", "20"], ["--dev-rows", "6"], ["--passages", "0.3"]):
        ner.main(changes)
        ner.main([*changes, "--size", "large-cased", "--results", "new/mine.csv"])
    assert len(fits) == 2 + 4 + 4
    out = capsys.readouterr().out
    assert "0.966" in out and "Other than in the paper: 20 of 14,041 sentences of train; 12 of 3,250 sentences" in out


def test_documents_and_passages_have_all_words(ner, data, monkeypatch):
    sentences = ner.load("train", 0)
    monkeypatch.setattr(ner, "PASSAGE_WORDS", 5)
    rows = ner.with_passages(sentences, 0.5)
    assert len(rows) == 4 * 3 + 4 * 2  # the first two sentences begin within the first five words
    assert (rows.words.map(len) == rows.tags.map(len)).all()
    assert sorted(sum(rows.words, [])) == sorted(sum(sentences.words, []))
    assert ner.with_passages(sentences, 0.0).words.tolist() == sentences.words.tolist()
    documents = ner.documents(sentences)
    assert documents.words.tolist() == [sum(sentences.words, [])]
    assert documents.tags[0][:6] == ["B-PER", "O", "B-PER", "I-PER", "O", "O"]


def test_without_data_it_says_what_to_set(ner, tmp_path, monkeypatch):
    monkeypatch.delenv("KBERT_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("kbert.datasets.catalogue.library_is_installed", lambda: False)
    with pytest.raises(SystemExit, match="KBERT_DATA is not set"):
        ner.main([])


@pytest.mark.thorough
def test_the_published_numbers_of_rows(ner, data_folder):
    parts = {part: ner.load(part, 0) for part in ("train", "dev")}
    assert {part: len(frame) for part, frame in parts.items()} == ner.ROWS
    documents = ner.documents(parts["dev"])
    assert documents.words.map(len).sum() == parts["dev"].words.map(len).sum()
    assert documents.words.map(len)[:-1].between(2_850, 3_150).all()


def test_the_defaults_are_runs_of_their_own(ner, data, fits, capsys):
    for arguments in (["--defaults"], [], ["--defaults"]):
        ner.main(arguments)
    assert [run["learning_rate"] for run in fits] == ["auto", 3e-4] and [ner.is_default(run) for run in fits] == [1, 0]
    out = capsys.readouterr().out
    assert "done before" in out and out.count("kbert's defaults, not the paper's recipe") == 2
    with pytest.raises(SystemExit):
        ner.main(["--defaults", "--epochs", "2"])
    assert "--epochs cannot be set with --defaults" in capsys.readouterr().err


def test_the_defaults_are_those_of_the_estimator(ner, monkeypatch):
    from kbert import BertTagger

    class FittedError(Exception):
        pass

    def fit(self, *data):
        raise FittedError(self.get_params())

    monkeypatch.setattr(BertTagger, "fit", fit)
    monkeypatch.setattr(ner, "with_passages", lambda train, share: train)
    run = {"size": "tiny", "weights": "none", "seed": 0, "passages": 0.0, **dict.fromkeys(ner.CHOSEN, "auto")}
    with pytest.raises(FittedError) as fitted:
        ner.fit_and_score(run, pd.DataFrame({"words": [["a"]], "tags": [["O"]]}), pd.DataFrame())
    assert fitted.value.args == (BertTagger("tiny", weights=None, random_state=0, verbose=1).get_params(),)
