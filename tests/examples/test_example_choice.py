"""examples/choice.py on a made-up DREAM and SWAG: what it records, resumes and shows."""

import importlib
import json
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--size", "tiny", "--weights", "none", "--epochs", "1", "--max-length", "32"]


def write_dream(root: Path, part: str, n_rows: int) -> None:
    """Of three options the one that the context names is right; every fourth row has two."""
    lines = []
    for i in range(n_rows):
        options = ["by bus.", "by train.", "by ship."][: 2 if i % 4 == 3 else 3]
        label = i % len(options)
        context = f"man: I went {options[label]}"
        row = {"id": str(i), "context": context, "question": "How did he travel?", "options": options, "label": label}
        lines.append(json.dumps(row))
    (root / "dream").mkdir(parents=True, exist_ok=True)
    (root / "dream" / f"{part}.jsonl").write_text("\n".join(lines))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """DREAM, and SWAG."""
    write_dream(tmp_path / "data", "train", 24)
    write_dream(tmp_path / "data", "dev", 12)
    swag = tmp_path / "data" / "swag"
    swag.mkdir()
    for part in ("train", "val"):
        lines = ["sent1,sent2,ending0,ending1,ending2,ending3,label", *["A man sits.,He,a,b,c,d,1"] * 8]
        (swag / f"{part}.csv").write_text("\n".join(lines))
    monkeypatch.setenv("KBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def choice(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("choice")


@pytest.fixture
def fits(choice, monkeypatch):
    """Instead of training: a list of the runs."""
    runs = []

    def fit_and_score(run, train, dev):
        runs.append(run)
        return {"accuracy": 0.5 + run["seed"] / 10, "fit_s": 1}

    monkeypatch.setattr(choice, "fit_and_score", fit_and_score)
    return runs


def test_it_fine_tunes_records_and_shows(choice, data, capfd):
    choice.main([*TINY, "--rows", "16"])
    runs = pd.read_csv("choice_results.csv", keep_default_na=False)
    setting = runs[["task", "size", "weights", "epochs", "rows", "dev_rows", "seed"]]
    assert setting.to_numpy().tolist() == [["dream", "tiny", "none", 1, 16, 12, 0]]
    assert 0 <= runs.accuracy[0] <= 1
    out, err = capfd.readouterr()
    assert out.count("How did he travel?") == 3
    heads, values = (line.split() for line in out.splitlines()[-5:-3])
    assert heads == "task seeds mean std min max guessing paper, SWAG dev".split()
    assert values[:2] == ["dream", "1"] and values[-2:] == ["0.375", "(0.816)"]
    assert (
        "tiny from a random start, not BERT-base; DREAM's dialogues and its dev, another data set than SWAG: the "
        "scores cannot be compared; 16 of 6,116 rows of train; 12 of 2,040 rows of dev" in out
    )
    assert "fit: 100%" in err


def test_finished_runs_are_not_made_again(choice, data, fits, capsys):
    choice.main(["--seeds", "0"])
    first = Path("choice_results.csv").read_text()
    choice.main(["--seeds", "0", "1"])
    assert [run["seed"] for run in fits] == [0, 1]
    assert Path("choice_results.csv").read_text().startswith(first)
    out = capsys.readouterr().out
    assert "done before" in out and "dream      2  0.55 0.0707" in out
    for changes in (["--learning-rate", "5e-5"], ["--rows", "20"], ["--dev-rows", "6"], ["--task", "swag"]):
        choice.main(changes)
        choice.main([*changes, "--results", "new/mine.csv"])
    assert len(fits) == 2 + 4 + 4


def test_the_defaults_are_runs_of_their_own(choice, data, fits, capsys):
    for arguments in (["--defaults"], [], ["--defaults"]):
        choice.main(arguments)
    assert [[run[name] for name in choice.CHOSEN] for run in fits] == [["auto"] * 4, [96, 3, 16, 1e-4]]
    out = capsys.readouterr().out
    assert "done before" in out and out.count("kbert's defaults, not the paper's recipe") == 2


def test_the_defaults_are_those_of_the_estimator(choice, monkeypatch):
    from kbert import BertMultipleChoice

    class FittedError(Exception):
        pass

    def fit(self, *data):
        raise FittedError(self.get_params())

    monkeypatch.setattr(BertMultipleChoice, "fit", fit)
    run = {"size": "tiny", "weights": "none", "seed": 0, **dict.fromkeys(choice.CHOSEN, "auto")}
    with pytest.raises(FittedError) as fitted:
        choice.fit_and_score(run, pd.DataFrame({"label": [0]}), pd.DataFrame())
    assert fitted.value.args == (BertMultipleChoice("tiny", weights=None, random_state=0, verbose=1).get_params(),)


def test_swag_is_set_beside_the_papers_score(choice, data, fits, capsys):
    choice.main(["--task", "swag", "--size", "large"])
    assert [(run["task"], run["rows"], run["dev_rows"]) for run in fits] == [("swag", 8, 8)]
    out = capsys.readouterr().out
    assert out.splitlines()[-4].split()[-2:] == ["0.25", "0.866"]
    assert "Other than in the paper: 8 of 73,546 rows of train; 8 of 20,006 rows of dev." in out


def test_without_data_it_says_what_to_set(choice, monkeypatch):
    monkeypatch.delenv("KBERT_DATA", raising=False)
    with pytest.raises(SystemExit, match="KBERT_DATA is not set"):
        choice.main([])


def test_the_published_numbers_of_rows(choice, data_folder):
    assert {part: len(choice.load("dream", part, 0)) for part in ("train", "dev")} == choice.ROWS["dream"]
