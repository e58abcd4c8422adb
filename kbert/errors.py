"""The named errors and warnings of kbert. Each message says what to do next."""


class KbertError(Exception):
    """Base of the errors that kbert defines itself."""


class BackendNotInstalledError(KbertError, ImportError):
    """The backend that Keras was told to use is not installed."""


class UnknownSizeError(KbertError, ValueError):
    """``size`` names no architecture that kbert knows."""


class WeightsNotFoundError(KbertError, FileNotFoundError):
    """A folder or name does not lead to a usable weights folder."""


class WeightsMismatchError(KbertError, ValueError):
    """A weights folder is damaged, incomplete, or does not fit the model."""


class DatasetNotFoundError(KbertError, FileNotFoundError):
    """A published data set, or one part of it, is not where it was looked for."""


class DivergedError(KbertError, RuntimeError):
    """Several training steps in a row gave a loss or gradients that are not finite."""


class KbertWarning(UserWarning):
    """Base of the warnings that kbert defines itself."""


class MissingTextWarning(KbertWarning):
    """Some texts were missing (None, NaN, pd.NA, "") and were read as empty."""


class TruncationWarning(KbertWarning):
    """Some texts did not fit ``max_length`` and were cut."""


class DatasetWarning(KbertWarning):
    """A published file is not quite as it should be: rows left out, answers beside their place, too few rows."""


class NewWeightsWarning(KbertWarning):
    """A checkpoint lacked some weights, which were started at random."""


class LabelNamesWarning(KbertWarning):
    """The label names of a config.json do not fit the model's head, so that labels are numbers."""


class InexactWarning(KbertWarning):
    """Another library computes something slightly different from the same weights."""


class NewWordsWarning(KbertWarning):
    """A vocabulary has fewer unused places than new words were asked for."""


class FailedRunWarning(KbertWarning):
    """A fine-tuning run learned nothing but how often each label occurs."""
