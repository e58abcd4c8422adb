"""Fits in a process of its own, which is killed by SIGKILL, or goes on and prints digests of the weights.

python tests/estimators/fit_to_be_killed.py WEIGHTS CHECKPOINT KIND [WHERE NUMBER]

KIND is one of `FITS`. WHERE is "in an update", or a place in the writing of a checkpoint, and NUMBER which of them.
Without these the fit goes on from the checkpoint to its end. Its digest is printed, and that of a fit without any.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import numpy as np
from test_fits_that_survive import made, weights_of

from kbert.training import checkpoint_folders
from kbert.training.updater import Updater


def die_in_an_update(number):
    """Let the process be killed in this update, before its checkpoint."""
    updates = Updater.updates

    def dying(self, *arguments, **options):
        for update in updates(self, *arguments, **options):
            if update.number == number:
                os.kill(os.getpid(), signal.SIGKILL)
            yield update

    Updater.updates = dying


def die_in_a_checkpoint(where, number):
    """Let the process be killed while this checkpoint is written."""
    target = f"checkpoint-{number:09d}"
    savez, rename = np.savez, Path.rename

    def dying_savez(file, **arrays):
        savez(file, **arrays)
        if where == "in a file of a checkpoint" and Path(file.name).parent.name == f"{target}.part":
            file.truncate(file.tell() // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_rename(path, new):
        if Path(new).name != target:
            return rename(path, new)
        if where == "when a checkpoint has its name":
            rename(path, new)
        os.kill(os.getpid(), signal.SIGKILL)

    np.savez, Path.rename = dying_savez, dying_rename


def digest(estimator):
    """A name for the weights."""
    return hashlib.sha256(b"".join(array.tobytes() for array in weights_of(estimator))).hexdigest()


def main():
    """Fit, or die on the way."""
    weights, checkpoint, kind, *end = sys.argv[1:]
    checkpoint_folders.SECONDS_BETWEEN = 0.0
    if end:
        where, number = end[0], int(end[1])
        die_in_an_update(number) if where == "in an update" else die_in_a_checkpoint(where, number)
    for folder in (checkpoint, None):
        estimator, rows = made(kind, weights, folder)
        print(digest(estimator.fit(*rows)))


if __name__ == "__main__":
    main()
