"""Exporting estimators: a folder that other programs run, checked against the estimator before it is there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

import kbert
from kbert.config_json import read_config_json
from kbert.data.frames import readable_again
from kbert.errors import KbertWarning, ParameterWarning, WeightsMismatchError
from kbert.estimators import kbert_json
from kbert.estimators.parameters import READ_AFTER_FIT
from kbert.estimators.recipe import settled_values
from kbert.estimators.saving import GOLDEN_TEXTS, SavableEstimator
from kbert.files.atomic_folder import FolderKind, replace_folder
from kbert.files.json_files import write_json
from kbert.hub.weight_files import SAFETENSORS
from kbert.training.precision import has_accelerator, in_float32
from kbert.warn import warn_user
from kbert.weights.folder import EXPORT_FILE, TOKENIZER_FILES
from kbert.weights.int8 import Int8Graph, ObservedGraph, ObservedModel
from kbert.weights.onnx_files import DATA, quantize_dynamically, write_onnx
from kbert.weights.onnx_graph import Graph
from kbert.weights.runtimes import DYNAMIC, INPUTS, MODEL, SAVED_MODEL, ExportedModel
from kbert.weights.saved_model import write_saved_model

if TYPE_CHECKING:
    import keras

_FILES = frozenset({EXPORT_FILE, MODEL, DATA, "config.json", *TOKENIZER_FILES})
FORMATS = ("onnx", "savedmodel")
QUANTIZED = ("int8", DYNAMIC)
# Rows from which the scales of integers are reliable. With 20 messages the probabilities of others are off by up to
# 0.09, and with 150 by up to 0.06 (minilm-l6).
_ENOUGH_ROWS = 50
# How a text's vector is made, in the choices of `BertForFeatures`.
_OF_VECTORS = ("layers", "pooling", "normalize")
# The parameters with which another program reads texts and decodes outputs as the estimator does.
_READING = (*READ_AFTER_FIT, "level", *_OF_VECTORS)
# How far an exported model's numbers may be from the estimator's: as a share of the largest expected number, or of 1
# (of y's standard deviation for a regression) where that is larger. Many accelerators multiply float32 matrices with
# about three digits.
_TOLERANCE, _TOLERANCE_OF_ACCELERATORS = 1e-4, 1e-2


# What is compared: numbers, the answers decoded from them (or None), and the number of rows.
Results = tuple[np.ndarray, np.ndarray | None, int]


@dataclass(frozen=True)
class ExportReport:
    """What the check of an exported model found.

    Attributes
    ----------
    folder : Path
    format : str
    quantize : str or None
    runtime : str
        What ran the exported model for this report: of a quantized one what `load` takes on this machine, for the
        answers of runtimes differ a little; else ONNX Runtime or TensorFlow.
    n_rows : int
        Number of rows that were compared.
    max_difference : float
        Largest difference from the estimator: of probabilities, of a regression's numbers, of a vector's features, of
        the scores of answers, and without X of logits.
    agreement : float or None
        Share of equal labels, tags or answers; None where there are none.
    score : float or None
        The exported model's ``score(X, y)``; None without y.
    estimator_score : float or None
        The estimator's on the same rows.

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
    >>> report = classifier.export("exported", X=texts, y=labels)  # ONNX
    >>> report.n_rows, report.agreement, report.score == report.estimator_score
    (40, 1.0, True)
    """

    folder: Path
    format: str
    quantize: str | None
    runtime: str
    n_rows: int
    max_difference: float
    agreement: float | None
    score: float | None = None
    estimator_score: float | None = None

    def __str__(self) -> str:
        form = self.format if self.quantize is None else f"{self.format}, {self.quantize}, by {self.runtime}"
        equal = "" if self.agreement is None else f", {self.agreement:.2%} of the answers are equal"
        scores = "" if self.score is None else f", score {self.score:.4f} instead of {self.estimator_score:.4f}"
        return f"{self.folder} ({form}): on {self.n_rows} rows at most {self.max_difference:.1e} off{equal}{scores}"


class ExportableEstimator(SavableEstimator):
    """An estimator with ``export``."""

    # Whether an export is compared on all rows of X.
    _compares_all_rows: ClassVar[bool] = True
    # Whether `score` compares rows of X with those of y.
    _scores_rows: ClassVar[bool] = True
    # Whether `load` opens what `export` writes.
    _loads_exports: ClassVar[bool] = True

    def export(
        self,
        path: str | os.PathLike[str],
        format: str = "onnx",
        X: Any = None,
        quantize: str | None = None,
        y: Any = None,
    ) -> ExportReport:
        """Write the fitted estimator into a folder that other programs run, without kbert.

        The folder has the model, its tokenizer, its config.json with the names of the labels, and an export.json with
        what else was learned. `load` opens it too: the estimator then predicts through ONNX Runtime or OpenVINO, and
        needs neither Keras nor a backend. For other programs, the model's inputs are ``input_ids``, ``attention_mask``
        and ``token_type_ids``, int64, of any number of rows and any length; its outputs depend on the task (see the
        page on exporting).

        Parameters
        ----------
        path : str or Path
            A new folder, or one that holds an exported model, which is replaced when the new one is complete.
        format : {"onnx", "savedmodel"}, default="onnx"
            "onnx" writes ``model.onnx`` under any backend; "savedmodel" TensorFlow's format, under TensorFlow.
        X : array-like, optional
            Rows as in ``predict``, on which the exported model is compared with the estimator; a few stored texts by
            default. With ``quantize="int8"`` they also calibrate it, a few hundred being enough. Of BertPretrainer's
            documents the first eight are read.
        quantize : {None, "int8", "int8_dynamic"}, default=None
            Makes ``model.onnx`` about a quarter of its size, and often faster. The report says how much the predictions
            change. "int8" observes the numbers that each layer reads on the rows of X. "int8_dynamic" does without X:
            the scales of these numbers are computed when the model runs, which is slower and changes more.
        y : array-like, optional
            The truth of X. The report then has the scores of both on these rows.

        Returns
        -------
        ExportReport

        Raises
        ------
        WeightsMismatchError
            When the exported model differs from the estimator by more than 1e-4 (1e-2 on accelerators). Nothing is
            written.
        FileExistsError
            If the folder holds something else, which is left as it is.
        ImportError
            If a package that writes or runs the format is not installed.
        ValueError
            If ``format`` or ``quantize`` is not one of these, if "int8" or ``y`` is given without X, or the backend in
            use cannot write the format.
        """
        estimator, X = self._of_one_fit(), self._rows_to_check(X)
        estimator._require_keras_model("export")
        if format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {format!r}.")
        if quantize not in (None, *QUANTIZED) or (quantize and format != "onnx"):
            raise ValueError(
                f'quantize must be None, or "int8" or "{DYNAMIC}" with format="onnx", got {quantize!r} with {format!r}.'
            )
        if quantize == "int8" and X is None:
            raise ValueError(
                'quantize="int8" is calibrated on rows: give some hundred as X, as for predict; or quantize='
                f'"{DYNAMIC}", which does without.'
            )
        y = readable_again(y)
        if y is not None and (X is None or not estimator._scores_rows):
            raise ValueError("y is the truth of the rows of X, for estimators that score rows by it.")
        folder = Path(os.path.expanduser(path))
        if folder.suffix == ".onnx":
            raise ValueError(
                f"export writes a folder, {MODEL} being one of its files. Give {str(folder.with_suffix(''))!r}."
            )
        # Folders called variables or assets are somebody else's where there is no SavedModel.
        others = SAVED_MODEL if (folder / SAVED_MODEL[0]).is_file() else ()
        kind = FolderKind(EXPORT_FILE, _FILES.union(others), "exported model")
        report = replace_folder(folder, partial(estimator._export, folder, format, X, y, quantize), kind)
        if self.verbose:
            print(report)
        return report

    def _export(self, final: Path, format: str, X: Any, y: Any, quantize: str | None, folder: Path) -> ExportReport:
        """Write the exported model into a folder and check it; ``final`` is where that folder will be."""
        estimator = self._in_float32()
        estimator._save_model(folder)
        estimator.tokenizer_.save(folder)
        choices = estimator.model_.choices
        expected = estimator._export_results(X)

        checked_by = "onnxruntime" if format == "onnx" else "tensorflow"

        def opened(
            kind: type[ExportedModel] = ExportedModel, runtime: str = checked_by, **options: Any
        ) -> ExportableEstimator:
            return estimator._with_model(kind(folder, runtime, choices=choices, **options))

        def write(graph_of: Callable[..., Graph] | None = None) -> None:
            of_vectors = {name: choices[name] for name in _OF_VECTORS if name in choices}
            write_onnx(folder, graph_of, **of_vectors)

        calibrated = quantize == "int8"
        if format == "onnx":
            _require_onnxruntime()
            write(ObservedGraph if calibrated else None)
        else:
            write_saved_model(folder, estimator.model_, read_config_json(folder))
        exported = opened(ObservedModel if calibrated else ExportedModel)
        found = exported._export_results(X)
        _require_close(self._off(expected[0], found[0], axis=0), format)
        if quantize:
            if calibrated:
                write(partial(Int8Graph, ranges=exported.model_.ranges))
            else:
                quantize_dynamically(folder)
            if self._loads_exports:
                exported = opened(runtime="auto", dtype=self.dtype, quantize=quantize)
            else:
                exported = opened()
            found = exported._export_results(X)
        if calibrated and self._compares_all_rows:
            n_different = len(set(self._row_reader().read(X).keys()))
            if n_different < _ENOUGH_ROWS:
                warn_user(
                    f'quantize="int8" takes the scales of its integers from {expected[2]} rows, of which {n_different} '
                    "are different, and compares the models on them: so few say little of others, for which it may be "
                    f'far off. Give a few hundred as X; or quantize="{DYNAMIC}", which needs none.',
                    ParameterWarning,
                )
        (folder / SAFETENSORS).unlink()
        report = _compared(expected, found, final, format, quantize, exported.model_.runtime)
        if y is not None:
            report = replace(report, score=exported._score(X, y), estimator_score=estimator._score(X, y))
        settled = settled_values(vars(self))
        values = {
            **exported._to_json({}),
            "set_output": self._container(),
            "inputs": INPUTS,
            "reading": {
                name: kbert_json.encode_value(getattr(self, f"{name}_") if settled[name] == "auto" else settled[name])
                for name in self.get_params(deep=False)
                if name in _READING
            },
            "check": {name: v for name, v in asdict(report).items() if name != "folder"},
        }
        write_json(folder / EXPORT_FILE, values)
        return report

    def _with_model(self, model: keras.Model | ExportedModel) -> Self:
        """This estimator with another model. Not `copy.copy`, which would copy the weights."""
        other = object.__new__(type(self))
        other.__dict__.update(vars(self), model_=model, _sklearn_output_config={"transform": "default"})
        return other

    def _in_float32(self) -> Self:
        """This estimator with a model that computes in float32, as what is exported does."""
        return self._with_model(in_float32(self.model_))

    def _rows_to_check(self, X: Any) -> Any:
        """X, which is read by the estimator and by what it is exported to."""
        return readable_again(X)

    def _export_results(self, X: Any) -> Results:
        """What is compared: for rows of X, or for a few stored texts."""
        with warnings.catch_warnings():
            # Warnings about cut and empty texts: fit and predict issue them.
            warnings.simplefilter("ignore", KbertWarning)
            if X is None:
                return np.asarray(self._logits_of_texts(list(GOLDEN_TEXTS)), "float64"), None, len(GOLDEN_TEXTS)
            return self._results(X)

    def _score(self, X: Any, y: Any) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KbertWarning)
            return float(self.score(X, y))

    def _results(self, X: Any) -> Results:
        """What is compared for rows of X: probabilities. An estimator that gives none has its own."""
        rows = self.predict_proba(X)
        numbers = np.nan_to_num(rows)  # the options that a row does not have are NaN
        several = getattr(self, "thresholds_", None) is not None
        answers = self._task().given(numbers) if several else numbers.argmax(axis=1)
        return numbers, answers, len(rows)


def _require_onnxruntime() -> None:
    """By which what was exported is checked."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Checking what was exported needs the package onnxruntime ({error}). Install it with: pip install onnx "
            "onnxruntime"
        ) from None


def _compared(
    expected: Results, found: Results, folder: Path, format: str, quantize: str | None, runtime: str
) -> ExportReport:
    (numbers, answers, n_rows), (found_numbers, found_answers, _) = expected, found
    difference = float(np.abs(numbers - found_numbers).max(initial=0.0))
    equal = None
    if answers is not None and len(answers):
        same = answers == found_answers
        equal = float((same if same.ndim == 1 else same.all(axis=1)).mean())
    return ExportReport(folder, format, quantize, runtime, n_rows, difference, equal)


def _require_close(off: np.ndarray, format: str) -> None:
    tolerance = _TOLERANCE_OF_ACCELERATORS if has_accelerator() else _TOLERANCE
    if not off.max(initial=0.0) <= tolerance:  # NaN is off too
        from kbert.model.setup import keras

        raise WeightsMismatchError(
            f"The exported model does not predict what the estimator does: it is off by up to "
            f"{off.max():.2g} (allowed {tolerance:.2g}), so nothing was written. Another version of "
            f"{'onnxruntime' if format == 'onnx' else 'tensorflow'} may help; please report it with this line "
            f"({keras.backend.backend()}, Keras {keras.__version__}, kbert {kbert.__version__})."
        )
