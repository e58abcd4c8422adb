"""BertPretrainer: it learns from scratch, goes on from weights, fills in masks, and its folder is a start."""

import pickle
import re
import warnings
from dataclasses import replace

import keras
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn.base import clone

from kbert import BertClassifier, BertConfig, BertForPreTraining, BertPretrainer, WordPieceTokenizer
from kbert.errors import (
    DivergedError,
    MissingTextWarning,
    NewWeightsWarning,
    ParameterWarning,
    WeightsMismatchError,
)
from kbert.pretraining import Corpus, start_at_frequencies
from kbert.pretraining.shards import tokenised

SUBJECTS = {"ada": ("wrote", "a", "program"), "grace": ("found", "the", "bug"), "alan": ("broke", "that", "code")}
SIZE = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    initializer_range=0.1,
)
pytestmark = pytest.mark.slow


def made_texts(n, seed=0):
    """Documents of six lines about one person each."""
    rng = np.random.default_rng(seed)
    return ["\n".join([" ".join((name, *SUBJECTS[name]))] * 6) for name in rng.choice(list(SUBJECTS), n)]


def make(**changes):
    values = dict(weights=None, max_length=32, max_steps=300, batch_size=4, learning_rate=3e-3, nsp=True)
    return BertPretrainer(SIZE, **{**values, "dtype": "float32", "random_state": 0, **changes})


def corpus_of(texts):
    """Without sentence splitting, which needs another package."""
    return Corpus(texts, split="lines")


@pytest.fixture(scope="module")
def fitted():
    """It has learned the texts. Tests must not change it."""
    return make().fit(corpus_of(made_texts(80)), eval_set=corpus_of(made_texts(20, 1)))


@pytest.mark.compiles
@pytest.mark.backend
def test_a_language_is_learned_from_scratch(fitted):
    assert fitted.n_iter_ == 300 and len(fitted.history_["loss"]) == 300 and not hasattr(fitted, "epochs_")
    assert fitted.history_["mlm_loss"][0] > 2 and -1 < fitted.score(corpus_of(made_texts(20, 1))) < 0
    assert fitted.score(corpus_of(made_texts(20, 1))) == pytest.approx(-fitted.history_["val_mlm_loss"][-1], rel=1e-5)
    assert {"ada", "wrote", "program"} <= set(fitted.tokenizer_.vocab)


def test_masks_are_filled_in(fitted):
    found = fitted.fill_mask("grace found the [MASK]", top_k=3)
    assert list(found) == ["token", "score", "position"] and len(found) == 3
    assert found.token[0] == "bug" and found.position.tolist() == [4] * 3 and found.score.is_monotonic_decreasing


def test_any_container_of_texts_serves(fitted):
    texts = made_texts(10, 2)
    one, *others = (
        make(max_steps=2).fit(corpus_of(X)).history_["loss"]
        for X in (texts, pd.Series(texts, index=range(5, 15)), np.array(texts, dtype=object))
    )
    assert others == [one, one]


def test_its_folder_is_a_start_for_other_estimators(fitted, tmp_path):
    fitted.save(tmp_path / "mine")
    reviews = ["ada wrote a program", "grace found the bug"] * 8
    classifier = BertClassifier(weights=tmp_path / "mine", max_length=16, epochs=1, random_state=0)
    assert classifier.fit(reviews, ["a", "b"] * 8).tokenizer_ == fitted.tokenizer_
    loaded = BertPretrainer.load(tmp_path / "mine", verify=True)
    pd.testing.assert_frame_equal(loaded.fill_mask("ada [MASK] a program"), fitted.fill_mask("ada [MASK] a program"))
    assert pickle.loads(pickle.dumps(fitted)).score(corpus_of(made_texts(5))) == pytest.approx(
        fitted.score(corpus_of(made_texts(5))), abs=1e-5
    )
    # Further on the same or other text, from the folder or in place.
    before = fitted.history_["mlm_loss"][0]
    further = make(weights=tmp_path / "mine", max_steps=2).fit(corpus_of(made_texts(20)))
    warm = loaded.set_params(warm_start=True, max_steps=2).fit(corpus_of(made_texts(20)))
    assert max(further.history_["mlm_loss"][0], warm.history_["mlm_loss"][0]) < before - 1


