"""Published data sets as DataFrames: GLUE, SQuAD, CoNLL and multiple choice; annotated texts too. No Keras here.

Each reader takes the file as it was published, plain or compressed (.gz, .bz2, .xz), and gives the columns that the
estimators take. ``load`` finds the file by the name of the data set. ``read_entities`` takes the exports of
annotation tools.
"""

from kbert.datasets.catalogue import NAMES, load
from kbert.datasets.choices import read_choices
from kbert.datasets.conll import iob1_to_bio, read_conll
from kbert.datasets.entities import read_entities
from kbert.datasets.glue import read_glue
from kbert.datasets.squad import read_squad
from kbert.datasets.submission import write_glue_submission

__all__ = [
    "NAMES",
    "iob1_to_bio",
    "load",
    "read_choices",
    "read_conll",
    "read_entities",
    "read_glue",
    "read_squad",
    "write_glue_submission",
]
