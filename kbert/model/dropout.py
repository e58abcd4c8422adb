"""Dropout with random bits that cost next to nothing."""

from __future__ import annotations

from typing import Any

from kbert.model.base import Tensor
from kbert.model.setup import keras, ops

# At rates near 1, values are multiplied by so much that 16 bits do not give the rate exactly enough.
LARGEST_RATE = 0.95


@keras.saving.register_keras_serializable("kbert")
class Dropout(keras.layers.Layer):
    """In training, sets a share ``rate`` of the values to zero and multiplies the others by 1 / (1 - rate).

    It does the same as ``keras.layers.Dropout``, with other random bits. On JAX and TensorFlow they are an integer hash
    of position and seed, which the compiler fuses into the operations around it: the default generators (Threefry,
    Philox) take about a tenth of a training step on a CPU. PyTorch runs one operation at a time, which makes hashing
    slow. There the bits come from PyTorch's global generator, on a CPU 64 bits for four values.

    Parameters
    ----------
    rate : float
        Share of the values that are dropped, in [0, 1).
    seed : int
        Seed of the layer's own random stream; on PyTorch it has no effect.
    """

    def __init__(self, rate: float, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate, self.seed = rate, seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        if not training or not self.rate:
            return x
        if keras.backend.backend() == "torch":
            return _dropped_by_torch(x, self.rate)
        keep = random_bits(ops.shape(x), self.seed_generator.next()) >= ops.cast(int(self.rate * 2**32), "uint32")
        return ops.where(keep, x * ops.cast(1 / (1 - self.rate), x.dtype), ops.zeros((), x.dtype))

    def compute_output_spec(self, x: Tensor, **_: Any) -> keras.KerasTensor:
        return keras.KerasTensor(x.shape, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


def _dropped_by_torch(x: Tensor, rate: float) -> Tensor:
    import torch

    if x.device.type != "cpu" or rate > LARGEST_RATE:
        return torch.nn.functional.dropout(x, rate)
    return x * kept(x, rate)


def kept(x: Tensor, rate: float) -> Tensor:
    """What dropout multiplies x by, on PyTorch on a CPU: 0 in a share ``rate`` of the places, 1 / (1 - rate) elsewhere.

    PyTorch's own dropout draws a random number for each value, which takes a seventh of a training step. Here each
    value has 16 bits of one number, which give the rate up to 1e-5.
    """
    import torch

    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    factors = torch.empty(x.shape, dtype=x.dtype)
    return torch.ge(bits, round(rate * 2**16) - 2**15, out=factors).mul_(1 / (1 - rate))


def random_bits(shape: tuple[Any, ...], seed: Tensor) -> Tensor:
    """Independent uniform uint32 values of the given shape: a hash of each position and of a seed of two uint32."""
    size = 1
    for length in shape:
        size = size * length
    seed = ops.cast(seed, "uint32")
    positions = ops.reshape(ops.cast(ops.arange(size, dtype="int32"), "uint32"), shape)
    # Both words of the seed go into both rounds, well mixed. Otherwise seeds that differ by 1, such as those of two
    # layers or of two steps, would give streams that are shifted copies of each other.
    inner = _mix(ops.bitwise_xor(seed[0], _mix(seed[1])))
    outer = _mix(inner + seed[1])
    return _mix(ops.bitwise_xor(_mix(positions + inner), outer))


def _mix(x: Tensor) -> Tensor:
    """A bijection of uint32 in which each input bit flips each output bit with a probability close to one half.

    The constants are those that C. Wellons found by search ("Hash Prospector", 2018; bias 0.11).
    """
    x = _xor_shift(x, 16) * ops.cast(0x21F0AAAD, "uint32")
    x = _xor_shift(x, 15) * ops.cast(0xD35A2D97, "uint32")
    return _xor_shift(x, 15)


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    return ops.bitwise_xor(x, ops.right_shift(x, ops.cast(bits, "uint32")))