def test_without_a_fit_weights_fill_and_score(fitted, tmp_path):
    fitted.save(tmp_path / "mine")
    unfitted = make(weights=tmp_path / "mine")
    pd.testing.assert_frame_equal(unfitted.fill_mask("ada [MASK] a program"), fitted.fill_mask("ada [MASK] a program"))
    texts = corpus_of(made_texts(5))
    assert unfitted.score(texts) == pytest.approx(fitted.score(texts), abs=1e-5)
    pickle.loads(pickle.dumps(clone(unfitted)))
    assert not hasattr(unfitted.set_params(max_steps=1).fit(texts), "_unfitted")  # a second model
    with pytest.raises(Exception, match="not fitted yet"):
        make().fill_mask("ada [MASK] a program")


def test_a_score_that_is_not_finite_is_an_error(fitted):
    broken = pickle.loads(pickle.dumps(fitted))
    broken.model_.set_weights([np.full_like(array, np.nan) for array in broken.model_.get_weights()])
    with pytest.raises(DivergedError, match="masked-LM loss is not a finite number"):
        broken.score(corpus_of(made_texts(5)))


@pytest.mark.parametrize("steps", [1, 4])
def test_training_that_destroys_the_weights_is_an_error(fitted, tmp_path, steps):
    fitted.save(tmp_path)
    changes = dict(warm_start=True, max_steps=steps, learning_rate=1e30, warmup=0)
    earlier = BertPretrainer.load(tmp_path).set_params(**changes)
    model = earlier.model_
    with warnings.catch_warnings(), pytest.raises(DivergedError, match=f"After update {steps} "):
        warnings.simplefilter("ignore", UserWarning)
        earlier.fit(corpus_of(made_texts(5)))
    assert earlier.model_ is model


def test_weights_without_the_heads_start_them_at_random(toy_folder):
    with pytest.warns(NewWeightsWarning, match="masked-LM head"):
        make(weights=toy_folder, max_steps=1).fit(corpus_of(["the table\nwas red", "a room\nand it"]))


def test_no_random_words_are_filled_in(toy_folder, fitted, tmp_path):
    message = 'no masked-LM head.*size="base".*call fit on texts'
    unfitted = make(weights=toy_folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)  # which says that it will be learned
        for _ in range(2):  # the model is kept for the second call
            with pytest.raises(WeightsMismatchError, match=message):
                unfitted.fill_mask("the [MASK] was red")
            with pytest.raises(WeightsMismatchError, match="BertPretrainer.score: these weights have " + message):
                unfitted.score(["the table was red"])
    with pytest.warns(NewWeightsWarning):
        trained = unfitted.set_params(max_steps=1).fit(corpus_of(["the table\nwas red", "a room\nand it"]))
    assert len(trained.fill_mask("the [MASK] was red")) == 5


