"""Exporting estimators: a folder that other programs run, checked against the estimator before it is there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

import kbert
from kbert.atomic_folder import FolderKind, replace_folder
from kbert.config_json import read_config_json
from kbert.data.frames import readable_again
from kbert.errors import KbertWarning, WeightsMismatchError
from kbert.estimators import persistence
from kbert.estimators.recipe import settled_values
from kbert.estimators.saving import GOLDEN_TEXTS, SavableEstimator
from kbert.hub.weight_files import SAFETENSORS
from kbert.json_files import write_json
from kbert.model import BertForFeatures
from kbert.model.encoder import skip_initialisation
from kbert.training.precision import has_accelerator
from kbert.weights.exported import DATA, MODEL, ExportedModel, onnx_runner, quantize_onnx, write_onnx
from kbert.weights.folder import EXPORT_FILE
from kbert.weights.onnx_graph import INPUTS
from kbert.weights.saved_model import FILES as SAVED_MODEL_FILES
from kbert.weights.saved_model import saved_model_runner, write_saved_model

_FILES = frozenset({EXPORT_FILE, MODEL, DATA, "config.json", *persistence.TOKENIZER_FILES})
FORMATS = ("onnx", "savedmodel")
# The parameters with which another program reads texts and decodes outputs as the estimator does.
_READING = "max_length long_text stride level layers pooling normalize decoding n_best max_answer_length".split()
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
    n_rows : int
        Number of rows that were compared.
    max_difference : float
        Largest difference from the estimator: of probabilities, of a regression's numbers, of a vector's features, of
        the scores of answers, and without X of logits.
    agreement : float or None
        Share of equal labels, tags or answers; None where there are none.
    """

    folder: Path
    format: str
    quantize: str | None
    n_rows: int
    max_difference: float
    agreement: float | None

    def __str__(self) -> str:
        form = self.format if self.quantize is None else f"{self.format}, {self.quantize}"
        equal = "" if self.agreement is None else f", {self.agreement:.2%} of the answers are equal"
        return f"{self.folder} ({form}): on {self.n_rows} rows at most {self.max_difference:.1e} off{equal}"


