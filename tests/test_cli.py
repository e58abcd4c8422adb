"""The command line: what it writes, where its options come from, and that a user's error is one line."""

import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import kbert
from kbert import BertClassifier, BertConfig, BertForPreTraining, BertPretrainer, WordPieceTokenizer
from kbert.cli import COMMANDS, main, read_options
from kbert.files.folder_lock import alone_in
from kbert.pretraining import Corpus, Shards, trainer, write_shards
from kbert.pretraining.command_run import with_recipe
from kbert.pretraining.recipe import PAPER
from kbert.weights.folder import read_folder

pytestmark = pytest.mark.slow

SUBJECTS = {"ada": ("wrote", "a", "program"), "grace": ("found", "the", "bug"), "alan": ("broke", "that", "code")}
CONFIG = dict(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32
)
# One compiled shape for all.
TRAINING = "--phases 32 --batch-size 4 --dtype float32 --learning-rate 3e-3 --nsp --mask-rate 0.15 --quiet".split()


def made_text(n, seed=0):
    """Documents of five lines about one person each, with a blank line between."""
    names = np.random.default_rng(seed).choice(list(SUBJECTS), n)
    return "\n\n".join("\n".join([" ".join((name.title(), *SUBJECTS[name]))] * 5) for name in names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, its vocabulary and shards, an architecture, and held-out text. Tests must not change them."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(made_text(40))
    (folder / "held_out.txt").write_text(made_text(6, 1))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    text, vocab = str(folder / "text.txt"), str(folder / "vocab")
    assert main(["vocab", text, "--out", vocab, "--vocab-size", "100", "--split", "lines", "--quiet"]) == 0
    shards = str(folder / "shards")
    assert main(["shards", text, "--tokenizer", vocab, "--out", shards, "--split", "lines", "--quiet"]) == 0
    return folder


def pretrain(folder, out, *more):
    model = ["--model-config", str(folder / "config.json")]
    return main(["pretrain", str(folder / "shards"), "--out", str(out), *model, *TRAINING, *more])


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def failed(capsys, *argv):
    """The one line of a call that fails."""
    capsys.readouterr()
    assert main([str(word) for word in argv]) == 2
    printed = capsys.readouterr()
    assert re.fullmatch(r"kbert: [^\n]+\n", printed.err), printed.err
    return printed.err


# --- The commands


def test_a_vocabulary_is_that_of_the_tokenizer_and_always_the_same(folder, tmp_path, capsys):
    assert main(["vocab", f"{folder}/te*.txt", "--out", f"{tmp_path}", "--vocab-size=100", "--split=lines"]) == 0
    assert files_of(tmp_path) == files_of(folder / "vocab")
    corpus = Corpus(folder / "text.txt", split="lines")
    segments = [segment for document in corpus for segment in document]
    assert WordPieceTokenizer.from_pretrained(tmp_path) == WordPieceTokenizer.train(segments, vocab_size=100)
    printed = capsys.readouterr()
    name = segments[0].lower().split()
    assert f"\n  {' '.join(name)}\n" in printed.out and "40 documents, 200 segments, 800 words" in printed.out
    assert "--split=lines --out SHARDS" in printed.out and "40document" in printed.err


@pytest.mark.filterwarnings("ignore::kbert.errors.NewWordsWarning")
def test_a_vocabulary_without_room_for_new_words_is_counted_all_the_same(folder, tmp_path, capsys):
    options = ["--weights", folder / "vocab", "--new-words", "3", "--split", "lines", "--out", tmp_path / "vocab"]
    assert main([*map(str, ["vocab", folder / "text.txt", *options])]) == 0
    assert "40 documents, 200 segments, 800 words" in capsys.readouterr().out


def test_a_vocabulary_has_its_options(folder, tmp_path):
    text = tmp_path / "text.jsonl"
    text.write_text('{"body": "Ada Lovelace.\\u00e9t\\u00e9 Ada"}\n' * 9)
    options = "--cased --unused 3 --min-frequency 4 --split lines --column body --vocab-size 60 --quiet".split()
    assert main(["vocab", *options, "--out", str(tmp_path / "vocab"), str(text)]) == 0
    found = WordPieceTokenizer.from_pretrained(tmp_path / "vocab")
    assert found == WordPieceTokenizer.train(
        ["Ada Lovelace.\u00e9t\u00e9 Ada"] * 9, 60, lowercase=False, min_frequency=4, n_unused=3
    )
    assert list(found.vocab)[:5] == ["[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]"] and "Ada" in found.vocab


def test_shards_are_those_of_write_shards(folder, tmp_path, capsys):
    tokenizer = WordPieceTokenizer.from_pretrained(folder / "vocab")
    write_shards(Corpus(folder / "text.txt", split="lines"), tokenizer, tmp_path)
    assert files_of(tmp_path) == files_of(folder / "shards")
    text, vocab, shards = (str(folder / name) for name in ("text.txt", "vocab", "shards"))
    assert main(["shards", "--out", shards, "--tokenizer", vocab, "--jobs", "-1", "--split", "lines", text]) == 0
    printed = capsys.readouterr().out
    assert "complete already" in printed and "40 documents, 200 segments, 800 tokens in 1 shard " in printed
    assert re.search(r"\n  \[CLS\] \w+ (wrote a|found the|broke that) [^<]+ \[SEP\]\n", printed)


def test_shards_of_one_document_are_told(folder, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(made_text(1))
    out = tmp_path / "shards"
    call = ["shards", tmp_path / "text.txt", "--tokenizer", folder / "vocab", "--out", out, "--split", "lines"]
    assert main(list(map(str, call))) == 0
    line = failed(capsys, "pretrain", out, "--out", tmp_path / "model", "--max-steps", 3, "--nsp")
    assert "The shard has one document only" in line and "Leave --nsp out" in line
    assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def trained(folder):
    """A pre-trained model."""
    held_out = str(folder / "held_out.txt")
    assert pretrain(folder, folder / "model", "--max-steps", "12", "--held-out", held_out) == 0
    return folder / "model"


def test_a_trained_folder_is_a_start_for_estimators(folder, trained):
    tokenizer = WordPieceTokenizer.from_pretrained(folder / "vocab")
    texts = ["ada wrote a program", "grace found the bug"] * 4
    classifier = BertClassifier(weights=trained, max_length=16, epochs=1, batch_size=4, random_state=0)
    assert classifier.fit(texts, ["a", "b"] * 4).tokenizer_ == tokenizer
    loaded = BertPretrainer.load(trained)
    assert loaded.tokenizer_ == tokenizer and loaded.config_.vocab_size == tokenizer.vocab_size
    history = (trained / "history.csv").read_text().splitlines()
    assert len(history) == 13 and history[0].startswith("step,") and "val_nsp_accuracy" in history[0]


def test_the_same_call_again_has_nothing_to_do(folder, trained, capsys):
    before = files_of(trained)
    assert pretrain(folder, trained, "--max-steps", "12", "--held-out", str(folder / "held_out.txt")) == 0
    assert files_of(trained) == before
    printed = capsys.readouterr()
    assert printed.err == "" and "12 steps, " in printed.out and "held-out text: masked LM loss" in printed.out
    assert f'BertClassifier(weights="{trained}")' in printed.out


def test_a_finished_run_is_scored_on_another_held_out_text(folder, trained, tmp_path, capsys):
    (tmp_path / "other.txt").write_text(made_text(6, 7))
    losses = []
    for text in (folder / "held_out.txt", tmp_path / "other.txt"):
        assert pretrain(folder, trained, "--max-steps", "12", "--held-out", str(text)) == 0
        losses.append(re.search(r"held-out text: masked LM loss ([\d.]+)", capsys.readouterr().out)[1])
        history = pd.read_csv(trained / "history.csv")
        assert losses[-1] == f"{history.val_mlm_loss.iloc[-1]:.3f}"
    # Nothing of the other text is left beside it.
    assert losses[0] != losses[1] and history.val_mlm_loss.notna().sum() == 1


def test_what_the_model_sees_is_shown(folder, trained, capsys):
    assert pretrain(folder, trained, "--max-steps", "12") == 0
    printed = " ".join(capsys.readouterr().out.split())
    text, targets = re.search(r"(\[CLS\].+?) <- is (?:next|random) to predict: (.+?) \[CLS\]", printed).groups()
    of_text = {word for name, words in SUBJECTS.items() for word in (name, *words)}
    assert of_text & set(text.split()) and "[MASK]" in text and text.endswith("[SEP]")
    targets = [re.fullmatch(r"(\d+) \S+ -> (\S+)", target).groups() for target in targets.split(", ")]
    assert {word for _, word in targets} <= of_text and 1 <= len(targets) <= 5
    assert [int(place) for place, _ in targets] == sorted(int(place) for place, _ in targets)


def test_an_interrupted_call_goes_on(folder, trained, tmp_path, capsys, monkeypatch):
    write = trainer.write_checkpoint

    def interrupted(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    more = ["--max-steps", "12", "--checkpoint-every", "5"]
    monkeypatch.setattr(trainer, "write_checkpoint", interrupted)
    assert pretrain(folder, tmp_path, *more) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("kbert: interrupted. The same call goes on") and printed.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    monkeypatch.setattr(trainer, "write_checkpoint", write)
    assert pretrain(folder, tmp_path, *more) == 0
    assert f"goes on from the last checkpoint in {tmp_path / 'run'}" in capsys.readouterr().out
    whole = read_folder(trained)
    assert all(np.array_equal(whole[name], array) for name, array in read_folder(tmp_path).items())


def test_sigterm_is_told_in_a_line_and_ends_the_process():
    code = (
        "import signal\nfrom kbert import cli\n"
        "cli.COMMANDS['vocab'].run = lambda options: signal.raise_signal(signal.SIGTERM)\n"
        "cli.main(['vocab', 'texts.txt', '--out', 'vocab.txt'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == -signal.SIGTERM
    assert run.stderr == "kbert: ended by SIGTERM. The same call starts again.\n"


def test_sigterm_is_as_before_after_a_call(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    assert main(["vocab", str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_files_of_others_are_left_as_they_are(folder, tmp_path, capsys):
    (tmp_path / "history.csv").write_text("mine")
    assert pretrain(folder, tmp_path, "--max-steps", "1") == 2
    assert "holds other files, such as history.csv. Give a new folder" in capsys.readouterr().err
    assert files_of(tmp_path) == {Path("history.csv"): b"mine"}


def test_weights_are_gone_on_from(folder, trained, tmp_path):
    more = ["--max-steps", "1", "--weights", str(trained), "--learning-rate", "1e-9", *TRAINING[:2]]
    call = ["pretrain", str(folder / "shards"), "--out", str(tmp_path), *TRAINING, *more]
    assert main(call) == 0
    before, after = read_folder(trained), read_folder(tmp_path)
    assert all(np.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_a_run_does_not_go_on_from_weights_that_have_changed(folder, trained, tmp_path, capsys):
    start, moved = tmp_path / "start", tmp_path / "moved"
    shutil.copytree(trained, start, ignore=shutil.ignore_patterns("run"))
    call = ["pretrain", folder / "shards", "--out", tmp_path / "out", *TRAINING, "--max-steps", 1, "--weights"]
    assert main([str(word) for word in [*call, start]]) == 0
    start.rename(moved)
    assert main([str(word) for word in [*call, moved]]) == 0
    arrays = load_file(moved / "model.safetensors")
    save_file({name: array * 1.01 for name, array in arrays.items()}, moved / "model.safetensors", {"format": "pt"})
    capsys.readouterr()
    assert "another start" in failed(capsys, *call, moved)


def test_new_words_take_the_unused_places_of_weights(folder, tmp_path, capsys):
    text, vocab, start, shards, model = (str(tmp_path / n) for n in ("t.txt", "vocab", "start", "shards", "model"))
    Path(text).write_text(made_text(12).replace("bug", "bugace"))
    tokenizer = WordPieceTokenizer.train(made_text(12).split("\n"), n_unused=3)
    config = BertConfig.from_dict({**CONFIG, "vocab_size": tokenizer.vocab_size})
    BertForPreTraining(config, seed=1).save_pretrained(start)
    tokenizer.save(start)
    call = ["vocab", text, "--out", vocab, "--weights", start, "--split", "lines", "--quiet"]
    assert main([*call, "--new-words", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 new words: bugace\n" in printed, printed
    found = WordPieceTokenizer.from_pretrained(vocab)
    assert found == tokenizer.with_words(["bugace"])
    assert main(["shards", text, "--tokenizer", vocab, "--out", shards, "--split", "lines", "--quiet"]) == 0
    more = ["--weights", start, "--max-steps", "1", "--learning-rate", "1e-9"]
    assert main(["pretrain", shards, "--out", model, *TRAINING, *more]) == 0
    assert WordPieceTokenizer.from_pretrained(model) == found
    table = "bert.embeddings.word_embeddings.weight"
    before, after = read_folder(start)[table], read_folder(model)[table]
    pieces = before[tokenizer.encode("bugace").ids[1:-1]]
    assert len(pieces) > 1 and np.allclose(after[found.vocab["bugace"]], pieces.mean(axis=0), atol=1e-6)

    (tmp_path / "words.txt").write_text("Zork\n\nfrobnicate \n")
    assert main([*call, "--new-words", str(tmp_path / "words.txt")]) == 0
    assert WordPieceTokenizer.from_pretrained(vocab) == tokenizer.with_words(["zork", "frobnicate"])
    (tmp_path / "words.txt").write_bytes("für".encode("latin-1"))
    assert "words.txt is not UTF-8 text" in failed(capsys, *call, "--new-words", tmp_path / "words.txt")
    assert "go together" in failed(capsys, *call)
    assert "--weights or --cased, not both" in failed(capsys, *call, "--new-words", 1, "--cased")
    assert "at least 1" in failed(capsys, *call, "--new-words", 0)


# --- Options


def write_config(folder, text):
    path = folder / "run.toml"
    path.write_text(text)
    return path


class Begun(Exception):
    """Instead of a run: what it would have been."""


@pytest.mark.parametrize("start", ["scratch", "weights"])
@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_the_defaults_are_those_of_the_estimator(folder, trained, tmp_path, monkeypatch, start, recipe):
    def begin(run):
        values = dataclasses.replace(run.options, seed=0, verbose=0)
        raise Begun(values, run.nsp, run.model.config.hidden_dropout_prob)

    monkeypatch.setattr(trainer.Pretraining, "run", begin)
    weights, size = (None, "tiny") if start == "scratch" else (trained, "base")
    budget = {} if recipe == "paper" else {"max_steps": 3}
    lengths = {"max_length": 32} if start == "weights" else {}  # that model has no more positions
    made = BertPretrainer if recipe == "default" else BertPretrainer.paper
    with pytest.raises(Begun) as of_estimator:
        made(size, weights=weights, **budget, **lengths).fit(folder / "text.txt")
    model = ["--size", size] if weights is None else ["--weights", str(weights), "--phases", "32"]
    budget = ["--paper"] if recipe == "paper" else ["--max-steps", "3"]
    call = ["pretrain", str(folder / "shards"), "--out", str(tmp_path / "model"), *model, *budget, "--quiet"]
    with pytest.raises(Begun) as of_command:
        main(call)
    assert of_command.value.args == of_estimator.value.args
    values, nsp, _ = of_command.value.args
    assert nsp == (recipe == "paper") and values.mixed == (recipe == "default" and start == "scratch")


def test_what_is_given_goes_before_the_paper():
    def settled(*given):
        return with_recipe(read_options(COMMANDS["pretrain"], ["shards", "--out", "model", "--paper", *given]))

    whole = settled()
    assert (whole.max_steps, whole.nsp, whole.phases, whole.warmup) == (1_000_000, True, PAPER["max_length"], 0.01)
    some = settled("--max-seconds", "60", "--no-nsp", "--warmup", "0.2", "--phases", "128", "--dropout", "0")
    assert (some.max_steps, some.max_seconds, some.nsp, some.warmup) == (None, 60.0, False, 0.2)
    assert (some.phases, some.dropout, some.mask_rate) == (((128, 1.0),), 0.0, PAPER["mask_rate"])


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path):
    path = write_config(
        tmp_path,
        """
        [vocab]
        source = ["a.txt", "b"]
        vocab-size = 5000
        cased = true
        out = "vocab"

        [pretrain]
        shards = "shards"
        out = "model"
        max_steps = 1000
        phases = "128:0.9,512:0.1"
        mixed = true
        learning_rate = 1e-3
        warmup = 100
        nsp = false
        size = "tiny"
        """,
    )
    vocab = read_options(COMMANDS["vocab"], ["--config", str(path), "--vocab-size", "8000", "--no-cased"])
    assert (vocab.source, vocab.vocab_size, vocab.cased, vocab.out) == (["a.txt", "b"], 8000, False, Path("vocab"))
    read = read_options(COMMANDS["pretrain"], ["--config", str(path), "--warmup", "0.2"])
    assert (read.shards, read.phases, read.mixed, read.nsp) == ("shards", ((128, 0.9), (512, 0.1)), True, False)
    assert (read.learning_rate, read.warmup, read.max_steps) == (1e-3, 0.2, 1000)
    # Another budget and another model take the place of those of the file.
    read = read_options(COMMANDS["pretrain"], ["--config", str(path), "--max-seconds", "60", "--weights", "base"])
    assert (read.max_steps, read.max_seconds, read.size, read.weights) == (None, 60.0, None, "base")
    assert read_options(COMMANDS["vocab"], ["c", "--config", str(path), "d"]).source == ["c", "d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[vocab]\nvocabsize = 3", "[vocab] vocabsize is no option. Did you mean vocab_size?"),
        ("[vocab]\nvocab_size = 'many'", "[vocab] vocab_size must be a whole number of at least 1, not 'many'"),
        ("[vocab]\ncased = 'yes'", "[vocab] cased must be true or false, not 'yes'"),
        ("[vocab]\nsplit = 'words'", "[vocab] split must be one of sentences, lines, not 'words'"),
        ("[vocab]\nout = ['a']", "[vocab] out must be a text or a number, not ['a']"),
        ("[vocab]\nvocab-size = 9\nvocab_size = 9", "vocab_size is given twice"),
        ("[vocabs]\nout = 'a'", "'vocabs' is no table of a command. Did you mean vocab?"),
        ("vocab_size = 3", "'vocab_size' is no table of a command"),
        ("[vocab", "is no valid TOML"),
        ("[vocab]\nsource = 'there_is_no_such_file'", "no file or folder"),
    ],
)
def test_errors_in_a_file_are_told(tmp_path, capsys, text, message):
    assert message in failed(capsys, "vocab", "--out", tmp_path / "out", "--config", write_config(tmp_path, text))


def test_files_of_windows_and_flags_that_are_off(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[predict]\nkeep = ["id"]\npredictions-only = false\n', encoding="utf-8-sig")
    read = read_options(COMMANDS["predict"], ["model", "table.csv", "--out", "out.csv", "--config", str(path)])
    assert (read.keep, read.predictions_only) == (["id"], False)
    with pytest.raises(ValueError, match="not both"):  # on the command line it is given
        read_options(COMMANDS["vocab"], ["src", "--out", "o", "--weights", "w", "--no-strip-accents"])


def test_an_option_without_values_has_none(tmp_path, monkeypatch):
    read = read_options(COMMANDS["predict"], ["model", "table.csv", "--out", "out.csv", "--keep"])
    assert read.keep == [] and read.text is None
    monkeypatch.setenv("HOME", str(tmp_path))
    write_config(tmp_path, "[vocab]\nsource = 'a.txt'\nout = 'vocab'")
    assert read_options(COMMANDS["vocab"], ["--config=~/run.toml"]).source == ["a.txt"]


# --- Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("", "which command? The commands are fit, evaluate, predict, vocab"),
        ("vocabs a.txt", "there is no command 'vocabs'. Did you mean vocab?"),
        ("train a.csv", "there is no command 'train'. Did you mean fit?"),
        ("vocab", "vocab needs SOURCE and --out"),
        ("vocab nowhere.txt --out out", "no file or folder"),
        ("vocab a.txt --out out --vocab-sizes 3", "unknown argument --vocab-sizes. Did you mean --vocab-size?"),
        ("vocab a.txt --out out --vocab 3", "unknown argument --vocab"),
        ("vocab a.txt --out out --split words", "--split: invalid choice: 'words'"),
        ("vocab a.txt --out out --config nowhere.toml", "there is no file nowhere.toml"),
        ("shards a.txt --out out", "shards needs --tokenizer"),
        ("shards a.txt --out out --tokenizer t --jobs 0", "--jobs: must be a number of processes, or -1, not '0'"),
        ("pretrain nowhere --out out --max-steps 3", "nowhere holds no token shards"),
        ("pretrain shards --out out", "Give --max-steps or --max-seconds"),
        ("pretrain s --out out --max-steps 3 --max-seconds 3", "give --max-steps or --max-seconds, not both"),
        ("pretrain s --out out --size tiny --weights w", "give --size or --weights, not both"),
        ("pretrain s --out out --max-steps 3 --phases 128:a", "--phases: must be lengths"),
        ("pretrain s --out out --max-steps 3 --batch-size 0", "--batch-size: must be a whole number of at least 1"),
        ("pretrain s --out out --max-steps 3 --mask-rate 1.5", "--mask-rate: must be a number between 0 and 1"),
        ("pretrain s --out out --max-steps 3 --learning-rate nan", "--learning-rate: must be a number over 0"),
        ("pretrain s --out out --max-steps 3 --warmup 1.5", "--warmup: must be a share"),
    ],
)  # fmt: skip
def test_a_users_error_is_one_line(tmp_path, monkeypatch, capsys, call, message):
    monkeypatch.chdir(tmp_path)
    assert message in failed(capsys, *call.split())
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_together_is_told(folder, trained, tmp_path, capsys):
    shards, held_out = folder / "shards", folder / "held_out.txt"
    call = ["pretrain", shards, "--out", tmp_path / "out", "--max-steps", 3]
    assert "--size: invalid choice: 'tin'" in failed(capsys, *call, "--size", "tin")
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": 7}))
    assert "vocab_size is 7" in failed(capsys, *call, "--model-config", tmp_path / "config.json")
    assert "A phase has 128 tokens" in failed(capsys, *call, "--model-config", folder / "config.json", "--phases", 128)
    vocab, other = tmp_path / "vocab", tmp_path / "shards"
    assert main(["vocab", str(held_out), "--out", str(vocab), "--split", "lines", "--cased"]) == 0
    assert main(["shards", str(held_out), "--tokenizer", str(vocab), "--out", str(other), "--split", "lines"]) == 0
    capsys.readouterr()
    assert "another vocabulary" in failed(capsys, "pretrain", other, *call[2:], "--weights", trained)
    assert "another vocabulary" in failed(capsys, *call, "--held-out", other)
    again = ["--model-config", folder / "config.json", *TRAINING, "--max-steps", 12]
    assert "other text and vocabulary" in failed(capsys, "pretrain", other, "--out", trained, *again)
    assert "another architecture or dropout" in failed(
        capsys, "pretrain", shards, "--out", trained, *again, "--dropout", 0.3
    )
    assert "another learning_rate" in failed(
        capsys, "pretrain", shards, "--out", trained, *again, "--learning-rate", 0.01
    )


def test_a_damaged_note_of_a_run_is_told_of_with_its_file(folder, trained, tmp_path, capsys):
    shutil.copytree(trained / "run", tmp_path / "out" / "run")
    for content in ("[" * 100_000, "{", "[]"):
        (tmp_path / "out" / "run" / "source.json").write_text(content)
        assert pretrain(folder, tmp_path / "out", "--max-steps", "8") == 2
        assert re.search(r"source.json .*Give another folder", capsys.readouterr().err)


def test_the_note_of_a_run_that_is_going_on_is_kept(folder, tmp_path, capsys):
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")
    run = tmp_path / "out" / "run"
    run.mkdir(parents=True)
    (run / "source.json").write_text("of the first run, which has no checkpoint yet")
    with alone_in(run):
        assert pretrain(folder, tmp_path / "out", "--max-steps", "8") == 2
    assert "Another run is writing its checkpoints" in capsys.readouterr().err
    assert (run / "source.json").read_text() == "of the first run, which has no checkpoint yet"


def test_a_model_that_is_there_is_not_replaced(folder, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    text = folder / "text.txt"
    assert "holds a model" in failed(capsys, "vocab", text, "--out", tmp_path)
    call = ["pretrain", folder / "shards", "--out", tmp_path, "--max-steps", 3]
    assert "holds another model" in failed(capsys, *call)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_traceback_is_there_for_the_asking(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["vocab", str(tmp_path / "nowhere"), "--out", str(tmp_path), "--traceback"])


def test_warnings_are_one_line(tmp_path, capsys):
    (tmp_path / "text.txt").write_bytes(b"caf\xe9 and tea\n" * 3)
    call = ["vocab", tmp_path / "text.txt", "--out", tmp_path / "out", "--split", "lines", "--quiet"]
    assert "is not UTF-8" in failed(capsys, *call)
    assert main([*map(str, call), "--errors", "replace"]) == 0
    assert re.fullmatch(r"kbert: warning: [^\n]+ 3 times in all\.\n", capsys.readouterr().err)


# --- The program


def test_help_and_version_load_no_backend():
    code = (
        "import sys; from kbert.cli import COMMANDS, main; "
        "calls = [['--version'], ['--help'], *([name, '--help'] for name in COMMANDS)]; "
        "assert [main(call) for call in calls] == [0] * len(calls); "
        "print(' '.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "kbert" in loaded and not loaded & {"keras", "tensorflow", "jax", "torch", "pandas", "sklearn", "scipy"}
    assert run.stdout.startswith(f"kbert {kbert.__version__}\n")
    assert all(f"  {name}" in run.stdout and f"usage: kbert {name}" in run.stdout for name in COMMANDS)


def test_it_is_a_program(tmp_path):
    project = Path(kbert.__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["scripts"] == {"kbert": "kbert.cli:main"}
    call = [sys.executable, "-m", "kbert", "vocab", str(tmp_path / "nowhere"), "--out", str(tmp_path)]
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.startswith("kbert: There is no file") and run.stdout == ""


def test_without_an_output_it_works_and_where_its_reader_ends_it_says_so(folder, tmp_path):
    argv = ["kbert", "vocab", str(folder / "text.txt"), "--split", "lines", "--vocab-size", "100"]
    code = "import sys; from kbert.cli import main; sys.exit(main(sys.argv[1:]))"
    # As `>&-` of a shell, and cron, leave it: Python then has no sys.stdout.
    closed = f"import sys; sys.stdout = None; {code}"
    call = [sys.executable, "-c", closed, *argv[1:], "--out", str(tmp_path / "closed"), "--quiet"]
    run = subprocess.run(call, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "") and (tmp_path / "closed").is_dir()
    ended = f"import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); {code}"
    call = [sys.executable, "-c", ended, *argv[1:], "--out", str(tmp_path / "ended")]
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode == 1 and run.stderr.endswith("\nkbert: stopped, since what reads its output has ended.\n")


def test_shards_can_be_opened(folder):
    assert len(Shards(folder / "shards", verify=True)) == 1
