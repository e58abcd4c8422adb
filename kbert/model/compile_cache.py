"""What JAX compiles, kept for the processes that come after this one."""

import contextlib
import os
import time
from pathlib import Path

# The environment variable: a folder, or "1" for one in the user's cache folder.
COMPILE_CACHE = "KBERT_COMPILE_CACHE"
# Bytes; what was not used for the longest time goes first. The programs of a fit of a small BERT take 2 MB each.
_MOST_BYTES = 2**30
# Seconds after which an entry is not still being written.
_WRITTEN_BY_THEN = 60


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
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        jax.config.update("jax_compilation_cache_max_size", _MOST_BYTES)
    _remove_unfinished(folder)


def _remove_unfinished(folder: Path) -> None:
    """Remove entries that a killed process left: JAX writes an entry, then the time of its last use beside it.

    JAX would compile such a program in every process, and could store none while there is one.
    """
    for entry in folder.glob("*-cache"):
        with contextlib.suppress(OSError):  # another process may remove it too
            used = entry.with_name(f"{entry.name.removesuffix('-cache')}-atime")
            if not used.exists() and time.time() - entry.stat().st_mtime > _WRITTEN_BY_THEN:
                entry.unlink()
