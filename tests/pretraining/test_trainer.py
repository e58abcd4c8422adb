"""Pre-training runs: they learn, keep to their budget, and go on after a kill as if there had been none."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest

from kbert import BertConfig, WordPieceTokenizer
from kbert.errors import CheckpointWarning, DivergedError, WeightsMismatchError
from kbert.model import BertForPreTraining
from kbert.pretraining import Corpus, checkpoints, write_shards
from kbert.pretraining.checkpoints import dtype_of_run
from kbert.pretraining.instances import documents_of
from kbert.pretraining.stream import Cursor
from kbert.pretraining.trainer import Pretraining, PretrainingOptions
from kbert.training import checkpoint_folders
from kbert.training.checkpoint_folders import checkpoints_in
from kbert.training.non_finite import LossScaler

pytestmark = pytest.mark.slow

SUBJECTS = {"ada": ("wrote", "a", "program"), "grace": ("found", "the", "bug"), "alan": ("broke", "that", "code")}


def made_documents(n, seed=0):
    """Each is about one person, whose sentences are always the same three words: a mask can be told from the others."""
    rng = np.random.default_rng(seed)
    names = list(SUBJECTS)
    return [[" ".join((name, *SUBJECTS[name])) for _ in range(6)] for name in rng.choice(names, n)]


def made(nsp=True, n_elements=2, **options):
    """A run on toy documents."""
    tokenizer = WordPieceTokenizer.train(
        [" ".join([name, *words]) for name, words in SUBJECTS.items()] * 9, vocab_size=200
    )
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.1,
    ).with_dropout(options.pop("dropout", None))
    model = BertForPreTraining(config, nsp=nsp, dtype=options.pop("dtype", "float32"), seed=1)
    source = [documents_of(made_documents(40, seed), tokenizer) for seed in range(n_elements)]
    held_out = documents_of(made_documents(10, options.pop("held_out_seed", 99)), tokenizer)
    values = dict(max_steps=12, phases=((32, 1.0),), batch_size=4, learning_rate=3e-3, seed=5, evaluate_every=5)
    of_run = ("folder", "on_step_end", "distribution", "start")
    run = {name: options.pop(name) for name in of_run if name in options}
    return Pretraining(model, tokenizer, source, PretrainingOptions(**{**values, **options}), held_out, **run)


def weights_of(run):
    return [np.array(keras.ops.convert_to_numpy(variable.value)) for variable in run.model.trainable_variables]


@pytest.mark.backend
@pytest.mark.compiles
def test_both_tasks_are_learned():
    run = made(max_steps=300, evaluate_every=300)
    first = run.evaluate()
    history = run.run()
    last = run.evaluate()
    assert first["mlm_loss"] > 3 and last["mlm_loss"] < 1 and last["mlm_accuracy"] > 0.7 > first["mlm_accuracy"]
    # One person in both texts, or two; a third of the random pairs are of the same one, and cannot be told.
    assert history.nsp_loss[-100:].mean() < 0.68 < history.nsp_loss[:30].mean()
    assert history.nsp_accuracy[-100:].mean() > 0.57
    assert history.val_mlm_loss.iloc[-1] == pytest.approx(last["mlm_loss"], rel=1e-5)
    assert history.step.tolist() == list(range(1, 301)) and (history.loss > 0).all()
    np.testing.assert_allclose(history.loss, history.mlm_loss + history.nsp_loss, rtol=1e-5)
    assert history.tokens.iloc[-1] > 0.8 * 300 * 4 * 32 and (history.tokens.diff()[1:] <= 4 * 32).all()


def test_masked_lm_alone_reads_every_token_once_an_epoch():
    run = made(nsp=False, n_elements=3)
    read = [found for _, found in zip(range(60), run.stream.batches(Cursor()), strict=False)]
    first_epoch = 0
    for cursor, batch in read:
        if cursor.epoch == 0:
            token_ids = batch.inputs["token_ids"][batch.inputs["text_ids"] > 0]
            first_epoch += np.count_nonzero(~np.isin(token_ids, specials_of(run)))
    assert max(cursor.epoch for cursor, _ in read) >= 1
    by_any = sum(len(documents.tokens) for documents in run.source)
    # A mask may be replaced by a special token, one in a hundred.
    assert first_epoch == pytest.approx(by_any, rel=0.01)
    history = run.run()
    assert (history.nsp_loss == 0).all() and "val_nsp_loss" not in history


def specials_of(run):
    return [run.tokenizer.cls_id, run.tokenizer.sep_id]


def test_the_rate_rises_and_falls_by_the_share_of_the_budget():
    history = made(max_steps=10, warmup=0.2).run()
    np.testing.assert_allclose(history.learning_rate[:3] / 3e-3, [0.5, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(np.diff(history.learning_rate[2:]), -3e-3 / 8, rtol=1e-5)
    in_steps = made(max_steps=10, warmup=2).run()
    np.testing.assert_allclose(in_steps.learning_rate, history.learning_rate)


def test_a_warmup_of_numpys_counts_updates_and_the_rate_falls_after_it():
    history = made(max_steps=10, warmup=np.int64(2)).run()
    np.testing.assert_array_equal(history.learning_rate, made(max_steps=10, warmup=2).run().learning_rate)
    assert history.learning_rate.iloc[-1] == pytest.approx(3e-3 / 8)


def test_numbers_of_numpy_are_made_plain(tmp_path):
    numbers = dict(max_steps=np.int64(4), batch_size=np.int32(4), learning_rate=np.float32(0.5), seed=np.uint8(5))
    made(**numbers, phases=((np.int64(32), np.float64(1)),), fixed=np.bool_(False), folder=tmp_path).run()
    # Also where the run goes on: a checkpoint holds its options as JSON.
    plain = dict(max_steps=4, batch_size=4, learning_rate=0.5, seed=5)
    assert len(made(**plain, folder=tmp_path).run()) == 4


def test_a_budget_in_seconds_is_kept():
    history = made(max_steps=None, max_seconds=2.0, batch_size=4).run()
    assert 1.9 < history.seconds.iloc[-1]
    assert history.learning_rate.max() <= 3e-3 and history.learning_rate.iloc[-1] < 1e-3
    assert history.learning_rate.min() > 0


def test_phases_have_their_shares_and_lengths(trained_shapes):
    run = made(max_steps=10, phases=((16, 0.9), (32, 0.1)))
    run.run()
    assert trained_shapes == [(4, 16)] * 9 + [(4, 32)]


@pytest.mark.thorough
def test_mixed_lengths_have_their_shares_and_grow(trained_shapes):
    run = made(max_steps=200, phases=((8, 0.8), (16, 0.15), (32, 0.05)), mixed=True)
    run.run()
    # Each batch has as many tokens.
    assert set(trained_shapes) == {(4, 8), (2, 16), (1, 32)}
    lengths = np.array([length for _, length in trained_shapes])
    assert (lengths[:60] == 8).all()
    assert abs((lengths == 16).mean() - 0.15) <= 0.02 and abs((lengths == 32).mean() - 0.05) <= 0.02
    assert (lengths[60:130] > 8).mean() < (lengths[130:] > 8).mean() < 0.57


def test_batches_of_mixed_lengths_have_no_more_tokens_than_the_shortest():
    options = PretrainingOptions(max_steps=1, phases=((64, 0.8), (256, 0.1), (100, 0.1)), mixed=True, batch_size=64)
    assert options.batch_sizes == [64, 16, 32]
    assert replace(options, mixed=False).batch_sizes == [64, 64, 64]


@pytest.mark.thorough
@pytest.mark.parametrize("mixed", [False, True])
def test_a_budget_in_seconds_reaches_all_lengths(mixed):
    run = made(max_steps=None, max_seconds=6.0, phases=((16, 0.75), (32, 0.25)), mixed=mixed)
    lengths = []
    take_in = run._take_in
    run._take_in = lambda update, progress: (take_in(update, progress), lengths.append(run.phase))
    run.run()
    assert set(lengths) == {0, 1} and lengths[0] == 0
    assert mixed or lengths == sorted(lengths)


@pytest.mark.parametrize("phases", [((64, 0.1), (32, 0.9)), ((32, 0.6), (64, 0.4))])
def test_phases_that_cannot_be_mixed_are_refused(phases):
    with pytest.raises(ValueError, match="the first of the phases has the shortest rows, and the others have 0.35"):
        PretrainingOptions(max_steps=1, phases=phases, mixed=True)


@pytest.mark.compiles
@pytest.mark.backend
def test_accumulated_batches_are_one_update():
    run = made(gradient_accumulation=3, max_steps=4)
    history = run.run()
    assert len(history) == 4 and history.tokens.iloc[-1] > 3 * 4 * 4 * 20


@pytest.mark.parametrize("nsp", [True, False])
def test_epochs_are_counted_in_batches(nsp):
    run = made(nsp, n_elements=3)
    read = []
    for cursor, _ in run.stream.batches(Cursor()):
        if cursor.epoch == 3:
            break
        read.append(cursor.epoch)
    assert [run.stream.n_batches(epochs) for epochs in (1, 2, 3)] == [
        sum(epoch < epochs for epoch in read) for epochs in (1, 2, 3)
    ]


def test_text_without_a_token_is_refused():
    run = made(nsp=False, n_elements=1)
    empty = [documents_of([["\u200b"]], run.tokenizer)]
    with pytest.raises(ValueError, match="source: there is no token"):
        Pretraining(run.model, run.tokenizer, empty * 2, run.options)
    with pytest.raises(ValueError, match="held_out: there is no token"):
        Pretraining(run.model, run.tokenizer, run.source, run.options, *empty)
    run.stream.source = empty  # a source that has changed since
    with pytest.raises(ValueError, match="no token"):
        run.run()


def test_new_masks_every_epoch_unless_fixed():
    for fixed in (False, True):
        run = made(fixed=fixed, n_elements=1)
        epochs = {}
        for cursor, batch in run.stream.batches(Cursor()):
            if cursor.epoch == 2:
                break
            epochs.setdefault(cursor.epoch, []).append(batch.inputs["token_ids"])
        assert np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1])) == fixed


# --- Going on


def test_a_checkpoint_of_a_run_from_other_weights_is_refused(tmp_path):
    made(folder=tmp_path, start="some weights").run()
    assert len(made(folder=tmp_path, start="some weights").run()) == 12
    for start in ("other weights", None):
        with pytest.raises(ValueError, match="run with another start.*the weights that training starts from"):
            made(folder=tmp_path, start=start).run()


# Of twelve updates the sixth, eighth and eleventh have long rows.
MIXED = {"phases": ((16, 0.7), (32, 0.3)), "mixed": True}


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parametrize(("nsp", "lengths"), [(True, {}), (False, {}), (False, MIXED)])
def test_a_resumed_run_ends_at_the_same_weights(tmp_path, nsp, lengths):
    whole = made(nsp, gradient_accumulation=2, **lengths)
    whole.run()

    class Stop(Exception):
        pass

    def stop(step):
        if step == 7:
            raise Stop

    options = dict(gradient_accumulation=2, checkpoint_every=3, folder=tmp_path, **lengths)
    with pytest.raises(Stop):
        made(nsp, on_step_end=stop, **options).run()
    resumed = made(nsp, **options)
    history = resumed.run()
    left = ["checkpoint-000000009", "checkpoint-000000012", "history.csv"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == left
    assert all(np.array_equal(a, b) for a, b in zip(weights_of(whole), weights_of(resumed), strict=True))
    assert history.step.tolist() == list(range(1, 13))
    # A finished run is not trained further.
    again = made(nsp, **options)
    assert len(again.run()) == 12
    assert all(np.array_equal(a, b) for a, b in zip(weights_of(whole), weights_of(again), strict=True))


@pytest.mark.compiles
@pytest.mark.backend
def test_a_run_that_is_looked_at_or_interrupted_shows_its_weights_of_now(tmp_path):
    """On JAX and TensorFlow copies are trained."""
    seen = []

    def look(step):
        if step in (2, 4):
            seen.append(run.evaluate()["loss"])
        if step == 5:
            raise KeyboardInterrupt

    run = made(on_step_end=look, evaluate_every=100)
    start = weights_of(run)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert seen[0] != seen[1]
    assert not any(np.array_equal(a, b) for a, b in zip(start, weights_of(run), strict=True) if a.ndim > 1)
    assert run.step == 5


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_finished_run_is_not_trained_again(tmp_path, in_folder):
    run = made(folder=tmp_path if in_folder else None)
    history, weights, seconds = run.run(), weights_of(run), run.seconds
    pd.testing.assert_frame_equal(run.run(), history)
    assert all(np.array_equal(a, b) for a, b in zip(weights, weights_of(run), strict=True))
    assert (run.step, run.seconds) == (12, seconds)


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_run_that_was_interrupted_goes_on_when_it_is_called_again(tmp_path, in_folder):
    class Stop(Exception):
        pass

    def stop(step):
        if step == 7 and not stopped:
            stopped.append(step)
            raise Stop

    whole, stopped = made(gradient_accumulation=2), []
    whole.run()
    run = made(gradient_accumulation=2, on_step_end=stop, checkpoint_every=3, folder=tmp_path if in_folder else None)
    with pytest.raises(Stop):
        run.run()
    assert run.step == 7
    before = run.seconds
    time.sleep(2)
    began = time.perf_counter()
    history = run.run()
    # The time between the two calls is not counted.
    assert run.seconds <= before + time.perf_counter() - began
    assert history.step.tolist() == list(range(1, 13)) and run.tokens == whole.tokens
    assert all(np.array_equal(a, b) for a, b in zip(weights_of(whole), weights_of(run), strict=True))
    if in_folder:
        assert pd.read_csv(tmp_path / "history.csv").step.tolist() == list(range(1, 13))


KILLED = """
import sys
sys.path.insert(0, {here!r})
from test_trainer import made, weights_of
import numpy as np
run = made(max_steps=40, checkpoint_every=3, folder={folder!r})
run.run()
np.savez({result!r}, *weights_of(run))
"""


@pytest.mark.thorough
@pytest.mark.backend
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="four processes, which start quickest on PyTorch")
def test_three_kills_leave_no_trace(tmp_path):
    whole = made(max_steps=40)
    whole.run()
    rng = np.random.default_rng()
    here, folder, result = Path(__file__).parent, tmp_path / "run", tmp_path / "weights.npz"
    code = KILLED.format(here=str(here), folder=str(folder), result=str(result))
    for _ in range(3):
        before = {path.name for path in folder.glob("checkpoint-*")}
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONWARNINGS": "ignore"})
        while process.poll() is None and {path.name for path in folder.glob("checkpoint-*")} == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", code], check=True)
    with np.load(result) as found:
        assert all(np.array_equal(a, found[f"arr_{i}"]) for i, a in enumerate(weights_of(whole)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_writes_a_checkpoint_first(tmp_path, number):
    class Stopped(Exception):
        pass

    def handler(*_):
        raise Stopped

    before = signal.signal(number, handler)
    try:
        with pytest.raises(Stopped):
            run = made(folder=tmp_path, on_step_end=lambda step: signal.raise_signal(number) if step == 4 else None)
            run.run()
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert run.step == 5 and (tmp_path / "checkpoint-000000005").exists()
    whole, resumed = made(), made(folder=tmp_path)
    assert len(whole.run()) == len(resumed.run()) == 12
    assert all(np.array_equal(a, b) for a, b in zip(weights_of(whole), weights_of(resumed), strict=True))


@pytest.fixture
def interrupts():
    """Ctrl-C as in a terminal: jobs in the background are started without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_who_asks_twice_does_not_wait_for_a_checkpoint(tmp_path, interrupts):
    def twice(step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        made(folder=tmp_path, on_step_end=twice).run()
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_run_goes_on_where_the_signal_is_ignored_or_handled(tmp_path, interrupts):
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))

    def interrupt(step):
        if step == 3:
            signal.raise_signal(signal.SIGINT)

    made(folder=tmp_path / "a", on_step_end=interrupt).run()
    assert heard == [1] and (tmp_path / "a" / "checkpoint-000000004").exists()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    made(folder=tmp_path / "b", on_step_end=interrupt).run()
    assert [path.name for path in (tmp_path / "b").glob("checkpoint-*")] == ["checkpoint-000000012"]


