"""Displays as scikit-learn has them: curves, which matplotlib draws, and texts with marks, which are pages of HTML."""

from kbert.plots.answers import AnswerDisplay
from kbert.plots.attributions import AttributionDisplay
from kbert.plots.entities import EntityDisplay
from kbert.plots.layers import LayerDisplay
from kbert.plots.lengths import LengthDisplay
from kbert.plots.pretraining import PretrainingDisplay
from kbert.plots.training import TrainingDisplay

__all__ = [
    "AnswerDisplay",
    "AttributionDisplay",
    "EntityDisplay",
    "LayerDisplay",
    "LengthDisplay",
    "PretrainingDisplay",
    "TrainingDisplay",
]
