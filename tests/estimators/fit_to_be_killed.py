"""A fit with a checkpoint, in a process of its own that a test kills: prints a digest of the weights.

python tests/estimators/fit_to_be_killed.py WEIGHTS CHECKPOINT [the update after which it is killed]
"""

import hashlib
import os
import signal
import sys

import keras

from kbert import BertClassifier
from kbert.training import checkpoint_folders
from kbert.training.updater import Updater

TEXTS = ["the table was great", "a sad chair", "the room", "it was awful and sad", "happy", "this was lovely"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "good"] * 3


def main():
    """Fit, or die on the way."""
    weights, checkpoint, *end = sys.argv[1:]
    checkpoint_folders.SECONDS_BETWEEN = 0.0
    updates = Updater.updates

    def dying(self, *arguments):
        for update in updates(self, *arguments):
            if end and update.number == int(end[0]):
                os.kill(os.getpid(), signal.SIGKILL)
            yield update

    Updater.updates = dying
    classifier = BertClassifier(weights=weights, checkpoint=checkpoint, batch_size=4, epochs=3, random_state=0)
    classifier.fit(TEXTS, LABELS)
    values = [keras.ops.convert_to_numpy(variable.value).tobytes() for variable in classifier.model_.weights]
    print(hashlib.sha256(b"".join(values)).hexdigest())


if __name__ == "__main__":
    main()