def test_a_finished_run_is_evaluated_on_a_text_that_it_had_not(tmp_path, monkeypatch):
    run = made(max_steps=2, folder=tmp_path)
    held_out, run.held_out = run.held_out, None
    assert "val_loss" not in run.run()
    again = made(max_steps=2, folder=tmp_path)
    history = again.run()
    assert np.isnan(history.val_mlm_loss[0]) and history.val_mlm_loss[1] == again.evaluate()["mlm_loss"]
    assert len(held_out) == len(again.held_out)
    # What it found is kept: it is in the file, and a further call need not evaluate again.
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "history.csv"), history)
    opened = made(max_steps=2, folder=tmp_path)
    monkeypatch.setattr(opened, "evaluate", None)
    pd.testing.assert_frame_equal(opened.run(), history)


def test_scores_of_another_held_out_text_are_not_kept_beside_its_own(tmp_path):
    made(max_steps=12, evaluate_every=3, folder=tmp_path).run()
    again = made(max_steps=12, evaluate_every=3, folder=tmp_path, held_out_seed=7)
    history = again.run()
    assert history.val_mlm_loss.notna().sum() == 1
    assert history.val_mlm_loss.iloc[-1] == pytest.approx(again.evaluate()["mlm_loss"], rel=1e-6)


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(tmp_path):
    """It did not write the longest text, which held-out text there was, and of `kbert pretrain` no start."""
    first = made(max_steps=12, evaluate_every=3, folder=tmp_path).run()
    for path in tmp_path.glob("checkpoint-*/facts.json"):
        facts = json.loads(path.read_text())
        facts = {name: facts[name] for name in facts if name not in ("longest", "held_out", "checksum")}
        path.write_text(json.dumps({**facts, "checksum": checkpoint_folders._checksum(facts)}))
    run = made(max_steps=12, evaluate_every=3, folder=tmp_path, start="some weights")
    pd.testing.assert_frame_equal(run.run(), first)
    assert run.longest == 32


