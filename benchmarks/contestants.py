"""kbert and what a user would pick instead, each as its own documentation sets it up, for `benchmarks/peers.py`.

A contestant has ``fit(texts, labels)``, which starts from the released weights every time, and ``predict(texts)``,
which gives labels; one of features has ``transform(texts)``. All train for one epoch at batch 32 and rate 5e-5, dropout
0.1 as in the checkpoint. Imports are inside, because they belong to what is timed.
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
        The module that has to be installed.
    """

    make: Any
    backend: str
    fit_rows: int = 0
    predict_rows: int = 0
    transform_rows: int = 0
    needs: str = "kbert"


class Kbert:
    """BertClassifier with the recipe that all contestants have."""

    def __init__(self, folder: Path, dtype: str = "auto", length: int = LENGTH):
        self.options = {"weights": folder, "dtype": dtype, "max_length": length}
        self.model = None

    def fit(self, texts, labels):
        from kbert import BertClassifier

        model = BertClassifier.paper(epochs=1, learning_rate=RATE, random_state=0, **self.options)
        self.model = model.fit(texts, labels)

    def predict(self, texts):
        return self.model.predict(texts)


class KbertExported:
    """A folder that kbert exported, which predicts; the head is not trained. int8 is calibrated on 300 rows."""

    def __init__(self, folder: Path, quantize: str | None = None, length: int = LENGTH):
        self.folder, self.quantize, self.length = folder, quantize, length
        self.model = None

    def predict(self, texts):
        if self.model is None:
            self.model = self._exported(list(texts[:300]))
        return self.model.predict(texts)

    def _exported(self, texts):
        import torch
        import transformers

        from kbert import BertClassifier

        saved, out = tempfile.mkdtemp(), Path(tempfile.mkdtemp(), "exported")
        torch.manual_seed(0)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder, num_labels=LABELS)
        model.save_pretrained(saved)
        transformers.AutoTokenizer.from_pretrained(self.folder).save_pretrained(saved)
        # Cut, as the others cut: by default longer texts are read in windows.
        classifier = BertClassifier.load(saved).set_params(max_length=self.length, long_text="truncate")
        classifier.export(out, X=texts, quantize=self.quantize)
        return BertClassifier.load(out)


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
        order = np.argsort([len(text) for text in texts], kind="stable")  # so that little is padded
        labels = np.empty(len(texts), int)
        labels[order] = self.trainer.predict(self._rows([texts[i] for i in order])).predictions.argmax(axis=1)
        return labels

    def _rows(self, texts, labels=None):
        encoded = self.tokenizer(
            list(texts), truncation=True, max_length=self.length, padding="max_length" if self.padded else False
        )
        rows = [{name: values[i] for name, values in encoded.items()} for i in range(len(texts))]
        for row, label in zip(rows, [] if labels is None else labels, strict=labels is not None):
            row["labels"] = int(label)
        return rows


class Pipeline:
    """transformers' pipeline, which predicts; the head is not trained. ``by_length`` gives it sorted rows."""

    def __init__(self, folder: Path, model: dict[str, Any] | None = None, by_length: bool = False, **options):
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
        self.by_length = by_length

    def predict(self, texts):
        if self.by_length:
            texts = sorted(texts, key=len)  # nobody reads the labels of an untrained head
        return [int(found["label"].removeprefix("LABEL_")) for found in self.pipeline(list(texts))]


