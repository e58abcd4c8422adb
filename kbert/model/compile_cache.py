"""What JAX compiles, kept for the processes that come after this one."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The environment variable: a folder, or "1" for one in the user's cache folder.
COMPILE_CACHE = "KBERT_COMPILE_CACHE"
# Bytes, of JAX's entries and of kbert's; what was not used for the longest time goes first. The programs of a fit of a
# small BERT take 2 MB each.
_MOST_BYTES = 2**30
# How the names of kbert's own entries end.
_SUFFIX = ".kbert-program"


def compile_cache_folder() -> Path | None:
    """The folder that ``KBERT_COMPILE_CACHE`` names; None where it is not set, or "0"."""
    chosen = os.environ.get(COMPILE_CACHE, "0")
    if chosen in ("", "0"):
        return None
    if chosen != "1":
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "kbert" / "jax"


def use_compile_cache() -> None:
    """If Keras uses JAX and ``KBERT_COMPILE_CACHE`` is set, let JAX keep what it compiles in that folder.

    It is JAX's own persistent cache, with settings that suit fits on a CPU: everything is kept, also what compiles in
    less than a second, and the folder is bounded. Several processes may use it, and an entry that cannot be read is
    compiled again. The keys hold JAX's version and the kind of device. A folder that is set for JAX
    (``JAX_COMPILATION_CACHE_DIR``) stays, with the settings that it has there.
    """
    import keras

    folder = compile_cache_folder()
    if folder is None or keras.backend.backend() != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_max_size", _MOST_BYTES)


def compiled_or_kept(key: object, arguments: tuple[Any, ...], compile: Callable[[], Any]) -> Any:
    """What ``compile`` gives, or what it gave an earlier process.

    JAX's own cache is asked for a program that was traced: it knows by the program itself whether it has it. To trace a
    model takes as long as many steps, so here the key says what the program would be.

    Parameters
    ----------
    key : object
        Its ``repr`` tells everything that the program depends on beside the arguments' shapes and types, the versions
        of what is installed, and JAX's settings.
    arguments : tuple
        Of the compiled function; arrays in lists, tuples and dicts.
    compile : callable
        Gives a ``jax.stages.Compiled``.

    Notes
    -----
    An entry is a pickle of code, like those of JAX's cache: who can write to the folder can run programs as its user.
    """
    import jax

    folder = compile_cache_folder()
    # What was compiled for one of several devices would have to be loaded for that one.
    if folder is None or jax.device_count() > 1:
        return compile()
    from jax.experimental import serialize_executable

    path = folder / f"{_digest(key, arguments)}{_SUFFIX}"
    # An entry that is damaged, or that this JAX cannot load, is compiled again: what it raises then is not documented.
    with contextlib.suppress(Exception):
        program = serialize_executable.deserialize_and_load(*pickle.loads(path.read_bytes()))
        os.utime(path)
        return program
    program = compile()
    # Nor what it raises for a program that cannot be kept. A full or read-only disk is no reason to stop either.
    with contextlib.suppress(Exception):
        _keep(path, pickle.dumps(serialize_executable.serialize(program)))
    return program


def _digest(key: object, arguments: tuple[Any, ...]) -> str:
    import jax
    import keras

    leaves, tree = jax.tree.flatten(arguments)
    device = jax.devices()[0]
    facts = (
        key, str(tree), [(leaf.shape, str(leaf.dtype)) for leaf in leaves],
        device.platform, device.device_kind, device.client.platform_version, platform.machine(), _instructions(),
        jax.__version__, keras.__version__, _source(), os.environ.get("XLA_FLAGS"),
        jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision,
        jax.config.jax_numpy_dtype_promotion, keras.config.is_flash_attention_enabled(),
    )  # fmt: skip
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@functools.cache
def _instructions() -> str:
    """What this processor can do, where the system says it: code for another one might stop the process."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.processor()


@functools.cache
def _source() -> str:
    """A digest of kbert's code, of which the programs are made."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _keep(path: Path, content: bytes) -> None:
    """Write an entry at once, so that no other process finds half of it, and remove the oldest ones of too many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
    kept = sorted(path.parent.glob(f"*{_SUFFIX}"), key=lambda entry: entry.stat().st_mtime)
    total = sum(entry.stat().st_size for entry in kept)
    for entry in kept[:-1]:
        if total <= _MOST_BYTES:
            break
        total -= entry.stat().st_size
        entry.unlink(missing_ok=True)
