"""Displays in HTML: texts with what a model found in them. `kbert.plots` has their names too."""

from kbert.displays.answers import AnswerDisplay
from kbert.displays.attributions import AttributionDisplay
from kbert.displays.entities import EntityDisplay

__all__ = ["AnswerDisplay", "AttributionDisplay", "EntityDisplay"]
