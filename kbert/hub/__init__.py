"""A name of weights -> a local folder. No Keras here, and huggingface_hub and kagglehub only when they are needed.

names.py          in which order a name is looked for
weight_files.py   which files of a folder are its weights
packages.py       installed packages that carry weights
hugging_face.py   the cache of the Hugging Face hub, and downloads from it
kaggle.py         KerasHub presets, downloaded from Kaggle
"""

from kbert.hub.names import resolve_folder

__all__ = ["resolve_folder"]
