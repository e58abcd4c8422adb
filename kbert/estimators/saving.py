"""Saving and loading estimators."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator

import kbert
from kbert.config import BertConfig
from kbert.errors import DivergedError, KbertWarning, WeightsMismatchError
from kbert.estimators import kbert_json, model_card
from kbert.estimators.parameters import OF_START, RULES, checked_parameters
from kbert.estimators.recipe import SETTLED, automatic_length
from kbert.files.atomic_folder import read_whole, replace_folder
from kbert.files.checksums import sha256_of
from kbert.forks import require_usable_process
from kbert.hub import model_cards, resolve_saved, uploads
from kbert.hub.weight_files import SAFETENSORS
from kbert.tasks.row_notices import RowShares
from kbert.text import WordPieceTokenizer
from kbert.text.files import check_vocabulary
from kbert.training.precision import dtype_policy
from kbert.values.number_rules import OVER_0
from kbert.values.saved import SHARE, SavedValues, one_of, whole
from kbert.warn import warn_user
from kbert.weights.folder import is_exported
from kbert.weights.runtimes import ExportedModel

if TYPE_CHECKING:
    import keras

    from kbert.training.fit_checkpoints import EpochHistory

# Texts whose logits are stored with a saved estimator, for `load(..., verify=True)`, and how far off they may be.
GOLDEN_TEXTS = ("The quick brown fox jumps over the lazy dog.", "Is this the same model?", "No.", "")
_GOLDEN_TOLERANCE = {"float32": 1e-3, "mixed_bfloat16": 0.25, "mixed_float16": 0.05}
# The last digits of a number in float32, which differ in any case.
_ROUNDING = 1e-6


class SavableEstimator(BaseEstimator):
    """An estimator with ``save`` and ``load``. A subclass says how by the private methods below."""

    model_: Any  # a Keras model, or an `ExportedModel`
    tokenizer_: WordPieceTokenizer
    config_: BertConfig
    history_: EpochHistory
    n_iter_: int
    n_rows_: int
    n_truncated_: int
    card_: dict[str, Any]
    max_length: Any
    dtype: str
    max_length_: int
    long_text_: str

    def _of_one_fit(self) -> Self:
        """The fitted estimator as it is now, with the parameters of its fit; an error where it is not fitted."""
        raise NotImplementedError

    def _architecture(self) -> str | None:
        """The class of transformers whose folders `load` opens; None where those of any BERT will do."""
        return None

    def _save_model(self, folder: Path) -> None:
        """Write the Keras model in the Hugging Face layout."""
        raise NotImplementedError

    def _load_model(self, folder: Path, policy: str) -> keras.Model:
        """Read the Keras model."""
        raise NotImplementedError

    def _learned_to_json(self) -> dict[str, Any]:
        """What was learned besides the weights, as JSON can hold it."""
        return {}

    def _learned_from_json(self, values: SavedValues, folder: Path) -> None:
        """Take back what `_learned_to_json` gave."""

    def _learned_from_config(self, folder: Path) -> None:
        """Learn it from the config.json of a folder that transformers saved."""

    def _exported_model(self, folder: Path, runtime: str, quantize: str | None) -> ExportedModel:
        """The model of a folder that `export` wrote."""
        return ExportedModel(folder, runtime, self.dtype, quantize=quantize)

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        """The model's outputs for a few texts, to be stored and compared when the estimator is loaded."""
        raise NotImplementedError

    def save(self, folder: str | os.PathLike[str], card: Mapping[str, Any] | None = None) -> None:
        """Write the fitted estimator into a folder, which `load` opens; transformers opens its encoder, and most heads.

        Parameters
        ----------
        folder : str or Path
            A new folder, or one that holds a saved estimator, which is replaced when the new one is complete. Other
            files in it stay. If the process is killed, `load` finds the older one or the new one.
        card : dict, optional
            What the model card, README.md, shall say besides what kbert knows. All keys are optional: ``description``
            (Markdown), ``data`` (what it was trained on), ``scores`` (a dict, such as ``{"accuracy": 0.91}``) and
            ``scored_on`` (what they were measured on), ``language`` (a code such as "en", or a list of them) and
            ``license`` (as the Hugging Face hub names it; by default that of the weights that training started from,
            where it is known). It is kept in the folder: ``load`` brings it back for the next ``save``. A README.md
            that somebody wrote or edited is never replaced.

        Raises
        ------
        FileExistsError
            Where the folder holds something else, which is left as it is.
        TypeError, ValueError
            Where a parameter that was set after ``fit`` is none that ``fit`` would take: ``load`` would refuse it. And
            where ``card`` has another key, or a value of another kind.
        DivergedError
            Where the model's outputs are not finite numbers.

        Warns
        -----
        KbertWarning
            When a README.md that somebody wrote or edited is kept, and should now say something else.
        """
        estimator, facts = self._to_save(card)
        target = Path(os.path.expanduser(folder)).resolve()

        def write(new: Path) -> bytes | None:
            """Give the model card that is kept, if there is one."""
            estimator._write(new, target.name, facts)
            earlier = target / model_cards.FILE
            if not earlier.is_file() or model_cards.is_unedited(content := earlier.read_bytes()):
                return None
            (new / model_cards.FILE).unlink()  # the earlier one is taken over, as all other files are
            return content

        kept = replace_folder(target, write, kbert_json.SAVED_ESTIMATOR)
        if kept is not None and (card is not None or model_cards.is_written_by_kbert(kept)):
            warn_user(
                f"{target / model_cards.FILE} was written or edited by somebody, and is kept as it is: what it says "
                "may not hold of the estimator that was saved now. To have the model card written anew, remove it and "
                "save again.",
                KbertWarning,
            )

    def push_to_hub(
        self,
        repo: str,
        *,
        card: Mapping[str, Any] | None = None,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Upload the fitted estimator to the Hugging Face hub, where `load` and transformers find it.

        It is uploaded by huggingface_hub, with the token of ``hf auth login`` or of HF_TOKEN. What is uploaded is what
        `save` writes: the weights, the vocabulary, the labels, all parameters and the history of the fit, and the model
        card. No text of the training rows is in it, but the pieces of a vocabulary that was learned from them are.

        Parameters
        ----------
        repo : str
            "owner/name". It is made if it does not exist. If it does, it has to hold a saved estimator or nothing.
        card : dict, optional
            As in `save`. A README.md in the repository that somebody wrote or edited is never replaced.
        private : bool, optional
            Whether a new repository is private. None is the owner's setting on the hub.
        revision : str, optional
            An existing branch to upload to. None is the main branch.
        commit_message : str, optional

        Returns
        -------
        str
            The commit. ``load(repo, revision=commit)`` opens exactly what was uploaded.

        Raises
        ------
        UploadError
            Where the hub cannot be reached, wants another token, or refuses; and where the repository holds something
            else than an estimator. The message says what to do.
        TypeError, ValueError
            As in `save`; and where ``repo`` cannot be the name of a repository, or ``private`` is not what it is.

        Warns
        -----
        KbertWarning
            When the repository has a README.md that somebody wrote or edited, which is kept.

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
        >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
        >>> commit = classifier.push_to_hub("me/reviews", private=True)  # doctest: +SKIP
        >>> BertClassifier.load("me/reviews", revision=commit)  # doctest: +SKIP
        """
        estimator, facts = self._to_save(card)
        target = uploads.Repository.find(repo, revision, private, marker=kbert_json.FILE)
        with tempfile.TemporaryDirectory(prefix="kbert-") as folder:
            estimator._write(Path(folder), target.name, facts)
            message = commit_message or f"{type(self).__name__} saved by kbert {kbert.__version__}"
            commit, keeps_card = target.upload(Path(folder), message, kbert_json.SAVED_ESTIMATOR.files)
        if keeps_card:
            warn_user(
                f"The {model_cards.FILE} of {target.name!r} on the hub was written or edited by somebody, and is kept "
                "as it is: what it says may not hold of the estimator that was uploaded now. To have kbert's model "
                "card there, remove it on the hub and upload again.",
                KbertWarning,
            )
        return commit

    def _to_save(self, card: Mapping[str, Any] | None) -> tuple[Self, dict[str, Any]]:
        """The estimator as it is now, checked, and what the user says of it: now, or when it was saved before."""
        estimator = self._of_one_fit()
        estimator._require_keras_model("save")
        checked_parameters(estimator)
        return estimator, getattr(estimator, "card_", {}) | model_card.checked_facts(card)

    def _write(self, folder: Path, name: str, facts: dict[str, Any]) -> None:
        """Write all files into an empty folder. ``name`` is what loads it; ``facts`` are for its model card."""
        self._save_model(folder)
        self.tokenizer_.save(folder)
        values = self._to_json(facts)
        values["golden"]["weights"] = sha256_of(folder / SAFETENSORS)
        (folder / model_cards.FILE).write_bytes(model_card.model_card(self, folder, name, facts))
        # Last, because it is what makes a folder that of a saved estimator.
        kbert_json.write(folder, values)

    def _to_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        """All of the estimator but its model and tokenizer."""
        logits = self._logits_of_texts(list(GOLDEN_TEXTS))
        if not np.isfinite(logits).all():
            raise DivergedError(
                f"The outputs of this {type(self).__name__} are not finite numbers, so it is not saved. Fit it again "
                "with a lower learning_rate, or in float32."
            )
        return {
            "format": kbert_json.FORMAT,
            "kbert": kbert.__version__,
            "estimator": type(self).__name__,
            "parameters": {
                name: None if name == "checkpoint" else kbert_json.encode_value(value)  # a folder of this machine
                for name, value in self.get_params(deep=False).items()
            },
            "learned": self._learned_to_json(),
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "history": getattr(self, "history_", None),
            "rows_of_fit": self._rows_of_fit(),
            "set_output": self._container(),
            "settled": {name: getattr(self, f"{name}_") for name in SETTLED if hasattr(self, f"{name}_")},
            "golden": {"texts": GOLDEN_TEXTS, "logits": logits.tolist(), "dtype": self.model_.dtype_policy.name},
            "card": facts,
        }

    def _container(self) -> str | None:
        """What `set_output` has asked for, if it has, and there is such a method."""
        return getattr(self, "_sklearn_output_config", {}).get("transform") if hasattr(self, "set_output") else None

    def _require_keras_model(self, method: str) -> None:
        """Refuse what an exported model cannot do: it has no weights that kbert reads, and no derivatives."""
        if isinstance(self.model_, ExportedModel):
            raise ValueError(
                f"{type(self).__name__}.{method} needs the Keras model, and this estimator was loaded from "
                f"{self.model_.folder}, an exported model, which predicts. Load the folder that `save` wrote."
            )

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        verify: bool = False,
        revision: str | None = None,
        runtime: str = "auto",
    ) -> Self:
        """Open a saved or exported estimator, or a model for the same task that transformers saved.

        Parameters
        ----------
        folder : str or Path
            A folder; or a name on the Hugging Face hub, "owner/name". What was downloaded stays in the hub's cache, and
            is taken from there without asking the hub again.
        verify : bool, default=False
            Compare the checksum of the weights with the one that was stored, and the logits of a few texts with those
            that were stored with them.
        revision : str, optional
            Branch, tag or commit of a hub name. Give the commit to have the same model always.
        runtime : {"auto", "onnxruntime", "openvino", "tensorflow"}, default="auto"
            What runs the model of a folder that `export` wrote. "auto": the one that is installed; of both, the
            faster one for this model and processor. Keras and its backend are not imported, and the estimator
            predicts: it cannot be saved or explained. A SavedModel is a program, which may read and write files: it
            needs "tensorflow", by name.

        Returns
        -------
        estimator
            Fitted. For a folder that transformers saved, labels are the names in its ``id2label``, or whole numbers
            where it has none, or (with a warning) not as many as the head has outputs.

        Raises
        ------
        WeightsNotFoundError, WeightsMismatchError
            When the folder is not there, not complete, damaged, or (with ``verify``) predicts something else.
        ValueError
            When a ``revision`` is given for a folder, a ``runtime`` for a folder that was not exported, or none for a
            SavedModel; and ``verify`` for a folder that kbert did not save.
        ImportError
            When no runtime is installed for an exported model.
        """
        return read_whole(folder, lambda: cls._load(folder, verify, revision, runtime))

    @classmethod
    def _load(cls, folder: str | os.PathLike[str], verify: bool, revision: str | None, runtime: str) -> Self:
        given = folder if isinstance(folder, Path) else os.fspath(folder)
        folder = resolve_saved(given, revision, kbert_json.FILE)
        saved = kbert_json.read(folder, cls.__name__)
        if saved is None and verify:
            raise ValueError(
                f"verify=True compares the model's outputs with those that `save` has stored, and {folder} has none: "
                "kbert did not save it. Leave verify out."
            )
        if saved is None and (architecture := cls()._architecture()) is not None:
            kbert_json.check_architecture(folder, architecture, cls.__name__)
        if saved is None:
            # A name on the hub stays one: its folder in the cache is of this machine alone.
            is_folder = Path(os.path.expanduser(given)).is_dir()
            parameters = {"weights": str(folder) if is_folder else str(given), "revision": revision}
        else:
            parameters = kbert_json.decode_parameters(saved)
        parameters_of_class = cls._get_param_names()
        unknown = sorted(set(parameters) - set(parameters_of_class))
        if unknown:
            raise WeightsMismatchError(
                f"{kbert_json.file_of(folder)} holds parameters that this {cls.__name__} does not have: "
                f"{', '.join(unknown)}. Was it written by another version of kbert? Update kbert."
            )
        estimator = cls(**parameters)
        if saved is not None:
            try:
                checked_parameters(estimator)
            except (TypeError, ValueError) as error:
                raise WeightsMismatchError(
                    f"{kbert_json.file_of(folder)} is damaged (parameters: {error}). Save the estimator again."
                ) from None
        if is_exported(folder):
            quantize = None if saved is None else saved.inner("check").get("quantize")
            estimator.model_ = estimator._exported_model(folder, runtime, quantize)
        elif runtime != "auto":
            raise ValueError(f"runtime={runtime!r} is for folders that `export` wrote, and {folder} is none.")
        else:
            require_usable_process()
            estimator.model_ = estimator._load_model(folder, dtype_policy(estimator.dtype))
        estimator.config_ = estimator.model_.config
        estimator.tokenizer_ = WordPieceTokenizer.from_pretrained(folder)
        check_vocabulary(estimator.tokenizer_.vocab_size, estimator.config_.vocab_size, folder)
        if saved is None:
            estimator._settle_lengths_without_fit()
            estimator._learned_from_config(folder)
            if "epochs" in parameters_of_class:
                estimator.history_, estimator.n_iter_ = {}, 0
        else:
            estimator._restore(saved, folder)
            if verify:
                estimator._verify(saved["golden"], folder)
        return estimator

    def _restore(self, saved: SavedValues, folder: Path) -> None:
        self._learned_from_json(saved.inner("learned"), folder)
        self.started_from_ = {name: getattr(self, name) for name in OF_START}
        if saved["n_features_in"] is not None:
            self.n_features_in_ = saved["n_features_in"]
        if saved["feature_names_in"]:
            self.feature_names_in_ = np.array(saved["feature_names_in"], dtype=object)
        if saved["history"] is not None:
            self.history_ = saved["history"]
            self.n_iter_ = len(self.history_.get("loss", []))
        self._restore_rows_of_fit(saved)
        if saved["card"]:
            facts = saved.inner("card")
            self.card_ = {key: facts.checked(key, rule) for key, rule in model_card.FACTS.items() if key in facts}
        if saved.get("set_output") is not None and hasattr(self, "set_output"):
            self.set_output(transform=saved.checked("set_output", one_of("default", "pandas", "polars")))
        settled = saved.inner("settled")
        for name in set(SETTLED).intersection(settled):
            setattr(self, f"{name}_", settled.checked(name, OVER_0 if name == "learning_rate" else RULES[name]))

    def _settle_lengths_without_fit(self) -> None:
        """Choose the lengths for a model that transformers saved."""
        if self.max_length == "auto":
            in_windows = getattr(self, "long_text", None) == "auto"
            self.max_length_ = automatic_length(self.config_, in_windows)
            if in_windows:
                self.long_text_ = "window"
        else:  # the default may be more than a small model has positions
            self.max_length = min(self.max_length, self.config_.max_position_embeddings)

    def _rows_of_fit(self) -> dict[str, Any] | None:
        """What fit told of its rows, as JSON can hold it; None where that is not known."""
        shares = getattr(self, "row_shares_", None)
        if shares is None:
            return None
        return {"n_rows": self.n_rows_, "n_truncated": self.n_truncated_, **shares._asdict()}

    def _restore_rows_of_fit(self, saved: SavedValues) -> None:
        """Take back what `_rows_of_fit` gave."""
        if saved["rows_of_fit"] is not None:
            rows = saved.inner("rows_of_fit")
            self.n_truncated_ = rows.checked("n_truncated", whole(0))
            self.n_rows_ = rows.checked("n_rows", whole(0))
            self.row_shares_ = RowShares(rows.checked("cut", SHARE), rows.checked("empty", SHARE))

    def _verify(self, golden: dict[str, Any], folder: Path) -> None:
        # In bfloat16 outputs vary so much with the machine that they do not tell of every damage.
        if "weights" in golden and (saved := folder / SAFETENSORS).exists() and sha256_of(saved) != golden["weights"]:
            raise WeightsMismatchError(
                f"{saved} is not the file that was saved with {kbert_json.file_of(folder)}: it was changed or damaged. "
                "Copy the folder again, or save the estimator again."
            )
        expected, found = np.array(golden["logits"]), self._logits_of_texts(golden["texts"])
        if expected.size != found.size or (found.size and expected.shape != found.shape):
            raise WeightsMismatchError(
                f"{kbert_json.file_of(folder)} is damaged (golden.logits has shape {expected.shape}, and the model's "
                f"outputs have {found.shape}). Save the estimator again."
            )
        policies = {self.model_.dtype_policy.name, golden["dtype"]}
        if isinstance(self.model_, ExportedModel) and self.model_.quantize is not None:
            policies.add("mixed_bfloat16")  # runtimes differ about as much in int8
        tolerance = max(_GOLDEN_TOLERANCE[name] for name in policies)
        off = self._off(expected, found)
        if not off.max(initial=0.0) <= tolerance:  # NaN is off too
            raise WeightsMismatchError(
                f"The model in {folder} does not predict what it did when it was saved: its outputs differ by up to "
                f"{np.abs(found - expected).max():.2g} ({off.max():.2g} of their size, allowed {tolerance:.2g}). The "
                "folder was changed, or the computation differs."
            )

    def _off(self, expected: np.ndarray, found: np.ndarray, axis: int | None = None) -> np.ndarray:
        """How far each output is off, as a share of the outputs' size: the largest, of all or along an axis, or 1.

        Numbers of a regression may be in any unit, and far from 0. Their size is the scale of y.
        """
        differences = np.abs(found - expected)
        scale = getattr(self, "y_scale_", None)
        if scale is None:
            return differences / np.maximum(1.0, np.abs(expected).max(axis=axis, initial=0.0))
        size = np.maximum(scale, np.abs(expected - self.y_mean_).max(axis=0, initial=0.0))
        return np.maximum(0.0, differences - _ROUNDING * np.abs(expected)) / size