def test_pairs_for_a_model_of_one_segment_are_refused():
    run = made()
    model = BertForPreTraining(replace(run.model.config, type_vocab_size=1))
    with pytest.raises(ValueError, match="type_vocab_size 1.*Set nsp=False"):
        Pretraining(model, run.tokenizer, run.source, run.options)


def test_a_history_that_goes_with_no_checkpoint_is_left_as_it_is(tmp_path):
    (tmp_path / "history.csv").write_text("mine")
    with pytest.raises(ValueError, match="holds a history.csv and no checkpoint that it goes with"):
        made(max_steps=2, folder=tmp_path).run()
    assert (tmp_path / "history.csv").read_text() == "mine"


@pytest.mark.parametrize(("dtype", "other"), [("float32", "mixed_bfloat16"), ("mixed_bfloat16", "float32")])
def test_a_run_goes_on_in_the_dtype_that_it_had(tmp_path, monkeypatch, dtype, other):
    monkeypatch.setattr(checkpoints, "dtype_policy", lambda asked: other if asked == "auto" else asked)
    assert dtype_of_run("auto", None) == dtype_of_run("auto", tmp_path) == other
    made(max_steps=1, folder=tmp_path, dtype=dtype).run()
    assert dtype_of_run("auto", tmp_path) == dtype and dtype_of_run(other, tmp_path) == other
    with pytest.raises(ValueError, match="with another dtype"):
        made(max_steps=1, folder=tmp_path, dtype=other).run()


