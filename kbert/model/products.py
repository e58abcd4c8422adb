"""The product with a matrix of weights, computed in the way that is fastest on each backend."""

from __future__ import annotations

from kbert.model.base import Tensor
from kbert.model.setup import keras, ops


def product(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., D) times kernel (D, U), plus bias (U,): shape (..., U).

    x is reshaped to one matrix. The gradient of the kernel is then a plain product too; with a batch of matrices, XLA
    transposes x in memory.

    PyTorch multiplies float32 matrices on a CPU by MKL, which does not use the widest vectors of AMD's processors.
    oneDNN, which comes with PyTorch for its compiler, is twice as fast there (docs/project/performance_notes.md).
    """
    shape = ops.shape(x)
    x = ops.reshape(x, (-1, shape[-1]))
    y = None
    if keras.backend.backend() == "torch":
        from kbert.model.products_torch import added_product, onednn_product

        arrays = [None if a is None else ops.convert_to_tensor(a) for a in (x, kernel, bias)]
        y = onednn_product(*arrays)
        y = added_product(*arrays) if y is None else y
    if y is None:
        y = ops.matmul(x, kernel)
        y = y if bias is None else ops.add(y, bias)
    return ops.reshape(y, (*shape[:-1], kernel.shape[-1]))


# What the sides of matrices are a multiple of in the products of a GPU that are quickest.
_SIDE = 64


def product_with_table(x: Tensor, table: Tensor) -> Tensor:
    """x (..., D) times the rows of a table (V, D): shape (..., V).

    On PyTorch on a GPU the table is filled up with rows of zeros. Its products in bfloat16 need rows that begin at a
    multiple of 16 bytes, and those of 30,522 numbers do not. XLA does the same by itself.
    """
    V = table.shape[0]
    if V % _SIDE and _is_on_gpu_of_torch(table):
        return product(x, ops.transpose(ops.pad(table, ((0, -V % _SIDE), (0, 0)))))[..., :V]
    return product(x, ops.transpose(table))


def _is_on_gpu_of_torch(array: Tensor) -> bool:
    return bool(keras.backend.backend() == "torch" and array.device.type == "cuda")
