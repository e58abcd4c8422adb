"""In which thread JAX computes."""

import keras


def compute_jax_at_once() -> None:
    """Where Keras uses JAX, let JAX compute on a CPU in the thread that calls it.

    In JAX's own thread each step's memory is mapped anew, whatever `memory_kept` asks for (docs/performance.md). It
    holds for what is computed on one device of the CPU, if nothing was before. Who wants it otherwise sets
    ``jax_cpu_enable_async_dispatch`` of ``jax.config`` after importing an estimator or a model.
    """
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_cpu_enable_async_dispatch", False)