def test_a_tokenizer_that_is_not_that_of_the_text_or_the_model_is_refused(tmp_path):
    run = made()
    words = [" ".join([name, *words])[::-1] for name, words in SUBJECTS.items()]
    other = WordPieceTokenizer.train(words * 9, vocab_size=run.tokenizer.vocab_size)
    shards = write_shards(Corpus(["Ada wrote a program."] * 8), run.tokenizer, tmp_path)
    Pretraining(run.model, shards.tokenizer, shards, run.options)
    with pytest.raises(ValueError, match="another vocabulary than the tokenizer. Give theirs: shards.tokenizer"):
        Pretraining(run.model, other, shards, run.options)
    larger = WordPieceTokenizer.train(words * 9, vocab_size=400, n_unused=99)
    with pytest.raises(ValueError, match="pieces, and the model a vocab_size of"):
        Pretraining(run.model, larger, run.source, run.options)
    made(max_steps=1, folder=tmp_path / "run").run()
    with pytest.raises(ValueError, match="with another vocabulary"):
        Pretraining(run.model, other, run.source, replace(run.options, max_steps=1), folder=tmp_path / "run").run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "shards"}, r"source is a path. .*Shards\('shards'\)"),
        ({"source": Path("shards")}, "source is a path"),
        ({"source": Corpus(["a"])}, "source is of type Corpus, which has no tokens"),
        ({"source": ["a text"]}, "source has elements of type str"),
        ({"held_out": ["a text"]}, r"held_out is of type list. .*Shards\(folder\)\[0\]"),
    ],
)
def test_what_is_no_text_in_tokens_is_refused_with_what_to_give(change, message):
    run = made()
    given = {"source": run.source, "held_out": run.held_out, **change}
    with pytest.raises(TypeError, match=message):
        Pretraining(run.model, run.tokenizer, options=run.options, **given)


