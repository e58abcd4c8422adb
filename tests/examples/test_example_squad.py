"""examples/squad.py on a made-up SQuAD: what it splits, records, resumes, shows and writes for the official scorer."""

import importlib
import json
from pathlib import Path

import pandas as pd
import pytest

from kbert.datasets import read_squad
from kbert.metrics import squad_scores

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--size", "tiny", "--weights", "none", "--epochs", "1", "--max-length", "32", "--batch-size", "8"]


def write_squad(path: Path, n_articles: int, unanswerable: bool) -> None:
    """Articles of four questions; of those without an answer every second one."""
    articles = []
    for a in range(n_articles):
        context = f"Article {a} was written by Ada in London."
        questions = []
        for q in range(4):
            answer = ("Ada", "London")[q % 2]
            none = unanswerable and q >= 2
            right = [{"text": answer, "answer_start": context.index(answer)}]
            # Several people answered the questions of the dev parts.
            right = [] if none else right * (2 if path.name.startswith("dev") else 1)
            asked = {"id": f"{path.stem}-{a}-{q}", "question": ("Who wrote it?", "Where?")[q % 2], "answers": right}
            questions.append(asked | ({"is_impossible": none} if unanswerable else {}))
        articles.append({"title": f"T{a}", "paragraphs": [{"context": context, "qas": questions}]})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1", "data": articles}))


@pytest.fixture
def squad(tmp_path, monkeypatch):
    """The example as a module, with both versions, but no train part of 2.0."""
    folder = tmp_path / "data" / "squad"
    for name, n_articles in (("train-v1.1", 6), ("dev-v1.1", 4), ("dev-v2.0", 6)):
        write_squad(folder / f"{name}.json", n_articles, unanswerable="2.0" in name)
    monkeypatch.setenv("KBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("squad")


def test_both_versions_are_learned_scored_written_and_shown(squad, capsys):
    squad.main(["--rows", "0", *TINY, "--predictions", "new/answers.json"])
    shown = capsys.readouterr().out
    assert (
        "24 questions to learn, 16 to score" in shown and "24 training questions; 16 of 10,570 dev questions" in shown
    )
    answers = json.loads(Path("new/answers.json").read_text())
    dev = squad.load("1.1", 0, 0)[1]
    assert list(answers) == dev.id.tolist() and not Path("new/answers_na_prob.json").exists()
    runs = squad.read(Path("squad_results.csv"))
    scores = squad_scores(dev.answer.tolist(), list(answers.values()))
    assert runs.exact[0] == pytest.approx(scores["exact"], abs=1e-4) and runs.f1[0] == pytest.approx(
        scores["f1"], abs=1e-4
    )

    # What is done is not done again; another seed is.
    before = Path("squad_results.csv").read_bytes()
    squad.main(["--rows", "0", *TINY])
    assert Path("squad_results.csv").read_bytes() == before and "done before" in capsys.readouterr().out

    squad.main(["--version", "2.0", "--rows", "0", *TINY, "--predictions", "answers2.json"])
    train, dev = squad.load("2.0", 0, 0)
    answers, odds = (json.loads(Path(f"answers2{end}.json").read_text()) for end in ("", "_na_prob"))
    assert list(answers) == list(odds) == dev.id.tolist() and all(0 <= value <= 1 for value in odds.values())
    runs = squad.read(Path("squad_results.csv"))
    assert runs.squad.tolist() == ["1.1", "2.0"] and runs.rows.tolist() == [24, 36]
    # The official evaluation reads the questions that were scored, and puts "" where the odds are over a half.
    scored = read_squad("answers2_dev.json")
    assert (
        scored.set_index("id")
        .loc[dev.id, ["question", "context", "answer"]]
        .equals(dev.set_index("id")[["question", "context", "answer"]])
    )
    final = ["" if odds[number] > 0.5 else answer for number, answer in answers.items()]
    scores = squad_scores(dev.answer.tolist(), final)
    for name in ("f1", "answerable_f1", "unanswerable_f1"):
        assert runs[name][1] == pytest.approx(scores[name], abs=1e-4)
    squad.main(["--table"])
    assert "0.819" in capsys.readouterr().out


def test_without_data_it_says_what_to_set(squad, monkeypatch):
    monkeypatch.delenv("KBERT_DATA")
    monkeypatch.setattr("kbert.datasets.catalogue.library_is_installed", lambda: False)
    with pytest.raises(SystemExit, match="KBERT_DATA is not set"):
        squad.main([])
    assert not Path("squad_results.csv").exists()


def test_the_table_of_no_runs_says_so(squad, capsys):
    squad.main(["--table", "--results", "none_yet.csv"])
    assert "none_yet.csv has no runs yet." in capsys.readouterr().out


def test_two_halves_of_the_dev_part_share_no_article(squad):
    train, dev = squad.load("2.0", 20, 0)
    assert len(train) == 20 and not set(dev.id) & set(train.id) and len(dev) == 12
    learned = train[train.id.str.startswith("dev")]
    assert len(learned) == 12 and not set(dev.title) & set(learned.title)
    assert (learned.answer == "").sum() == 6 and learned.answer.map(lambda answer: isinstance(answer, str)).all()


def test_the_best_answers_are_those_of_predict(squad):
    class Answers:
        null_threshold_ = 0.0

        def answers(self, frame):
            columns = ["row", "rank", "answer", "start", "end", "score", "probability"]
            return pd.DataFrame(
                [(0, 1, "Ada", 0, 3, 5.0, 0.9), (0, 2, "", -1, -1, 2.0, 0.1), (1, 1, "", -1, -1, 4.0, 0.8),
                 (1, 2, "in", 0, 2, 1.0, 0.2), (2, 1, "Ada", 0, 3, 1.0, 1.0)], columns=columns
            )  # fmt: skip

    best = squad.best_answers(Answers(), range(3))
    assert best.answer.tolist() == ["Ada", "in", "Ada"] and best.margin.tolist() == [-3.0, 3.0, -float("inf")]


def test_the_defaults_are_runs_of_their_own(squad, capsys, monkeypatch):
    made = []

    def fit(run, train):
        made.append(squad.is_default(run))
        return None

    monkeypatch.setattr(squad, "fit", fit)
    monkeypatch.setattr(squad, "best_answers", lambda qa, dev: None)
    monkeypatch.setattr(squad, "dev_scores", lambda qa, dev, best: {"exact": 0.25, "f1": 0.5})
    for arguments in (["--defaults"], [], ["--defaults"]):
        squad.main(arguments)
    runs = squad.read(Path("squad_results.csv"))
    assert made == [True, False] and runs.epochs.tolist() == ["auto", 3]
    assert runs.learning_rate.tolist() == ["auto", 1e-4]
    assert "kbert's defaults, not the paper's recipe" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        squad.main(["--defaults", "--stride", "2"])
    assert "--stride cannot be set with --defaults" in capsys.readouterr().err


def test_the_defaults_are_those_of_the_estimator(squad, monkeypatch):
    from kbert import BertQA

    monkeypatch.setattr(BertQA, "fit", lambda self, X, y: self)
    run = {"size": "tiny", "weights": "none", "seed": 0, **dict.fromkeys(squad.CHOSEN, "auto")}
    assert squad.fit(run, None).get_params() == BertQA("tiny", weights=None, random_state=0, verbose=1).get_params()
