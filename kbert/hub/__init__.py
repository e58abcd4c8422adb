"""A name of weights -> a local folder. No Keras here, and huggingface_hub and kagglehub only when they are needed.

names.py          in which order a name is looked for
weight_files.py   which files of a folder are its weights
packages.py       installed packages that carry weights
hugging_face.py   the cache of the Hugging Face hub, and downloads from it
uploads.py        uploads to it
model_cards.py    README.md: its metadata, and whether somebody has edited it
kaggle.py         KerasHub presets, downloaded from Kaggle
"""

import sys
import warnings

from kbert.hub.names import resolve_folder, resolve_saved

if "ipykernel.zmqshell" in sys.modules:
    # huggingface_hub imports tqdm.auto, which warns, in red, of a notebook without ipywidgets; its bars are then text.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        import tqdm.auto  # noqa: F401

__all__ = ["resolve_folder", "resolve_saved"]