def test_the_defaults_from_scratch(tmp_path, trained_shapes):
    size = replace(SIZE, max_position_embeddings=100)
    texts = made_texts(40)
    fitted = BertPretrainer(size, weights=None, split="lines", max_steps=20, random_state=0).fit(texts, eval_set=texts)
    assert (fitted.max_length_, fitted.batch_size_, fitted.learning_rate_) == (100, 64, 3e-3)
    assert (fitted.mask_rate_, fitted.nsp_, fitted.config_.hidden_dropout_prob) == (0.4, False, 0.0)
    # Rows of 64 tokens and, in between, half as many of 100.
    assert set(trained_shapes[:7]) == {(64, 64)} and set(trained_shapes[7:]) == {(64, 64), (32, 100)}
    # Text to evaluate on is masked as in `score`, and as in the paper, so that models can be compared.
    assert fitted.score(texts) == pytest.approx(-fitted.history_["val_mlm_loss"][-1], rel=1e-4)
    assert fitted.set_params(mask_rate=0.15).score(texts) == pytest.approx(-fitted.history_["val_mlm_loss"][-1], 1e-4)
    fitted.set_params(mask_rate="auto").save(tmp_path / "mine")
    loaded = BertPretrainer.load(tmp_path / "mine", verify=True)
    assert loaded.max_length == "auto" and loaded.max_length_ == 100
    again = BertPretrainer(weights=tmp_path / "mine", split="lines", max_steps=1, random_state=0).fit(texts)
    assert (again.max_length_, again.batch_size_, again.mask_rate_, again.learning_rate_) == (100, 32, 0.15, 2e-5)


def test_positions_that_were_trained_are_known(tmp_path, toy_folder):
    texts = made_texts(40)
    make(max_length=16, max_steps=8).fit(corpus_of(texts)).save(tmp_path / "short")
    assert BertConfig.from_folder(tmp_path / "short").num_trained_positions == 16
    # Windows of a fine-tuning fit end there, and other rows do not, of which the user is told.
    rows, labels = ["ada wrote a program " * 6, "grace found the bug " * 6] * 8, ["a", "b"] * 8
    classifier = BertClassifier(weights=tmp_path / "short", epochs=1, random_state=0).fit(rows, labels)
    assert classifier.max_length_ == 16
    classifier.save(tmp_path / "classifier")
    assert BertClassifier.load(tmp_path / "classifier").config_.num_trained_positions == 16
    with pytest.warns(ParameterWarning, match="16 of 16 sequences have more than 16 tokens.*Set max_length=16"):
        BertClassifier(weights=tmp_path / "short", long_text="truncate", epochs=1).fit(rows, labels)
    # Going on with longer rows trains more of them, and with shorter ones no fewer.
    for further in (dict(max_length=32), dict(max_length=8), dict(max_length="auto")):
        again = make(weights=tmp_path / "short", max_steps=8, **further).fit(corpus_of(texts))
        assert again.config_.num_trained_positions == again.model_.config.num_trained_positions
        assert again.config_.num_trained_positions == (16 if further["max_length"] == 8 else 32)
    # Texts that are shorter than the rows stand beside each other in them, each from position 0 on.
    parts = [" ".join([name, *SUBJECTS[name]]) for name in SUBJECTS] * 8
    fitted = make(max_steps=8, nsp=False, weight_decay=0).fit(corpus_of(parts))
    positions = keras.ops.convert_to_numpy(fitted.model_.encoder.embeddings.position)
    start = BertForPreTraining(fitted.config_, nsp=False, dtype="float32", seed=0).encoder.embeddings.position
    changed = np.flatnonzero((positions != keras.ops.convert_to_numpy(start)).any(axis=1))
    assert 3 <= fitted.config_.num_trained_positions == changed.max() + 1 == len(changed) < fitted.max_length_ == 32
    # Of weights from elsewhere it is not known.
    assert make(weights=toy_folder, max_steps=1, max_length=8).fit(corpus_of(texts)).config_.trained_positions > 8


