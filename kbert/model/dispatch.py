"""In which thread JAX computes on a CPU."""

from kbert.backend import keeps_process_settings


def disable_jax_async_dispatch() -> None:
    """If Keras uses JAX, let JAX compute on a CPU in the thread that calls it.

    With its default, asynchronous dispatch, JAX computes in a thread of its own, where glibc maps the memory of every
    training step anew, whatever `kbert.training.memory` does (docs/project/performance_notes.md gives the cost).

    This is a setting of the whole process, ``jax_cpu_enable_async_dispatch`` of ``jax.config``. It concerns what is
    computed on one CPU device, by the user's own JAX code too: results are the same, but a call returns only when they
    are computed. JAX 0.10 reads the setting once, when it first uses the CPU: it cannot be changed for a fit and put
    back afterwards, and it has no effect if JAX has used the CPU before. To keep JAX's default, set the environment
    variable ``KBERT_KEEP_PROCESS_SETTINGS=1``; or set ``jax_cpu_enable_async_dispatch`` after importing ``BertEncoder``
    and before JAX is used.
    """
    import keras

    if keras.backend.backend() == "jax" and not keeps_process_settings():
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)
