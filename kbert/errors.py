"""The errors and warnings of kbert. Each message says what to do next."""

from kbert.values.printable import printable_lines


class KbertError(Exception):
    """Base class of the errors that kbert defines. Names from files do not steer the terminal that shows one."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class BackendNotInstalledError(KbertError, ImportError):
    """The backend that Keras was told to use is not installed."""


class UnknownSizeError(KbertError, ValueError):
    """``size`` names no architecture that kbert knows."""


class WeightsNotFoundError(KbertError, FileNotFoundError):
    """No usable weights were found for a folder or a name.

    Attributes
    ----------
    looked_for : tuple of str
        Where they were looked for, if there is nothing of that name.
    """

    def __init__(self, message: str = "", looked_for: tuple[str, ...] = ()):
        super().__init__(message)
        self.looked_for = looked_for


class WeightsMismatchError(KbertError, ValueError):
    """A weights folder is damaged, incomplete, or does not fit the model."""


class UploadError(KbertError, RuntimeError):
    """An estimator could not be uploaded to the hub."""


class DatasetNotFoundError(KbertError, FileNotFoundError):
    """A published data set, or a part of it, was not found."""


class DivergedError(KbertError, RuntimeError):
    """Training gave losses, gradients or weights, or a model gives outputs, that are not finite numbers."""


class ForkedProcessError(KbertError, RuntimeError):
    """A process that was forked after kbert was used cannot predict or train: it lacks the backend's threads."""


class KbertWarning(UserWarning):
    """Base class of the warnings that kbert defines."""


class MissingTextWarning(KbertWarning):
    """Some texts were missing (None, NaN, pd.NA, "" or white space).

    They were read as empty or, in pre-training, left out.
    """


class TruncationWarning(KbertWarning):
    """Some texts did not fit ``max_length`` and were cut."""


class DatasetWarning(KbertWarning):
    """A data set has faults: rows or files were left out or are missing, or answers are not where the file says."""


class NewWeightsWarning(KbertWarning):
    """A checkpoint lacks some weights, which start at random."""


class LabelNamesWarning(KbertWarning):
    """The label names of a config.json do not fit the model's head, so that labels are numbers."""


class InexactWarning(KbertWarning):
    """Another library computes something slightly different from the same weights."""


class VocabularyWarning(KbertWarning):
    """A tokenizer.json has fewer entries than the model's embedding table has rows."""


class NewWordsWarning(KbertWarning):
    """A vocabulary has fewer unused tokens than new words were asked for."""


class UnknownWordsWarning(KbertWarning):
    """Many texts have words, emoji for instance, that the vocabulary lacks: to the model they are all the same."""


class LabelsWarning(KbertWarning):
    """y looks like something else than the labels that it is read as."""


class ParameterWarning(KbertWarning):
    """A parameter has a value that is hardly ever meant."""


class IncompleteWarning(KbertWarning):
    """The scores of an explanation do not add up to what they explain."""


class CheckpointWarning(KbertWarning):
    """Training goes on from the checkpoint before the newest, which is damaged; or on other devices than before."""


class FailedRunWarning(KbertWarning):
    """A fine-tuning run failed: it learned nothing but how often each label occurs."""


class UnderfitWarning(KbertWarning):
    """A fine-tuning run learned less than it could have: than a linear model does, or in so few updates."""
