"""A whole fine-tuning run equals a plain PyTorch loop over the transformers model, step for step."""

import numpy as np
import pytest

from kbert.config import BertConfig
from kbert.data.batches import TrainingBatches
from kbert.model import BertForSequenceClassification
from kbert.text import WordPieceTokenizer, build_sequences
from kbert.training.labelled_batches import TrainingData
from kbert.training.loop import TrainingOptions, train
from kbert.training.losses import softmax_cross_entropy
from kbert.training.predict import predict_logits
from kbert.training.schedule import LinearSchedule
from kbert.weights import load_sequence_classifier, save_sequence_classifier
from kbert.weights.models import load_encoder_weights

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::kbert.errors.NewWeightsWarning")]

EPOCHS, BATCH_SIZE, RATE = 3, 8, 1e-3
TEXTS = [f"the {a} {b} was {c}" for a in ("red", "old", "very big") for b in ("house", "car") for c in
         ("good", "a disaster from the first minute to the last", "fine", "bad and dull")]  # fmt: skip
LABELS = np.array([int("good" in text or "fine" in text) for text in TEXTS], "int32")


def test_a_run_without_dropout_ends_at_the_same_logits(bert_tiny_folder, tmp_path):
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")

    tokenizer = WordPieceTokenizer.from_pretrained(bert_tiny_folder)
    sequences = build_sequences(tokenizer, TEXTS, max_length=32)
    model = BertForSequenceClassification(BertConfig.from_folder(bert_tiny_folder).with_dropout(0.0), 2)
    load_encoder_weights(model.encoder, bert_tiny_folder)
    save_sequence_classifier(model, tmp_path, {0: "no", 1: "yes"}, "single_label_classification")
    batches = TrainingBatches(sequences, BATCH_SIZE, seed=5)

    peer = transformers.BertForSequenceClassification.from_pretrained(tmp_path).train()
    plain = [p for name, p in peer.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in peer.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], eps=1e-6)
    schedule = LinearSchedule(RATE, EPOCHS * batches.steps_per_epoch, 0.1)
    inputs = sequences.padded()
    encoded = {
        "input_ids": torch.tensor(inputs["token_ids"]).long(),
        "attention_mask": torch.tensor(inputs["text_ids"]).long(),
    }
    steps = [texts for epoch in range(EPOCHS) for texts in batches.deal(epoch)]
    for step, texts in enumerate(steps):
        for group in optimizer.param_groups:
            group.update(lr=schedule(step), weight_decay=0.01 * (group["weight_decay"] > 0))
        part = {name: array[texts] for name, array in encoded.items()}
        loss = peer(**part, labels=torch.tensor(LABELS[texts]).long()).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()

    options = TrainingOptions(epochs=EPOCHS, learning_rate=RATE, warmup=0.1, weight_decay=0.01)
    start = load_sequence_classifier(tmp_path)
    before = predict_logits(start, [sequences], len(TEXTS))
    data = TrainingData(sequences, LABELS, np.ones(len(TEXTS), "float32"))
    train(model, softmax_cross_entropy, batches, data, options)
    after = predict_logits(model, [sequences], len(TEXTS))
    with torch.no_grad():
        wanted = peer.eval()(**encoded).logits.numpy()
    assert np.abs(after - before).max() > 0.5
    np.testing.assert_allclose(after, wanted, atol=2e-3)