def test_weights_that_no_estimator_saved_are_opened_with_what_they_have(fitted, tmp_path):
    """As `kbert pretrain` leaves them, and transformers: here without the estimator's own file."""
    short = make(max_steps=2, max_length=16).fit(corpus_of(made_texts(20)))
    for name, pretrainer in (("pairs", fitted), ("short", short)):
        pretrainer.save(tmp_path / name)
        (tmp_path / name / "kbert.json").unlink()
    opened = BertPretrainer.load(tmp_path / "pairs")
    assert opened.nsp_ and opened.model_.choices["nsp"]
    opened.save(tmp_path / "again")
    arrays = [load_file(tmp_path / name / "model.safetensors") for name in ("pairs", "again")]
    assert arrays[0].keys() == arrays[1].keys()
    # Rows are no longer than the positions that are trained.
    opened = BertPretrainer.load(tmp_path / "short")
    assert opened.max_length_ == opened.config_.num_trained_positions <= 16
    texts, unfitted = corpus_of(made_texts(9, 1)), BertPretrainer(weights=tmp_path / "short", nsp=True)
    assert opened.score(texts) == pytest.approx(unfitted.score(texts), rel=1e-5)


def test_where_no_whole_word_fits_there_is_no_loss(fitted, folder):
    texts = corpus_of(["aaaa"] * 8)
    pretrainer = make(weights=folder, nsp=False, whole_word=True, max_steps=3)
    with pytest.warns(ParameterWarning, match="Update 1 had no word to predict.*whole_word=False") as caught:
        trained = pretrainer.fit(texts)
    assert len([warning for warning in caught if "had no word" in str(warning.message)]) == 1
    assert np.isnan(trained.history_["mlm_loss"]).all() and np.isnan(trained.history_["loss"]).all()
    with pytest.raises(ValueError, match="X: there is no word to predict. With whole_word=True"):
        trained.score(texts)
    with pytest.raises(ValueError, match="held-out text: there is no word to predict"):
        pretrainer.fit(corpus_of(made_texts(9)), eval_set=texts)
    assert np.isfinite(trained.set_params(whole_word=False).score(texts))


def test_from_scratch_it_starts_at_the_frequencies(fitted, tmp_path):
    texts = made_texts(80)
    started = make(max_steps=1, learning_rate=1e-12, nsp=False).fit(corpus_of(texts))
    bias = keras.ops.convert_to_numpy(started.model_.mlm_head.bias.value)
    ids = started.tokenizer_.tokenize_column(texts).values
    share = (np.bincount(ids, minlength=len(bias)) + 1) / (len(ids) + len(bias))
    words = started.tokenizer_.vocab["ada"], started.tokenizer_.vocab["wrote"]
    np.testing.assert_allclose(bias[list(words)], np.log(share[list(words)]), atol=0.05)
    assert np.exp(bias).sum() == pytest.approx(1, rel=1e-4)
    # From weights the bias is theirs.
    fitted.save(tmp_path / "model")
    on = BertPretrainer(weights=tmp_path / "model", max_steps=1, learning_rate=1e-12, max_length=32, nsp=True)
    on.fit(corpus_of(texts))
    before, after = (model.mlm_head.bias.value for model in (fitted.model_, on.model_))
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, (before, after)), atol=1e-6)
    # A text with more tokens than the model has.
    smaller = BertForPreTraining(replace(SIZE, vocab_size=20))
    with pytest.raises(ValueError, match="the model a vocab_size of 20. Make the model for the tokenizer"):
        start_at_frequencies(smaller, tokenised(corpus_of(texts), started.tokenizer_))


def test_lengths_with_their_shares():
    texts = made_texts(40)
    fitted = make(max_length=[(12, 0.75), (32, 0.25)], max_steps=8, nsp=False).fit(corpus_of(texts))
    read = np.diff([0, *fitted.history_["tokens"]])
    assert max(read[:6]) <= 4 * 12 < min(read[6:]) and fitted.max_length_ == 32
    for wrong in ([(12, 0)], [(3, 1.0)], [12, 32], []):
        with pytest.raises(TypeError, match="max_length must be .*pairs of such a number and a share of the budget"):
            make(max_length=wrong).fit(texts)
    with pytest.raises(ValueError, match="max_length must be at most 32, the positions of this model, got 33"):
        make(max_length=[(12, 0.9), (33, 0.1)]).fit(texts)


