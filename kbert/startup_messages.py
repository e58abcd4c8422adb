"""TensorFlow's start without the dozen lines that its C++ runtime writes. No Keras here.

They go to file descriptor 2 before Python could filter them, and tell the user of kbert nothing: errors that matter are
raised as exceptions. Python's logging, ``tf.get_logger()`` and absl's included, is not touched. Nothing is done under
``KBERT_KEEP_PROCESS_SETTINGS=1``, nor where the user has set ``TF_CPP_MIN_LOG_LEVEL`` to anything but 3.
"""

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from kbert.backend import chosen_backend, keeps_process_settings

_VARIABLE, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_compiler_lock = threading.Lock()
_compiler_has_started = False
# A line of absl's log ("I0000 00:00:1795368135.947253    8425 port.cc:153] ..."), one of TensorFlow's older log
# ("2024-05-01 10:00:00.123456: I tensorflow/core/..."), and what absl says of the lines before them.
_LINE_OF_LOG = re.compile(
    rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |\d{4}-\d\d-\d\d [\d:.]+: [IWE] |WARNING: All log messages before absl::"
)


def silence_runtime() -> None:
    """Let the runtime write no messages, unless the user has chosen which it writes.

    The level is 3, because one of the lines, about a GPU driver that is not there, is an error to the runtime.
    """
    if not keeps_process_settings():
        os.environ.setdefault(_VARIABLE, _SILENT)


def import_tensorflow() -> None:
    """If Keras is going to import TensorFlow, import it now, without the lines that come before it reads its level."""
    if "tensorflow" in sys.modules or "keras" in sys.modules or chosen_backend() != "tensorflow":
        return
    if keeps_process_settings() or os.environ.get(_VARIABLE) != _SILENT or find_spec("tensorflow") is None:
        return
    with _without_lines_of_log():
        import_module("tensorflow")


def start_compiler() -> None:
    """Have TensorFlow's compiler start now, without the lines that TensorFlow 2.18 writes then at every level.

    They come at the first computation that XLA compiles. Nothing is done but once in a process.
    """
    global _compiler_has_started
    with _compiler_lock:
        if _compiler_has_started or keeps_process_settings() or os.environ.get(_VARIABLE) != _SILENT:
            return
        tensorflow = import_module("tensorflow")
        with _without_lines_of_log():
            tensorflow.function(tensorflow.negative, jit_compile=True, autograph=False)(tensorflow.zeros(()))
        _compiler_has_started = True


@contextlib.contextmanager
def _without_lines_of_log() -> Iterator[None]:
    """Drop the log's lines from what is written to file descriptor 2 meanwhile; the rest is written at the end."""
    try:
        kept = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        file = tempfile.TemporaryFile()
    except OSError:  # no folder can be written to
        os.close(kept)
        yield
        return
    with file as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            rest = b"".join(line for line in written if not _LINE_OF_LOG.match(line))
            if rest:
                os.write(2, rest)