def test_another_run_does_not_go_on(tmp_path):
    made(folder=tmp_path, checkpoint_every=5).run()
    with pytest.raises(ValueError, match="another learning_rate"):
        made(folder=tmp_path, learning_rate=1e-3).run()
    with pytest.raises(ValueError, match="another nsp, shapes"):
        made(nsp=False, folder=tmp_path).run()


@pytest.mark.parametrize("file", ["state.npz", "history.npz", "facts.json"])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path, file):
    whole = made(folder=tmp_path, checkpoint_every=5)
    history = whole.run()
    before, newest = checkpoints_in(tmp_path)
    assert (before.name, newest.name) == ("checkpoint-000000010", "checkpoint-000000012")
    (newest / file).write_bytes((newest / file).read_bytes()[:-400])
    again = made(folder=tmp_path)
    with pytest.warns(CheckpointWarning, match=f"{newest.name} is damaged.*goes on from {before.name}"):
        found = again.run()
    seconds = ["seconds"]
    pd.testing.assert_frame_equal(found.drop(columns=seconds), history.drop(columns=seconds))
    for one, other in zip(weights_of(again), weights_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    assert checkpoints_in(tmp_path) == [before, newest] and (tmp_path / f"{newest.name}.damaged").is_dir()

    for checkpoint in checkpoints_in(tmp_path):
        (checkpoint / file).write_bytes(b"")
    with pytest.raises(WeightsMismatchError, match="is damaged.*no checkpoint before it.*Remove .* to begin anew"):
        made(folder=tmp_path).run()


@pytest.mark.thorough
def test_two_runs_do_not_share_a_folder(tmp_path):
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_trainer import made
made(folder={str(tmp_path)!r}, max_steps=1_000_000, on_step_end=lambda step: print(step, flush=True)).run()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout.readline().strip() == "1"
            with pytest.raises(ValueError, match=f"Another run is writing its checkpoints to {tmp_path}.*of its own"):
                made(folder=tmp_path).run()
        finally:
            first.kill()
    made(folder=tmp_path).run()  # a lock ends with its process


def test_a_checkpoint_of_another_version_is_told(tmp_path):
    made(folder=tmp_path).run()
    (checkpoint,) = tmp_path.glob("checkpoint-*")
    facts = json.loads((checkpoint / "facts.json").read_text())
    del facts["updater"]
    (checkpoint / "facts.json").write_text(json.dumps({**facts, "step": 12}))
    with pytest.raises(ValueError, match="another version of kbert. Give another folder"):
        made(folder=tmp_path).run()


@pytest.mark.parametrize("key", ["settings", "tokens", "cursors", "updater"])
def test_a_damaged_fact_of_a_checkpoint_is_told_by_its_key(tmp_path, key):
    made(folder=tmp_path).run()
    facts = checkpoints_in(tmp_path)[-1] / "facts.json"
    values = json.loads(facts.read_text())
    for damaged in ({**values, key: "abc"}, {name: value for name, value in values.items() if name != key}):
        facts.write_text(json.dumps(damaged))
        with pytest.raises(WeightsMismatchError, match=f"facts.json is damaged .*{key}"):
            made(folder=tmp_path).run()


# --- Steps that are not finite


def poisoned(run, steps):
    """The run, whose batches of some steps weigh NaN."""
    batches, n = run._step_batches, run.options.gradient_accumulation

    def poison(updater):
        # Where the run goes on from a checkpoint, from the step after it.
        for i, (note, batch) in enumerate(batches(updater), n * run.step):
            if i // n + 1 in steps:
                batch = batch._replace(weights={k: w * np.nan for k, w in batch.weights.items()})
            yield note, batch

    run._step_batches = poison
    return run


@pytest.mark.backend
@pytest.mark.parametrize("every", [1, 2])
def test_a_non_finite_step_is_skipped(every):
    run = poisoned(made(max_steps=8, gradient_accumulation=every), {3})
    with pytest.warns(UserWarning, match="step 3 .*was skipped"):
        history = run.run()
    assert np.isnan(history.loss[2]) and np.isfinite(history.loss.drop(2)).all()
    assert all(np.isfinite(array).all() for array in weights_of(run))


@pytest.mark.filterwarnings("ignore:The loss of step")
def test_five_non_finite_steps_in_a_row_end_the_run():
    with pytest.raises(DivergedError, match="5 steps in a row"):
        poisoned(made(max_steps=30), {4, 5, 6, 7, 8}).run()
    assert len(poisoned(made(max_steps=12), {2, 3, 4, 5, 7, 8, 9, 10}).run()) == 12


# --- float16


@pytest.mark.thorough
@pytest.mark.slow
def test_float16_learns_and_goes_on_under_the_scale_that_was_found(tmp_path):
    def run(max_steps, folder):
        return poisoned(made(dtype="mixed_float16", max_steps=60, folder=folder, on_step_end=stop(max_steps)), {3, 20})

    def stop(max_steps):
        def after(step):
            if step == max_steps:
                raise InterruptedError

        return after

    whole = run(None, None)
    history = whole.run()
    assert np.isnan(history.loss[[2, 19]]).all() and history.loss[-5:].mean() < history.loss[:2].mean() - 0.5
    with pytest.raises(InterruptedError):
        made_in_parts = run(30, tmp_path)
        made_in_parts.options = replace(made_in_parts.options, checkpoint_every=7)
        made_in_parts.run()
    again = run(None, tmp_path)
    again.run()
    assert again.guard.loss_scale == whole.guard.loss_scale == LossScaler.FIRST / 4
    for one, other in zip(weights_of(again), weights_of(whole), strict=True):
        np.testing.assert_array_equal(one, other)


# --- Bad input


def test_a_budget_is_one_of_two():
    for wrong in (dict(), dict(max_steps=3, max_seconds=3.0)):
        with pytest.raises(ValueError, match="max_steps or max_seconds"):
            PretrainingOptions(**wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_steps", 0), ("batch_size", 0), ("batch_size", None), ("gradient_accumulation", 0), ("mask_rate", 1.5),
        ("learning_rate", -1.0), ("learning_rate", float("nan")), ("weight_decay", -0.1), ("warmup", -3),
        ("warmup", 2.0), ("phases", ()), ("phases", ((3, 1.0),)), ("optimizer", "sgd"), ("checkpoint_every", 0.5),
        ("whole_word", "no"), ("fixed", None),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with pytest.raises(ValueError, match=f"PretrainingOptions: {name} must be .*, got "):
        PretrainingOptions(**{"max_steps": 1, name: value})


def test_phases_longer_than_the_model_are_refused():
    with pytest.raises(ValueError, match="64 tokens, and the model has 32"):
        made(phases=((64, 1.0),))


def _changed_npz(path, change):
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("state.npz", lambda a: a.update(arr_1=a["arr_1"][:1]), "the shapes in facts.json"),
        ("state.npz", lambda a: a.pop("arr_3"), "there is no array arr_3"),
        ("state.npz", lambda a: a.update(arr_1=a["arr_1"] * np.nan), "no finite number"),
        ("history.npz", lambda a: a.update(loss=a["loss"][:1]), "does not hold 2 lines"),
        ("history.npz", lambda a: a.update(more=a.pop("loss")), "lacks loss"),
    ],
)
def test_a_checkpoint_with_other_arrays_is_refused(tmp_path, file, change, message):
    made(max_steps=2, folder=tmp_path).run()
    _changed_npz(tmp_path / "checkpoint-000000002" / file, change)
    with pytest.raises(WeightsMismatchError, match=f"checkpoint-000000002 is damaged.*{message}"):
        made(max_steps=2, folder=tmp_path).run()