@pytest.mark.thorough
def test_epochs_count_all_lengths():
    texts = corpus_of(made_texts(80))
    rows = {length: make(max_length=length, max_steps=None, epochs=2, nsp=False).fit(texts) for length in (10, 30)}
    both = make(max_length=((10, 0.5), (30, 0.5)), max_steps=None, epochs=2, nsp=False).fit(texts)
    tokens = [fitted.history_["tokens"][-1] for fitted in (*rows.values(), both)]
    assert rows[30].n_iter_ < both.n_iter_ < rows[10].n_iter_
    assert min(tokens[:2]) * 0.9 < tokens[2] < max(tokens[:2]) * 1.1


def test_the_papers_recipe_is_one_call():
    pretrainer = BertPretrainer.paper("base", max_steps=5)
    assert pretrainer.get_params()["max_length"] == ((128, 0.9), (512, 0.1)) and pretrainer.max_steps == 5
    assert (pretrainer.nsp, pretrainer.mask_rate, pretrainer.learning_rate) == (True, 0.15, 1e-4)


def test_lines_can_be_segments():
    texts = ["One. Two.\nThree. Four.", "Five. Six.\nSeven."] * 2
    by_lines = make(max_steps=3, split="lines").fit(iter(texts), eval_set=texts)
    expected = make(max_steps=3).fit(corpus_of(texts), eval_set=corpus_of(texts))
    assert by_lines.history_["loss"] == expected.history_["loss"]
    assert by_lines.score(texts) == expected.score(corpus_of(texts))
    with pytest.raises(ValueError, match='split must be "sentences" or "lines"'):
        make(split="words").fit(texts)


def test_epochs_are_about_so_many_passes():
    texts = made_texts(40)
    run = make(max_steps=None, epochs=4, nsp=False).fit(corpus_of(texts))
    pieces = sum(len(run.tokenizer_.encode(text).ids) for text in texts)
    assert run.history_["tokens"][-1] == pytest.approx(4 * pieces, rel=0.25)
    assert set(run.history_["nsp_loss"]) == {0.0}


