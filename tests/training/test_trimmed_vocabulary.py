"""Training on the embeddings of the tokens that occur gives the weights that training on the whole table gives."""

import keras
import numpy as np
import pytest

from kbert.text import Ragged, TokenSequences
from kbert.training import loop
from kbert.training.backends import backend_step
from kbert.training.labelled_batches import TrainingData
from kbert.training.loop import TrainingOptions, train
from kbert.training.losses import softmax_cross_entropy
from kbert.training.trimmed_vocabulary import trimmed_model

pytestmark = pytest.mark.backend

N, LENGTH = 32, 8
ROWS = np.arange(N * LENGTH)


def texts_of(tokens):
    """Texts of eight tokens each."""
    splits = np.arange(0, N * LENGTH + 1, LENGTH)
    return TokenSequences(Ragged(tokens.astype("uint16"), splits), np.full(N, 5), np.zeros(N, bool), np.arange(N))


@pytest.fixture(scope="module")
def few():
    """Texts of the tokens 10 to 34, of a vocabulary of 100."""
    return texts_of(10 + ROWS % 25)


@pytest.fixture
def run(few, model_of, arrays_of):
    """Train a model on the texts; its weights, history, and how many rows the table had in training."""

    def run(weights=None, **options):
        model = model_of()
        sizes = []

        class Seen(backend_step().Trainer):
            def __init__(self, model, loss, optimizer):
                super().__init__(model, loss, optimizer)
                sizes.append(model.config.vocab_size)

        batches = loop.TrainingBatches(few, 8, seed=3)
        weights = np.ones(N, "float32") if weights is None else weights
        options = TrainingOptions(**{"epochs": 3, "learning_rate": 1e-2, "weight_decay": 0.5, **options})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend_step(), "Trainer", Seen)
            history = train(
                model, softmax_cross_entropy, batches, TrainingData(few, np.arange(N) % 2, weights), options
            )
        return arrays_of(model), history, sizes

    return run


@pytest.mark.compiles
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation": 3}, {"warmup": 0.5, "bias_correction": False}])
def test_the_weights_are_those_of_training_the_whole_table(run, monkeypatch, largest_difference, options):
    some, history, sizes = run(**options)
    monkeypatch.setattr(loop, "trimmed_model", lambda *_: None)
    whole, whole_history, whole_sizes = run(**options)
    assert sizes == [28] and whole_sizes == [100]
    assert history["loss"] == pytest.approx(whole_history["loss"], abs=1e-5)
    assert largest_difference(some, whole) < 2e-5
    # The table comes first.
    np.testing.assert_allclose(some[0][50:], whole[0][50:], rtol=2e-6)


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:The loss of step")
def test_a_step_that_is_skipped_decays_nothing(run, monkeypatch, largest_difference):
    weights = np.ones(N, "float32")
    weights[5] = np.nan
    some, *_ = run(weights, epochs=1)
    monkeypatch.setattr(loop, "trimmed_model", lambda *_: None)
    whole, *_ = run(weights, epochs=1)
    np.testing.assert_allclose(some[0][50:], whole[0][50:], rtol=1e-6)
    assert largest_difference(some, whole) < 2e-5


def test_weights_are_whole_at_the_end_of_every_epoch(few, model_of):
    model = model_of()
    start, tables = np.array(model.encoder.embeddings.word), []

    def look(epoch, logs):
        tables.append(np.array(model.encoder.embeddings.word))

    looking = keras.callbacks.LambdaCallback(on_epoch_end=look)
    options = TrainingOptions(epochs=2, learning_rate=1e-2, weight_decay=0.5, callbacks=[looking])
    batches = loop.TrainingBatches(few, 8, seed=3)
    data = TrainingData(few, np.arange(N) % 2, np.ones(N, "float32"))
    train(model, softmax_cross_entropy, batches, data, options)
    shares = [float(table[60, 0] / start[60, 0]) for table in tables]
    assert 1 > shares[0] > shares[1] > 0.9
    assert all(np.ptp(table[60:] / start[60:]) < 1e-5 for table in tables)


def test_similar_texts_have_tables_of_one_size(model_of):
    model = model_of()
    # The padding, and 24 to 27 tokens: four sevenths of a hundred.
    sizes = {trimmed_model(model, texts_of(10 + ROWS % n)).model.config.vocab_size for n in range(24, 28)}
    assert sizes == {28}


def test_a_table_that_is_used_or_frozen_is_left_as_it_is(few, model_of):
    model = model_of()
    assert trimmed_model(model, texts_of(10 + ROWS % 85)) is None
    model.encoder.embeddings.trainable = False
    assert trimmed_model(model, few) is None


def test_tokens_are_looked_for_in_all_texts(few, model_of, monkeypatch):
    monkeypatch.setattr("kbert.text.sequences._TEXTS_AT_ONCE", 3)
    copy = trimmed_model(model_of(), few)
    table = np.array(copy.model.encoder.embeddings.word)
    whole = np.array(model_of().encoder.embeddings.word)
    ids = np.array([0, *range(10, 35)])
    np.testing.assert_array_equal(table[copy.rows(ids)], whole[ids])


def test_what_is_frozen_stays_frozen_in_the_copy(few, model_of):
    model = model_of()
    model.encoder.transformer_layers[0].trainable = False
    copy = trimmed_model(model, few)
    names = [variable.path for variable in copy.model.trainable_variables]
    assert names == [variable.path for variable in model.trainable_variables]
    assert not any("layer_0" in name for name in names)
