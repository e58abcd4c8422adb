"""kbert and what a user would pick instead, each as its own documentation sets it up, for `benchmarks/peers.py`.

A contestant has ``fit(texts, labels)``, which starts from the released weights every time, and ``predict(texts)``,
which gives labels; one of features has ``transform(texts)``. All train for one epoch at batch 32 and rate 5e-5, dropout
0.1 as in the checkpoint, in float32. Imports are inside, because they belong to what is timed.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BATCH_SIZE, RATE, LENGTH, LABELS = 32, 5e-5, 128, 2


class Contestant(NamedTuple):
    """What is run, and on how many rows: those that are slow get few, and only their rates are compared.

    Attributes
    ----------
    make : callable
        ``make(folder)`` with the folder of the weights.
    backend : str
        Of Keras; "torch" for those that are PyTorch's own.
    fit_rows, predict_rows, transform_rows : int
        0 where it does not take part.
    needs : str
        The package to install.
    """

    make: Any
    backend: str
    fit_rows: int = 0
    predict_rows: int = 0
    transform_rows: int = 0
    needs: str = "kbert"


class Kbert:
    """BertClassifier with the recipe that all contestants have."""

    def __init__(self, folder: Path):
        self.folder = folder

    def fit(self, texts, labels):
        from kbert import BertClassifier

        model = BertClassifier.paper(weights=self.folder, epochs=1, learning_rate=RATE, random_state=0)
        self.model = model.fit(texts, labels)

    def predict(self, texts):
        return self.model.predict(texts)


class Trainer:
    """transformers' Trainer.

    Dynamic padding and, in training, grouping by length, as its documentation says for speed; without the grouping, as
    it comes; or all rows padded to 128, as its example run_glue.py does. ``model`` goes to the model's
    ``from_pretrained``, and ``arguments`` to TrainingArguments.
    """

    def __init__(
        self,
        folder: Path,
        padded: bool = False,
        grouped: bool = True,
        length: int = LENGTH,
        model: dict[str, Any] | None = None,
        **arguments: Any,
    ):
        self.folder, self.padded, self.grouped = folder, padded, grouped and not padded
        self.length, self.model_options, self.arguments = length, model or {}, arguments
        self.callbacks: list[Any] = []

    def fit(self, texts, labels):
        self.prepare(texts, labels)
        self.trainer.train()

    def prepare(self, texts=(), labels=None):
        """Everything but the training."""
        import transformers

        transformers.set_seed(0)  # for the head
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            self.folder, num_labels=LABELS, **self.model_options
        )
        grouped = {"train_sampling_strategy": "group_by_length"} if self.grouped else {}
        options = {
            "output_dir": tempfile.mkdtemp(), "num_train_epochs": 1, "per_device_train_batch_size": BATCH_SIZE,
            "per_device_eval_batch_size": BATCH_SIZE, "learning_rate": RATE, "warmup_steps": 0.1, "weight_decay": 0.01,
            "report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "seed": 0,
            "use_cpu": True,
        }  # fmt: skip
        self.trainer = transformers.Trainer(
            model,
            transformers.TrainingArguments(**{**options, **grouped, **self.arguments}),
            train_dataset=self._rows(texts, labels) if len(texts) else None,
            processing_class=self.tokenizer,
            callbacks=self.callbacks,
        )

    def predict(self, texts):
        # With grouping, transformers 5.23 takes the rows to predict by groups too, and returns them in that order.
        self.trainer.args.train_sampling_strategy = "sequential"
        return self.trainer.predict(self._rows(texts)).predictions.argmax(axis=1)

    def _rows(self, texts, labels=None):
        encoded = self.tokenizer(
            list(texts), truncation=True, max_length=self.length, padding="max_length" if self.padded else False
        )
        rows = [{name: values[i] for name, values in encoded.items()} for i in range(len(texts))]
        for row, label in zip(rows, [] if labels is None else labels, strict=labels is not None):
            row["labels"] = int(label)
        return rows


class Pipeline:
    """transformers' pipeline, which predicts; the head is not trained."""

    def __init__(self, folder: Path, model: dict[str, Any] | None = None, **options):
        import transformers

        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=LABELS, **(model or {})
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.pipeline = transformers.pipeline(
            "text-classification",
            model=model,
            tokenizer=tokenizer,
            **{"truncation": True, "max_length": LENGTH, **options},
        )

    def predict(self, texts):
        return [int(found["label"].removeprefix("LABEL_")) for found in self.pipeline(list(texts))]


class KerasHub:
    """KerasHub's BertTextClassifier, from a preset of the weights; ``length=None`` is its default, 512."""

    def __init__(self, folder: Path, length: int | None = LENGTH):
        import keras_hub

        self.preset = folder
        options = {} if length is None else {"sequence_length": length}
        self.preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(str(self.preset), **options)
        self.model = None

    def fit(self, texts, labels):
        import keras
        import keras_hub

        # A second fit goes on with what is compiled, which is the best it can do.
        if self.model is None:
            self.model = keras_hub.models.BertTextClassifier.from_preset(
                str(self.preset), num_classes=LABELS, preprocessor=self.preprocessor
            )
            self.model.compile(
                optimizer=keras.optimizers.AdamW(RATE),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
                jit_compile="auto",
            )
        self.model.fit(np.array(texts, object), np.array(labels), batch_size=BATCH_SIZE, epochs=1, verbose=0)

    def predict(self, texts):
        return self.model.predict(np.array(texts, object), batch_size=BATCH_SIZE, verbose=0).argmax(axis=1)


