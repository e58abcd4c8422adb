"""The folder of `kbert pretrain`: a note of what its run trains on, and the finished model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbert.errors import WeightsMismatchError
from kbert.files.json_files import json_object, replace_json
from kbert.pretraining.shards import Shards

if TYPE_CHECKING:
    from kbert.pretraining.trainer import Pretraining


def note_source(folder: Path, shards: Shards) -> None:
    """Note the text and the vocabulary of a run; or check that they are those that were noted.

    Parameters
    ----------
    folder : Path
        Where the run has its checkpoints.
    shards : Shards

    Raises
    ------
    ValueError
        If it is something else, or another run is writing to the folder.
    WeightsMismatchError
        If the note is damaged.
    """
    from kbert.pretraining.checkpoints import only_run_in

    facts = {"text": shards.manifest["corpus"], "vocabulary": shards.manifest["vocabulary"]}
    path = folder / "source.json"
    with only_run_in(folder):
        # Without a checkpoint nothing has been trained.
        if path.exists() and any(folder.glob("checkpoint-*")):
            before = json_object(path, WeightsMismatchError, " Give another folder.")
            different = [name for name in facts if before.get(name) != facts[name]]
            if different:
                raise ValueError(
                    f"{folder} holds a run with other {' and '.join(different)}. Give another folder for another run."
                )
        else:
            replace_json(path, facts)


def save_finished(run: Pretraining, history: Any, out: Path) -> None:
    """Write the weights folder of a finished run. A kill meanwhile leaves no half of a file.

    ``history`` is the DataFrame that `Pretraining.run` returns.
    """
    from kbert.weights import save_pretraining

    unfinished = out / "run" / "finished"
    shutil.rmtree(unfinished, ignore_errors=True)
    save_pretraining(run.model, unfinished)
    run.tokenizer.save(unfinished)
    history.to_csv(unfinished / "history.csv", index=False)
    # config.json last, since it is what makes a folder that of a model.
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == "config.json"):
        path.replace(out / path.name)
    unfinished.rmdir()
