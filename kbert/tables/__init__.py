"""Tables of any size: files in, predictions as files out, some thousand rows at a time."""

from typing import Any

__all__ = ["Written", "predict_table"]


def __getattr__(name: str) -> Any:
    # On first use: the commands of this package are imported without Keras.
    if name not in __all__:
        raise AttributeError(f"module 'kbert.tables' has no attribute {name!r}. It has: {', '.join(__all__)}")
    from kbert.tables import predict

    return getattr(predict, name)
