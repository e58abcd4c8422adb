"""BertEncoder inside a Keras model of one's own, trained by plain compile and fit, saved and reloaded as .keras."""

import tempfile
from pathlib import Path

import keras
import numpy as np
import pandas as pd

from kbert import BertEncoder, WordPieceTokenizer

messages = pd.read_csv(Path(__file__).parent / "data" / "support_messages.csv").sample(160, random_state=0)
labels = (messages.label == "delivery").to_numpy("float32")

tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
encoder = BertEncoder.from_pretrained("minilm-l6")
tokens = tokenizer(messages.message, max_length=48)

# A head of one's own: the mean of the word vectors beside the length of the message, as one further feature.
n_words = np.log1p(messages.message.str.split().str.len().to_numpy("float32"))[:, None]
inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in tokens}
length = keras.Input((1,), name="n_words")
vectors = encoder(inputs)["sequence_output"]
mean = keras.layers.GlobalAveragePooling1D()(vectors, mask=inputs["text_ids"] > 0)
output = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Concatenate()([mean, length]))

model = keras.Model({**inputs, "n_words": length}, output)
model.compile(keras.optimizers.AdamW(5e-5, weight_decay=0.01), "binary_crossentropy", metrics=["accuracy"])
x = {**tokens, "n_words": n_words}
history = model.fit(x, labels, batch_size=16, epochs=2, verbose=2)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    difference = np.abs(loaded.predict(x, verbose=0) - model.predict(x, verbose=0)).max()
print(f"loss {history.history['loss'][0]:.3f} -> {history.history['loss'][-1]:.3f}")
print(f"largest difference after saving and loading: {difference:.1e}")
