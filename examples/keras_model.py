"""BertEncoder inside a Keras model of one's own.

It is trained by plain compile and fit, saved as .keras and loaded again.
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import pandas as pd

from kbert import BertEncoder, WordPieceTokenizer

data = Path(__file__).parent / "data" / "support_messages.csv"
messages = pd.read_csv(data).sample(160, random_state=0)
labels = (messages.label == "delivery").to_numpy("float32")

tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
encoder = BertEncoder.from_pretrained("minilm-l6")
encoder.pooler.trainable = False  # the head below does not read it
tokens = tokenizer(messages.message, max_length=48)

# A head of one's own: the mean of the word vectors, and as one further feature the
# length of the message.
n_words = np.log1p(messages.message.str.split().str.len().to_numpy("float32"))[:, None]
inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in tokens}
length = keras.Input((1,), name="n_words")
vectors = encoder(inputs)["sequence_output"]
mean = keras.layers.GlobalAveragePooling1D()(vectors, mask=inputs["text_ids"] > 0)
features = keras.layers.Concatenate()([mean, length])
output = keras.layers.Dense(1, activation="sigmoid")(features)

model = keras.Model({**inputs, "n_words": length}, output)
optimizer = keras.optimizers.AdamW(5e-5, weight_decay=0.01)
model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
x = {**tokens, "n_words": n_words}
history = model.fit(x, labels, batch_size=16, epochs=2, verbose=2)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    before, after = model.predict(x, verbose=0), loaded.predict(x, verbose=0)
    difference = np.abs(after - before).max()
print(f"loss {history.history['loss'][0]:.3f} -> {history.history['loss'][-1]:.3f}")
print(f"largest difference after saving and loading: {difference:.1e}")