class Runtime:
    """The model in ONNX Runtime or OpenVINO, which predicts; the head is not trained.

    Tokenised by the library tokenizers, sorted by length, in batches that are padded to their longest row. Set up as
    their documentations say: ONNX Runtime with the graph that its tool for transformers makes, and dynamic
    quantization of that for int8 (onnxruntime.ai/docs, "Transformers optimizer" and "Quantize ONNX models"); OpenVINO
    for throughput, with several requests at a time, and post-training quantization by NNCF on 300 rows
    (docs.openvino.ai, "High-level performance hints" and "Basic quantization flow").

    Parameters
    ----------
    folder : Path
    runtime : {"onnxruntime", "openvino"}
    precision : {"float32", "bfloat16", "int8"}
    """

    BATCH = 64

    def __init__(self, folder: Path, runtime: str, precision: str, length: int = LENGTH):
        from tokenizers import Tokenizer

        self.folder, self.runtime, self.precision = folder, runtime, precision
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(length)
        self.tokenizer.enable_padding(pad_id=self.tokenizer.token_to_id("[PAD]"))
        self.run = None

    def predict(self, texts):
        if self.run is None:
            self.run = {"onnxruntime": self._onnxruntime, "openvino": self._openvino}[self.runtime](list(texts))
        order = np.argsort([len(text) for text in texts], kind="stable")
        batches = [
            self._inputs([texts[i] for i in order[at : at + self.BATCH]]) for at in range(0, len(order), self.BATCH)
        ]
        labels = np.empty(len(texts), int)
        labels[order] = np.concatenate(self.run(batches)).argmax(axis=1)
        return labels

    def _inputs(self, texts):
        rows = self.tokenizer.encode_batch(texts)
        return {
            "input_ids": np.array([row.ids for row in rows]),
            "attention_mask": np.array([row.attention_mask for row in rows]),
            "token_type_ids": np.array([row.type_ids for row in rows]),
        }

    def _model(self):
        import torch
        import transformers

        torch.manual_seed(0)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(self.folder, num_labels=LABELS)
        return model.eval()

    def _onnxruntime(self, texts):
        import onnxruntime
        import torch
        from onnxruntime.quantization import quantize_dynamic
        from onnxruntime.transformers.optimizer import optimize_model

        model, path = self._model(), Path(tempfile.mkdtemp(), "model.onnx")
        example = {
            name: torch.tensor(array) for name, array in self._inputs(["two", "texts, of which one is longer"]).items()
        }
        axes = {name: {0: "rows", 1: "tokens"} for name in example} | {"logits": {0: "rows"}}
        torch.onnx.export(
            model, (dict(example),), str(path), input_names=list(example), output_names=["logits"], dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip
        config = model.config
        optimized = optimize_model(
            str(path), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
        )
        optimized.save_model_to_file(str(path))
        if self.precision == "int8":
            # The tool's own operators give no types: 1 is float32.
            quantize_dynamic(path, path.with_name("int8.onnx"), extra_options={"DefaultTensorType": 1})
            path = path.with_name("int8.onnx")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda batches: [session.run(["logits"], batch)[0] for batch in batches]

    def _openvino(self, texts):
        import openvino as ov
        import torch

        example = {name: torch.tensor(array) for name, array in self._inputs(["a text", "another text"]).items()}
        model = ov.convert_model(self._model(), example_input=example)
        if self.precision == "int8":
            import nncf

            rows = nncf.Dataset([self._inputs([text]) for text in texts[:300]])
            model = nncf.quantize(model, rows, model_type=nncf.ModelType.TRANSFORMER)
        hint = {"float32": "f32", "bfloat16": "bf16", "int8": "bf16"}[self.precision]
        compiled = ov.Core().compile_model(
            model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": hint}
        )
        queue = ov.AsyncInferQueue(compiled)

        def run(batches):
            found = [None] * len(batches)

            def keep(request, number):
                found[number] = request.get_output_tensor(0).data.copy()

            queue.set_callback(keep)
            for number, batch in enumerate(batches):
                queue.start_async(batch, number)
            queue.wait_all()
            return found

        return run


class KerasHub:
    """KerasHub's BertTextClassifier, from a preset of the weights; ``length=None`` is its default, 512."""

    def __init__(self, folder: Path, length: int | None = LENGTH, dtype: str = "float32"):
        import keras_hub

        self.preset, self.dtype = folder, dtype
        options = {} if length is None else {"sequence_length": length}
        self.preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(str(self.preset), **options)
        self.model = None

    def fit(self, texts, labels):
        import keras
        import keras_hub

        # A second fit goes on with what is compiled, which is the best it can do.
        if self.model is None:
            self.model = keras_hub.models.BertTextClassifier.from_preset(
                str(self.preset), num_classes=LABELS, preprocessor=self.preprocessor, dtype=self.dtype
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
    """sentence-transformers' encode as it comes; ``options`` go to it, and ``model`` to the model.

    ``backend`` is "torch", "onnx" or "openvino"; with ``quantize`` ONNX Runtime gets int8, as its documentation says
    for CPUs (sbert.net, "Speeding up Inference"; dynamic, since the static form of OpenVINO downloads a data set).
    """

    def __init__(
        self,
        folder: Path,
        length: int = 256,
        model: dict[str, Any] | None = None,
        backend: str = "torch",
        quantize: str | None = None,
        **options,
    ):
        from sentence_transformers import SentenceTransformer, models

        layers = models.Transformer(
            str(folder), max_seq_length=length, backend=backend, **({"model_args": model} if model else {})
        )
        self.model = SentenceTransformer(
            modules=[layers, models.Pooling(layers.get_word_embedding_dimension())], backend=backend
        )
        if quantize:
            from sentence_transformers import export_dynamic_quantized_onnx_model

            place = tempfile.mkdtemp()
            self.model.save_pretrained(place)
            export_dynamic_quantized_onnx_model(self.model, quantize, place)
            (file,) = (path.name for path in Path(place, "onnx").glob(f"*{quantize}*"))
            self.model = SentenceTransformer(place, backend=backend, model_kwargs={"file_name": f"onnx/{file}"})
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


BF16 = {"bf16": True}
HALF, KERAS_HALF = {"dtype": "bfloat16"}, {"dtype": "mixed_bfloat16"}
FIT, FEW = {"fit_rows": 4000, "predict_rows": 10_000}, {"fit_rows": 2000, "predict_rows": 872}
PREDICT = {"predict_rows": 10_000}
SST2 = {
    "kbert, torch": Contestant(Kbert, "torch", **FIT),
    "kbert in float32, torch": Contestant(partial(Kbert, dtype="float32"), "torch", **FIT),
    "kbert, jax": Contestant(Kbert, "jax", **FIT),
    "kbert, tensorflow": Contestant(Kbert, "tensorflow", **FIT),
    "Trainer in bfloat16": Contestant(partial(Trainer, **BF16), "torch", **FIT, needs="accelerate"),
    "Trainer": Contestant(Trainer, "torch", **FIT, needs="accelerate"),
    "kbert, exported": Contestant(KbertExported, "torch", **PREDICT, needs="openvino"),
    "kbert, exported in int8": Contestant(
        partial(KbertExported, quantize="int8"), "torch", **PREDICT, needs="openvino"
    ),
    "OpenVINO in bfloat16": Contestant(
        partial(Runtime, runtime="openvino", precision="bfloat16"), "torch", **PREDICT, needs="openvino"
    ),
    "OpenVINO in int8": Contestant(
        partial(Runtime, runtime="openvino", precision="int8"), "torch", **PREDICT, needs="nncf"
    ),
    "ONNX Runtime": Contestant(
        partial(Runtime, runtime="onnxruntime", precision="float32"), "torch", **PREDICT, needs="onnx"
    ),
    "ONNX Runtime in int8": Contestant(
        partial(Runtime, runtime="onnxruntime", precision="int8"), "torch", **PREDICT, needs="onnx"
    ),
    "pipeline in bfloat16, sorted": Contestant(
        partial(Pipeline, model=HALF, by_length=True, batch_size=64), "torch", 0, 4000, needs="transformers"
    ),
    "pipeline": Contestant(Pipeline, "torch", 0, 1000, needs="transformers"),
    "Trainer, not grouped": Contestant(partial(Trainer, grouped=False), "torch", 512, 512, needs="accelerate"),
    "Trainer, padded to 128": Contestant(partial(Trainer, padded=True), "torch", 256, 512, needs="accelerate"),
    # 48 tokens hold 99% of the rows.
    "KerasHub at 48, jax": Contestant(partial(KerasHub, length=48), "jax", 512, 512, needs="keras_hub"),
    "KerasHub at 48, tensorflow": Contestant(partial(KerasHub, length=48), "tensorflow", 512, 512, needs="keras_hub"),
    "KerasHub at 48, torch": Contestant(partial(KerasHub, length=48), "torch", 512, 512, needs="keras_hub"),
    "KerasHub at 48 in bfloat16, jax": Contestant(
        partial(KerasHub, length=48, **KERAS_HALF), "jax", 512, 512, needs="keras_hub"
    ),
    "KerasHub at 48 in bfloat16, torch": Contestant(
        partial(KerasHub, length=48, **KERAS_HALF), "torch", 512, 512, needs="keras_hub"
    ),
    "KerasHub at 128, jax": Contestant(KerasHub, "jax", 128, 256, needs="keras_hub"),
    "KerasHub at 128, tensorflow": Contestant(KerasHub, "tensorflow", 128, 256, needs="keras_hub"),
    "KerasHub, jax": Contestant(partial(KerasHub, length=None), "jax", 32, 64, needs="keras_hub"),
    "KerasHub, tensorflow": Contestant(partial(KerasHub, length=None), "tensorflow", 32, 64, needs="keras_hub"),
    "simpletransformers": Contestant(SimpleTransformers, "torch", 512, 872, needs="simpletransformers"),
    "attention dropout 0: kbert, jax": Contestant(no_attention_dropout(Kbert), "jax", **FEW),
    "attention dropout 0: kbert, tensorflow": Contestant(no_attention_dropout(Kbert), "tensorflow", **FEW),
    "attention dropout 0: kbert, torch": Contestant(no_attention_dropout(Kbert), "torch", **FEW),
    "attention dropout 0: Trainer in bfloat16": Contestant(
        no_attention_dropout(partial(Trainer, **BF16)), "torch", **FEW, needs="accelerate"
    ),
    "features: kbert, torch": Contestant(KbertVectorizer, "torch", transform_rows=5000),
    "features: kbert, jax": Contestant(KbertVectorizer, "jax", transform_rows=5000),
    "features: kbert, tensorflow": Contestant(KbertVectorizer, "tensorflow", transform_rows=5000),
    "features: sentence-transformers": Contestant(
        SentenceTransformer, "torch", transform_rows=5000, needs="sentence_transformers"
    ),
    "features: sentence-transformers in bfloat16": Contestant(
        partial(SentenceTransformer, model=HALF, batch_size=64), "torch", transform_rows=5000,
        needs="sentence_transformers",
    ),
    # OpenVINO computes in bfloat16 by itself where the processor has it.
    "features: sentence-transformers, OpenVINO": Contestant(
        partial(SentenceTransformer, backend="openvino", batch_size=64), "torch", transform_rows=5000,
        needs="optimum.intel",
    ),
    "features: sentence-transformers, ONNX Runtime": Contestant(
        partial(SentenceTransformer, backend="onnx", batch_size=64), "torch", transform_rows=5000,
        needs="optimum.onnxruntime",
    ),
    "features: sentence-transformers, ONNX Runtime in int8": Contestant(
        partial(SentenceTransformer, backend="onnx", quantize="avx512_vnni", batch_size=64), "torch",
        transform_rows=5000, needs="optimum.onnxruntime",
    ),
}  # fmt: skip
# Long texts: IMDB, cut at 256 tokens, which most of its rows reach.
LONG, LONG_ROWS, LONG_PREDICT = {"length": 256}, {"fit_rows": 256, "predict_rows": 500}, {"predict_rows": 500}
IMDB = {
    "kbert, torch": Contestant(partial(Kbert, **LONG), "torch", **LONG_ROWS),
    "kbert, jax": Contestant(partial(Kbert, **LONG), "jax", **LONG_ROWS),
    "Trainer in bfloat16": Contestant(partial(Trainer, **LONG, **BF16), "torch", **LONG_ROWS, needs="accelerate"),
    "kbert, exported in int8": Contestant(
        partial(KbertExported, quantize="int8", **LONG), "torch", **LONG_PREDICT, needs="openvino"
    ),
    "OpenVINO in bfloat16": Contestant(
        partial(Runtime, runtime="openvino", precision="bfloat16", **LONG), "torch", **LONG_PREDICT, needs="openvino"
    ),
    "OpenVINO in int8": Contestant(
        partial(Runtime, runtime="openvino", precision="int8", **LONG), "torch", **LONG_PREDICT, needs="nncf"
    ),
    "ONNX Runtime in int8": Contestant(
        partial(Runtime, runtime="onnxruntime", precision="int8", **LONG), "torch", **LONG_PREDICT, needs="onnx"
    ),
}
CONTESTANTS = {"sst2": SST2, "imdb": IMDB}

if os.environ.get("WANDB_MODE") is None:  # simpletransformers would ask for an account
    os.environ["WANDB_MODE"] = "disabled"