class SimpleTransformers:
    """simpletransformers' ClassificationModel; in one process, since its default of several never ended here.

    It forks them from a process in which PyTorch's threads have been at work (0.70, PyTorch 2.13).
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def fit(self, texts, labels):
        import pandas as pd
        from simpletransformers.classification import ClassificationModel

        out = tempfile.mkdtemp()
        arguments = {
            "num_train_epochs": 1, "train_batch_size": BATCH_SIZE, "eval_batch_size": BATCH_SIZE,
            "max_seq_length": LENGTH, "learning_rate": RATE, "output_dir": out, "cache_dir": out,
            "overwrite_output_dir": True, "silent": True, "save_model_every_epoch": False, "no_save": True,
            "save_eval_checkpoints": False, "fp16": False, "use_multiprocessing": False,
            "use_multiprocessing_for_evaluation": False, "manual_seed": 0,
        }  # fmt: skip
        self.model = ClassificationModel("bert", str(self.folder), num_labels=LABELS, args=arguments, use_cuda=False)
        self.model.train_model(pd.DataFrame({"text": list(texts), "labels": list(labels)}))

    def predict(self, texts):
        return self.model.predict(list(texts))[0]


class KbertVectorizer:
    """BertVectorizer as it comes: the mean of the last layer."""

    def __init__(self, folder: Path, length: int = 256):
        from kbert import BertVectorizer

        self.model = BertVectorizer(weights=folder, max_length=length).fit(["a text"])

    def transform(self, texts):
        return self.model.transform(texts)


class SentenceTransformer:
    """sentence-transformers' encode as it comes; ``options`` go to it, and ``model`` to the model."""

    def __init__(self, folder: Path, length: int = 256, model: dict[str, Any] | None = None, **options):
        from sentence_transformers import SentenceTransformer, models

        layers = models.Transformer(str(folder), max_seq_length=length, **({"model_args": model} if model else {}))
        self.model = SentenceTransformer(modules=[layers, models.Pooling(layers.get_word_embedding_dimension())])
        self.options = options

    def transform(self, texts):
        return self.model.encode(list(texts), **self.options)


def no_attention_dropout(make):
    """A contestant on the same weights, whose config says that no attention probabilities are dropped."""

    def made(folder: Path):
        copy = Path(tempfile.mkdtemp())
        for file in folder.iterdir():
            if file.name != "config.json":
                (copy / file.name).symlink_to(file.resolve())
        config = json.loads((folder / "config.json").read_text()) | {"attention_probs_dropout_prob": 0.0}
        (copy / "config.json").write_text(json.dumps(config))
        return make(copy)

    return made


KBERT_ROWS = {"fit_rows": 2000, "predict_rows": 10_000}
FIT_ROWS = {"fit_rows": 2000, "predict_rows": 872}
CONTESTANTS = {
    "kbert, jax": Contestant(Kbert, "jax", **KBERT_ROWS),
    "kbert, tensorflow": Contestant(Kbert, "tensorflow", **KBERT_ROWS),
    "kbert, torch": Contestant(Kbert, "torch", **KBERT_ROWS),
    "Trainer": Contestant(Trainer, "torch", **KBERT_ROWS, needs="accelerate"),
    "Trainer, not grouped": Contestant(partial(Trainer, grouped=False), "torch", 512, 512, needs="accelerate"),
    "Trainer, padded to 128": Contestant(partial(Trainer, padded=True), "torch", 256, 512, needs="accelerate"),
    "pipeline": Contestant(Pipeline, "torch", 0, 1000, needs="transformers"),
    "pipeline, batches of 64": Contestant(partial(Pipeline, batch_size=64), "torch", 0, 1000, needs="transformers"),
    "KerasHub at 128, jax": Contestant(KerasHub, "jax", 128, 256, needs="keras_hub"),
    "KerasHub at 128, tensorflow": Contestant(KerasHub, "tensorflow", 128, 256, needs="keras_hub"),
    "KerasHub, jax": Contestant(partial(KerasHub, length=None), "jax", 32, 64, needs="keras_hub"),
    "KerasHub, tensorflow": Contestant(partial(KerasHub, length=None), "tensorflow", 32, 64, needs="keras_hub"),
    "simpletransformers": Contestant(SimpleTransformers, "torch", 512, 872, needs="simpletransformers"),
    "attention dropout 0: kbert, jax": Contestant(no_attention_dropout(Kbert), "jax", **FIT_ROWS),
    "attention dropout 0: kbert, tensorflow": Contestant(no_attention_dropout(Kbert), "tensorflow", **FIT_ROWS),
    "attention dropout 0: kbert, torch": Contestant(no_attention_dropout(Kbert), "torch", **FIT_ROWS),
    "attention dropout 0: Trainer": Contestant(no_attention_dropout(Trainer), "torch", **FIT_ROWS, needs="accelerate"),
    "features: kbert, jax": Contestant(KbertVectorizer, "jax", transform_rows=5000),
    "features: kbert, tensorflow": Contestant(KbertVectorizer, "tensorflow", transform_rows=5000),
    "features: kbert, torch": Contestant(KbertVectorizer, "torch", transform_rows=5000),
    "features: sentence-transformers": Contestant(
        SentenceTransformer, "torch", transform_rows=5000, needs="sentence_transformers"
    ),
}

if os.environ.get("WANDB_MODE") is None:  # simpletransformers would ask for an account
    os.environ["WANDB_MODE"] = "disabled"
