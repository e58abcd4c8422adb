"""CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints, with NumPy alone and at gigabytes a second.

A message is a polynomial over GF(2), its first bit that of the highest power, and its CRC is the remainder by
P(x) = 0x1EDC6F41. One table look-up a byte, the usual way, takes Python a minute for BERT-base. But whole arrays can be
reduced by exclusive-or alone:

- A sparse multiple of P, such as Q(x) = x^6128 + x^2783 + x^358 + 1, has zero remainder. So each bit may be removed if
  it is added to the places 3345, 5770 and 6128 bits further on: the remainder by P stays.
- Over GF(2), Q(x)^n = Q(x^n) where n is a power of 2, and is a multiple of P too. So the same holds of units of any
  2^k bits in place of bits, and 3345 units at a time, since the nearest place is that far away.

What is left at the end is some hundred bytes for the table. The exponents were found by searching all multiples of P of
this form with x^b, b at most half of the degree; the tests divide them by P.
"""

import numpy as np

# Exponents of the sparse multiples of P, and the bytes of a unit, largest first.
FOLDS = (((6128, 2783, 358, 0), 16), ((6128, 2783, 358, 0), 1), ((563, 109, 58, 53, 31, 0), 1))
_STEPS = 8  # that go through the buffer at once, so that it stays in a processor's cache


def crc32c(data: bytes | np.ndarray) -> int:
    """The CRC-32C of bytes, or of a one-dimensional array of uint8."""
    state = 0xFFFFFFFF
    for exponents, unit in FOLDS:
        if len(data) > exponents[0] * unit:
            data, state = _fold(np.frombuffer(data, "uint8"), state, exponents, unit), 0
    for byte in bytes(data):
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | np.ndarray) -> int:
    """The checksum as TensorFlow and LevelDB store it, so that those of data with checksums inside stay meaningful."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _fold(message: np.ndarray, state: int, exponents: tuple[int, ...], unit: int) -> np.ndarray:
    """A message of only ``exponents[0]`` units that leaves the same remainder from the state 0."""
    top, *lower = (exponent * unit for exponent in exponents)
    step = top - lower[0]
    # The units that are left of what came before, and the next ones.
    buffer = np.zeros(top + _STEPS * step, "uint8")
    for start in range(0, len(message), _STEPS * step):
        part = message[start : start + _STEPS * step]
        buffer[top : top + len(part)] = part
        if start == 0:
            # The state that a CRC starts from adds to the first bytes.
            buffer[top : top + 4] ^= np.frombuffer(state.to_bytes(4, "little"), "uint8")
        for first in range(0, len(part), step):
            removed = buffer[first : min(first + step, len(part))]
            for exponent in lower:
                further = buffer[first + top - exponent :][: len(removed)]
                np.bitwise_xor(further, removed, out=further)
        buffer[:top] = buffer[len(part) : len(part) + top].copy()
    return buffer[:top].copy()


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # P, its bits in reverse order
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))