class ExportableEstimator(SavableEstimator):
    """An estimator with ``export``."""

    def export(
        self, path: str | os.PathLike[str], format: str = "onnx", X: Any = None, quantize: str | None = None
    ) -> ExportReport:
        """Write the fitted estimator into a folder that other programs run, without kbert.

        The folder has the model, its tokenizer, its config.json with the names of the labels, and an export.json with
        what else was learned. Its inputs are ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64, of any
        number of rows and any length; its outputs depend on the task (see the page on exporting).

        Parameters
        ----------
        path : str or Path
            A new folder, or one that holds an exported model, which is replaced when the new one is complete.
        format : {"onnx", "savedmodel"}, default="onnx"
            "onnx" writes ``model.onnx`` under any backend; "savedmodel" TensorFlow's format, under TensorFlow.
        X : array-like, optional
            Rows as in ``predict``, on which the exported model is compared with the estimator; a few stored texts by
            default.
        quantize : {None, "int8"}, default=None
            "int8" makes ``model.onnx`` about a quarter of its size, and often faster. The report says how much the
            predictions change.

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
            If ``format`` or ``quantize`` is not one of these, or the backend in use cannot write the format.
        """
        estimator, X = self._of_one_fit(), readable_again(X)
        if format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(map(repr, FORMATS))}, got {format!r}.")
        if quantize not in (None, "int8") or (quantize and format != "onnx"):
            raise ValueError(f'quantize must be None, or "int8" with format="onnx", got {quantize!r} with {format!r}.')
        folder = Path(os.path.expanduser(path))
        if folder.suffix == ".onnx":
            raise ValueError(
                f"export writes a folder, {MODEL} being one of its files. Give {str(folder.with_suffix(''))!r}."
            )
        reports: list[ExportReport] = []
        # Folders called variables or assets are somebody else's where there is no SavedModel.
        others = SAVED_MODEL_FILES if (folder / SAVED_MODEL_FILES[0]).is_file() else ()
        kind = FolderKind(EXPORT_FILE, _FILES.union(others), "exported model")
        replace_folder(folder, partial(estimator._export, reports, folder, format, X, quantize), kind)
        if self.verbose:
            print(reports[-1])
        return reports[-1]

    def _export(
        self, reports: list[ExportReport], final: Path, format: str, X: Any, quantize: str | None, folder: Path
    ) -> None:
        """Write the exported model, check it, and append the report to ``reports``."""
        estimator = self._in_float32()
        estimator._save_model(folder)
        estimator.tokenizer_.save(folder)
        choices = estimator.model_.choices if isinstance(estimator.model_, BertForFeatures) else {}
        expected = estimator._export_results(X)

        def check(quantize: str | None, runner: Callable[[Path], Callable[..., Any]]) -> ExportReport:
            exported = estimator._with_model(ExportedModel(estimator.model_, runner(folder)))
            found = exported._export_results(X)
            if quantize is None:
                _require_close(expected[0], found[0], getattr(self, "y_scale_", 1.0), format)
            return _compared(expected, found, final, format, quantize)

        if format == "onnx":
            write_onnx(folder, folder, **choices)
        else:
            write_saved_model(folder, estimator.model_, read_config_json(folder))
        (folder / SAFETENSORS).unlink()
        reports.append(check(None, onnx_runner if format == "onnx" else saved_model_runner))
        if quantize:
            quantize_onnx(folder)
            reports.append(check(quantize, onnx_runner))
        settled = settled_values(vars(self))
        values = {
            "kbert": kbert.__version__,
            "estimator": type(self).__name__,
            "inputs": INPUTS,
            "parameters": {
                name: persistence.encode_value(settled[name])
                for name in self.get_params(deep=False)
                if name in _READING
            },
            "learned": self._learned_to_json(),
            "check": {name: v for name, v in asdict(reports[-1]).items() if name != "folder"},
        }
        write_json(folder / EXPORT_FILE, values)

    def _with_model(self, model: keras.Model | ExportedModel) -> Self:
        """This estimator with another model. Not `copy.copy`, which would copy the weights."""
        other = object.__new__(type(self))
        other.__dict__.update(vars(self), model_=model, _sklearn_output_config={"transform": "default"})
        return other

    def _in_float32(self) -> Self:
        """This estimator with a model that computes in float32, as what is exported does."""
        model = self.model_
        if model.dtype_policy.name == "float32":
            return self._with_model(model)
        with skip_initialisation():
            copy = type(model).from_config({**model.get_config(), "dtype": "float32"})
        for variable, original in zip(copy.weights, model.weights, strict=True):
            variable.assign(original.value)
        return self._with_model(copy)

    def _export_results(self, X: Any) -> Results:
        """What is compared: for rows of X, or for a few stored texts."""
        with warnings.catch_warnings():
            # Warnings about cut and empty texts: fit and predict issue them.
            warnings.simplefilter("ignore", KbertWarning)
            if X is None:
                return np.asarray(self._logits_of_texts(list(GOLDEN_TEXTS)), "float64"), None, len(GOLDEN_TEXTS)
            return self._results(X)

    def _results(self, X: Any) -> Results:
        """What is compared for rows of X: probabilities. An estimator that gives none has its own."""
        rows = self.predict_proba(X)
        # A tagger's are arrays of each row; the options that a row does not have are NaN.
        numbers = np.nan_to_num(np.concatenate(rows) if isinstance(rows, list) else rows)
        thresholds = getattr(self, "thresholds_", None)
        answers = numbers.argmax(axis=1) if thresholds is None else numbers >= thresholds
        return numbers, answers, len(rows)


def _compared(expected: Results, found: Results, folder: Path, format: str, quantize: str | None) -> ExportReport:
    (numbers, answers, n_rows), (found_numbers, found_answers, _) = expected, found
    difference = float(np.abs(numbers - found_numbers).max(initial=0.0))
    equal = None
    if answers is not None and len(answers):
        same = answers == found_answers
        equal = float((same if same.ndim == 1 else same.all(axis=1)).mean())
    return ExportReport(folder, format, quantize, n_rows, difference, equal)


def _require_close(expected: np.ndarray, found: np.ndarray, unit: float | np.ndarray, format: str) -> None:
    tolerance = _TOLERANCE_OF_ACCELERATORS if has_accelerator() else _TOLERANCE
    off = np.abs(expected - found) / np.maximum(np.abs(expected).max(axis=0, initial=0.0), unit)
    if not off.max(initial=0.0) <= tolerance:  # NaN is off too
        raise WeightsMismatchError(
            f"The exported model does not predict what the estimator does: it is off by up to "
            f"{off.max():.2g} (allowed {tolerance:.2g}), so nothing was written. Another version of "
            f"{'onnxruntime' if format == 'onnx' else 'tensorflow'} may help; please report it with this line "
            f"({keras.backend.backend()}, Keras {keras.__version__}, kbert {kbert.__version__})."
        )
