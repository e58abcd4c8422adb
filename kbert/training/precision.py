"""The numbers that a model computes with: which ``dtype`` means which policy of Keras, imported when it is needed."""

# Weights are float32 under all of them.
DTYPES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def dtype_policy(dtype: str) -> str:
    """The Keras dtype policy of a ``dtype`` parameter.

    Parameters
    ----------
    dtype : {"auto", "float32", "bfloat16", "float16"}
        "auto" is float32 on a CPU, and bfloat16 on a GPU or TPU.
    """
    if dtype == "auto":
        dtype = "bfloat16" if has_accelerator() else "float32"
    return DTYPES[dtype]


def has_accelerator() -> bool:
    """Whether the backend computes on a GPU or TPU by default."""
    import keras

    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return bool(jax.default_backend() != "cpu")
    if backend == "torch":
        import torch

        return bool(torch.cuda.is_available())
    import tensorflow as tf

    return any(device.device_type in ("GPU", "TPU") for device in tf.config.list_logical_devices())
