"""Keras, ready for kbert: the backend is installed, starts quietly, and has the settings that kbert needs.

What may be the first of kbert to use Keras imports it from here.
"""

from kbert.backend import require_backend
from kbert.startup_messages import import_tensorflow

require_backend()
import_tensorflow()

import keras  # noqa: E402
from keras import ops  # noqa: E402

from kbert.model.compile_cache import use_compile_cache  # noqa: E402
from kbert.model.dispatch import disable_jax_async_dispatch  # noqa: E402

disable_jax_async_dispatch()
use_compile_cache()

__all__ = ["keras", "ops"]
