"""What X and y mean: one file a task, and the base class through which the shared fit uses it (`kbert.tasks.task`)."""

from kbert.tasks.choice import Choice
from kbert.tasks.questions import Questions
from kbert.tasks.regression import Regression
from kbert.tasks.several_labels import SeveralLabels
from kbert.tasks.single_label import SingleLabel
from kbert.tasks.tagging import Tagging
from kbert.tasks.task import Task, task_of

__all__ = [
    "Choice",
    "Questions",
    "Regression",
    "SeveralLabels",
    "SingleLabel",
    "Tagging",
    "Task",
    "task_of",
]