@pytest.mark.parametrize(("accumulation", "n_texts"), [(1, 300), (4, 300), (1, 5)])
def test_epochs_of_short_texts_read_each_of_them_so_often(accumulation, n_texts):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list(SUBJECTS), 2)) for _ in range(n_texts)]
    run = make(max_steps=None, epochs=3, nsp=False, gradient_accumulation=accumulation).fit(corpus_of(texts))
    # Eight texts of four tokens in a row of 32, four rows in a batch.
    n_batches = 3 * -(-n_texts // 32)
    assert run.n_iter_ == -(-n_batches // accumulation)
    # With accumulation, the last update reads on.
    assert 3 * 4 * n_texts <= run.history_["tokens"][-1] < 3 * 4 * n_texts + accumulation * 4 * 32


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    """The folder of the fitted one. Tests must not change it."""
    path = tmp_path_factory.mktemp("pretrained") / "mine"
    fitted.save(path)
    return path


def test_an_unfitted_one_reads_a_folder_that_was_replaced(folder, fitted, tmp_path):
    fitted.save(tmp_path / "mine")
    unfitted = make(weights=tmp_path / "mine")
    before = unfitted.fill_mask("ada [MASK] a program")
    pd.testing.assert_frame_equal(unfitted.fill_mask("ada [MASK] a program"), before)
    make(max_steps=1, random_state=1).fit(corpus_of(made_texts(80))).save(tmp_path / "mine")
    (tmp_path / "mine" / "notes").symlink_to("nowhere")
    now = unfitted.fill_mask("ada [MASK] a program")
    pd.testing.assert_frame_equal(now, make(weights=tmp_path / "mine").fill_mask("ada [MASK] a program"))
    assert abs(now.score[0] - before.score[0]) > 0.01


def test_it_is_saved_with_the_heads_that_it_has(fitted, tmp_path):
    copied = pickle.loads(pickle.dumps(fitted)).set_params(nsp=False)
    copied.save(tmp_path / "mine")
    loaded = BertPretrainer.load(tmp_path / "mine", verify=True)
    assert loaded.nsp and loaded.model_.choices == {"nsp": True}
    with pytest.raises(ValueError, match="mask_rate must be"):
        copied.set_params(mask_rate=2.0).score(corpus_of(made_texts(5)))
    with pytest.raises(ValueError, match="max_length must be at most 32"):
        copied.set_params(mask_rate=0.15, max_length=33).score(corpus_of(made_texts(5)))


@pytest.mark.parametrize("budget", [dict(max_steps=2), dict(max_steps=None, max_seconds=1.0), dict(max_steps=None)])
@pytest.mark.parametrize("nsp", [False, True])
def test_texts_without_a_token_are_refused_before_training(folder, tmp_path, budget, nsp):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\u200b\n \n\n\n")
    for X in (["", " "], ["\u200b", "\u200b\u200d"], [None], *tmp_path.iterdir()):
        with pytest.raises(ValueError, match="X: there is no token in the text"):
            make(weights=folder, nsp=nsp, **budget).fit(corpus_of(X))


def test_texts_without_a_token_are_refused_to_evaluate_on(folder):
    with pytest.raises(ValueError, match="eval_set: there is no token in the text"):
        make(weights=folder, nsp=False, max_steps=1).fit(corpus_of(["ada wrote"]), eval_set=corpus_of([""]))
    with pytest.raises(ValueError, match="eval_set: Next-sentence prediction needs text from another document"):
        make(weights=folder, max_steps=10**9).fit(corpus_of(made_texts(5)), eval_set=corpus_of(["ada wrote"]))
    for nsp in (False, True):
        with pytest.raises(ValueError, match="X: there is no token in the text"):
            make(weights=folder, nsp=nsp).score(corpus_of([""]))


@pytest.mark.parametrize("make_X", [list, tuple, np.array, pd.Series, lambda texts: pd.DataFrame({"text": texts})])
def test_missing_texts_are_left_out_and_counted(fitted, make_X):
    texts = made_texts(8)
    with pytest.warns(MissingTextWarning, match=r"1 of the 9 texts of X is missing, and is left out \((row|index) 3\)"):
        loss = fitted.score(make_X([*texts[:3], None, *texts[3:]]))
    assert loss == fitted.score(texts)


def test_a_table_without_a_column_of_texts_is_told_what_to_choose():
    message = (
        "the columns 'body', 'n', and none of them alone is called 'text'. Choose the one with the texts: X[...], or"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        make().fit(pd.DataFrame({"body": ["a"], "n": [1]}))


def test_a_checkpoint_is_of_the_weights_that_were_started_from(folder, fitted, tmp_path):
    texts, other = corpus_of(made_texts(40)), tmp_path / "other"
    fitted.save(other)
    content = load_file(other / "model.safetensors")
    name = next(name for name in content if name.endswith("word_embeddings.weight"))
    save_file({**content, name: content[name] * 1.01}, other / "model.safetensors", metadata={"format": "pt"})
    options = {"checkpoint": tmp_path / "run", "max_steps": 3, "random_state": None}
    first = make(weights=folder, **options).fit(texts)
    assert make(weights=folder, **options).fit(texts).history_["loss"] == first.history_["loss"]
    with pytest.raises(ValueError, match="another start"):
        make(weights=other, **options).fit(texts)
    warm = make(weights=folder, warm_start=True, **{**options, "checkpoint": tmp_path / "warm"}).fit(texts)
    with pytest.raises(ValueError, match="another start"):
        warm.fit(texts)


def test_going_on_with_other_heads_is_refused(fitted):
    going_on = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True, nsp=False, max_steps=1)
    with pytest.raises(ValueError, match=r"nsp is False, and the earlier fit, .* had True\. Set nsp=True"):
        going_on.fit(corpus_of(made_texts(5)))
    assert going_on.set_params(nsp=True).fit(corpus_of(made_texts(5))).n_iter_ == 1


def test_without_standard_error_nothing_is_shown(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert make(max_steps=2, verbose=1).fit(corpus_of(made_texts(5))).n_iter_ == 2


def test_a_tokenizer_of_another_model_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "mine")
    words = [f"word{i}" for i in range(500)]
    WordPieceTokenizer.train([" ".join(words)] * 9, vocab_size=400).save(tmp_path / "mine")
    pretrainer = make(weights=tmp_path / "mine", max_steps=1)
    for call in (pretrainer.fit, pretrainer.score):
        with pytest.raises(WeightsMismatchError, match="The tokenizer belongs to another model"):
            call(corpus_of(made_texts(5)))


def test_two_budgets_are_refused_before_anything_is_read():
    def texts():
        raise AssertionError("the texts were read")
        yield

    with pytest.raises(ValueError, match="max_steps or max_seconds, not both"):
        BertPretrainer(max_steps=5, max_seconds=2.0).fit(texts())


@pytest.mark.parametrize(
    ("changes", "X", "message"),
    [
        (dict(), "one text", "single str"),
        (dict(), ["only one document\nof two lines"], "only 1 here"),
        (dict(mask_rate=0.0), ["a\nb"] * 3, "mask_rate must be"),
        (dict(max_length=64), ["a\nb"] * 3, "max_length must be at most 32"),
        (dict(weights="auto"), ["a\nb"] * 3, "no released weights"),
    ],
)
def test_what_cannot_be_done_is_told(changes, X, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**changes).fit(X if isinstance(X, str) else corpus_of(X))


class Dicts(list):
    """Rows that are dicts, as those of the library ``datasets``, with a shape."""

    @property
    def shape(self):
        return (len(self), 1)


@pytest.mark.parametrize(
    "container",
    [
        lambda texts: np.array(texts, object)[:, None],
        np.array,
        lambda texts: np.array([[text] for text in texts] + [None], object)[:-1],
        lambda texts: Dicts({"text": text} for text in texts),
    ],
)
def test_arrays_hold_a_document_a_row(container):
    texts = ["one line", "another line", "a third line"]
    from_array = make(max_steps=1).fit(container(texts), eval_set=texts)
    from_list = make(max_steps=1).fit(texts, eval_set=texts)
    assert from_array.history_["loss"] == from_list.history_["loss"]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "Found array with 0 sample(s)"),
        (pd.Series([], dtype=object), "Found array with 0 sample(s)"),
        (np.array([["a", "b"]], object), "X has 2 columns, where 1 are expected"),
        (np.ones(3), "X: row 0 (dtype float64) is of type float, not a text"),
        (np.array("a text"), "Expected array-like"),
        (np.ones((3, 1)), "row 0 of column 0 (dtype float64) is of type float, not a text"),
        (sparse.csr_matrix(np.eye(3)), "Sparse data was passed for X"),
    ],
)
def test_what_holds_no_texts_is_refused_before_any_weights_are_looked_for(X, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        make(weights="not/here").fit(X)


def test_text_may_be_in_an_array_of_arrow():
    pa = pytest.importorskip("pyarrow")
    texts = ["the table was red\nthe chair was blue", "a room\na table"] * 4
    losses = [make(max_steps=1, random_state=0).fit(X).history_["mlm_loss"] for X in (texts, pa.array(texts))]
    assert losses[0] == losses[1]


def test_the_only_column_of_a_frame_is_the_text(folder):
    polars = pytest.importorskip("polars", reason="pip install polars")
    texts = ["the a table", "chair room with"] * 8
    for frame in (pd.DataFrame({"body": texts}), polars.DataFrame({"body": texts})):
        assert BertPretrainer(weights=folder, max_steps=1, batch_size=4).fit(frame).n_iter_ == 1
