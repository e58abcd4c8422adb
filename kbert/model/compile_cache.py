"""What JAX and TensorFlow compile, kept for the processes that come after this one."""

import contextlib
import mmap
import os
import time
from pathlib import Path

# The environment variable: a folder, or "1" for one in the user's cache folder.
COMPILE_CACHE = "KBERT_COMPILE_CACHE"
# Bytes; what was not used for the longest time goes first. The programs of a fit of a small BERT take 2 MB each.
_MOST_BYTES = 2**30
_FLAGS = "TF_XLA_FLAGS"
# Seconds after which an entry is not still being written.
_WRITTEN_BY_THEN = 60


def compile_cache_folder(backend: str = "jax") -> Path | None:
    """The folder that ``KBERT_COMPILE_CACHE`` names; None where it is not set, or "0"."""
    chosen = os.environ.get(COMPILE_CACHE, "0")
    if chosen in ("", "0"):
        return None
    if chosen != "1":
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "kbert" / backend


def use_compile_cache() -> None:
    """If ``KBERT_COMPILE_CACHE`` is set, let Keras's backend keep what it compiles in that folder.

    It is the backend's own persistent cache, bounded. Several processes may use it, and an entry that cannot be read is
    compiled again. PyTorch compiles nothing.
    """
    import keras

    backend = keras.backend.backend()
    folder = compile_cache_folder(backend)
    if folder is not None and backend == "jax":
        _use_that_of_jax(folder)
    elif folder is not None and backend == "tensorflow":
        _use_that_of_tensorflow(folder)


def _use_that_of_jax(folder: Path) -> None:
    """With settings that suit fits on a CPU: everything is kept, also what compiles in less than a second.

    The keys hold JAX's version and the kind of device. A folder that is set for JAX (``JAX_COMPILATION_CACHE_DIR``)
    stays, with the settings that it has there.
    """
    import jax

    if jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ:
        jax.config.update("jax_compilation_cache_max_size", _MOST_BYTES)
    if jax.config.jax_compilation_cache_max_size != -1:  # without a bound JAX keeps no times
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


def _use_that_of_tensorflow(folder: Path) -> None:
    """That of the programs for CPUs. TensorFlow reads its flags when it first compiles.

    Its keys do not hold its version, so each has a folder of its own. A folder in ``TF_XLA_FLAGS`` stays.
    """
    import tensorflow

    flags = os.environ.get(_FLAGS, "")
    if "tf_xla_persistent_cache_directory" in flags:
        return
    folder = folder / tensorflow.__version__
    if any(character.isspace() for character in str(folder)):  # which would end the flag
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # nothing can be kept there
        return
    if not os.access(folder, os.W_OK):  # TensorFlow would fail
        return
    _remove_damaged_and_oldest(folder)
    ours = f"--tf_xla_persistent_cache_directory={folder} --tf_xla_persistent_cache_device_types=CPU"
    os.environ[_FLAGS] = f"{flags} {ours}".strip()


def _remove_damaged_and_oldest(folder: Path) -> None:
    """Remove programs that are cut off, with which TensorFlow would fail, and the oldest beyond the bound.

    TensorFlow writes a program under a name of its own, ending in ".tmp", and then renames it.
    """
    n_bytes = 0
    with contextlib.suppress(OSError):  # another process may remove them too
        for entry in folder.glob("*.tmp"):
            if time.time() - entry.stat().st_mtime > _WRITTEN_BY_THEN:
                entry.unlink()
        for entry in sorted(folder.glob("*.pb"), key=lambda path: path.stat().st_mtime, reverse=True):
            n_bytes += entry.stat().st_size
            if n_bytes > _MOST_BYTES or not _is_whole_file(entry):
                entry.unlink()


def _is_whole_file(path: Path) -> bool:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as message:  # of which little is read
            return _is_whole(message)


def _is_whole(message: bytes | mmap.mmap) -> bool:
    """Whether a message of Protocol Buffers ends with the end of a field.

    A field is a number with its type in the last three bits, and then a number, 8 or 4 bytes, or a length and so many
    bytes (https://protobuf.dev/programming-guides/encoding).
    """

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value, at

    at = 0
    try:
        while at < len(message):
            field, at = number(at)
            kind = field & 7
            if kind == 2:
                length, at = number(at)
                at += length
            elif kind == 0:
                _, at = number(at)
            else:
                at += {1: 8, 5: 4}[kind]
    except (IndexError, KeyError):
        return False
    return at == len(message) and at > 0
