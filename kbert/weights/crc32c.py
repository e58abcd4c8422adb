"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, with NumPy alone and at gigabytes a second.

A message is a polynomial over GF(2) whose first bit is the coefficient of the highest power. Its CRC is the remainder
of the division by P(x) = 0x1EDC6F41. The usual way, one table look-up for each byte, takes Python a minute for
BERT-base. Here long messages are first shortened by exclusive-or of whole arrays, which keeps the remainder:

- A sparse multiple of P, such as Q(x) = x^6128 + x^2783 + x^358 + 1, has the remainder 0. A bit may therefore be
  removed if it is added (by exclusive-or) to the bits 3345, 5770 and 6128 further on: that adds a multiple of P.
- Over GF(2), Q(x)^n = Q(x^n) where n is a power of 2, and this is a multiple of P too. So the same works with units of
  2^k bits in place of single bits. 3345 units can be removed at a time, since none of them is added to another one.

The few hundred bytes that are left go through the table. The exponents were found by searching all multiples of P of
this form whose middle exponents are at most half of the degree; the tests divide them by P.
"""

import numpy as np

# Exponents of the sparse multiples of P, and the bytes of a unit, largest first.
FOLDS = (((6128, 2783, 358, 0), 16), ((6128, 2783, 358, 0), 1), ((563, 109, 58, 53, 31, 0), 1))
# Steps (removals of as many units as possible) for each filling of the buffer, which then fits a processor's cache.
_STEPS = 8


def crc32c(data: bytes | np.ndarray) -> int:
    """Compute the CRC-32C of bytes, or of a one-dimensional array of uint8."""
    state = 0xFFFFFFFF
    for exponents, unit in FOLDS:
        if len(data) > exponents[0] * unit:
            data, state = _fold(np.frombuffer(data, "uint8"), state, exponents, unit), 0
    for byte in bytes(data):
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """Compute the checksum in the form that TensorFlow and LevelDB store.

    It is masked because to compute the CRC of data that contains CRCs is problematic (leveldb/util/crc32c.h).
    """
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _fold(message: np.ndarray, state: int, exponents: tuple[int, ...], unit: int) -> np.ndarray:
    """Shorten a message to ``exponents[0]`` units with the same remainder.

    Parameters
    ----------
    message : ndarray of uint8
    state : int
        The state of the CRC before the message. After the returned one, it starts at 0.
    exponents : tuple of int
        Those of a sparse multiple of P, in falling order.
    unit : int
        Bytes of a unit.
    """
    top, *lower = (exponent * unit for exponent in exponents)
    step = top - lower[0]
    # What is left of the message so far, and the next part of it.
    buffer = np.zeros(top + _STEPS * step, "uint8")
    for start in range(0, len(message), _STEPS * step):
        part = message[start : start + _STEPS * step]
        buffer[top : top + len(part)] = part
        if start == 0:
            # A CRC that starts from a state is that of a message whose first bytes are combined with the state.
            buffer[top : top + 4] ^= np.frombuffer(state.to_bytes(4, "little"), "uint8")
        for first in range(0, len(part), step):
            removed = buffer[first : min(first + step, len(part))]
            for exponent in lower:
                further = buffer[first + top - exponent :][: len(removed)]
                np.bitwise_xor(further, removed, out=further)
        buffer[:top] = buffer[len(part) : len(part) + top].copy()
    return buffer[:top].copy()


def _remainder(byte: int) -> int:
    """Compute an entry of the table."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # P with its bits in reverse order
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))
