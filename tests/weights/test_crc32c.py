"""CRC-32C: the published values, the table's answer at every kind of length, and the polynomials that make it fast."""

import numpy as np
import pytest

from kbert.weights.crc32c import _TABLE, FOLDS, crc32c, masked_crc32c

POLYNOMIAL = 0x11EDC6F41


def _by_table(data: bytes) -> int:
    """One look-up a byte, as everyone computes it."""
    state = 0xFFFFFFFF
    for byte in data:
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    "data, expected",
    [
        # RFC 3720, section B.4, its bytes read as a little-endian number
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        # the check value of the catalogue of CRCs (reveng.sourceforge.io)
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_published_values(data, expected):
    assert crc32c(data) == expected


@pytest.mark.parametrize("exponents, unit", sorted(set(FOLDS)))
def test_what_is_folded_with_is_a_multiple_of_the_polynomial(exponents, unit):
    multiple = sum(1 << exponent for exponent in exponents)
    while multiple.bit_length() >= POLYNOMIAL.bit_length():
        multiple ^= POLYNOMIAL << multiple.bit_length() - POLYNOMIAL.bit_length()
    assert multiple == 0 and unit & (unit - 1) == 0  # Q(x)^n is Q(x^n) for powers of 2 only


def test_long_data_has_the_tables_checksum_at_every_length_around_a_fold():
    data = np.random.default_rng(0).integers(0, 256, 700_000, dtype="uint8")
    edges = {exponents[0] * unit for exponents, unit in FOLDS}
    lengths = {edge + more for edge in edges for more in (-1, 0, 1, 2, 3, 4, 5, 777)} | {600_001, 700_000}
    for length in lengths:
        assert crc32c(data[:length]) == crc32c(data[:length].tobytes()) == _by_table(data[:length].tobytes()), length


def test_one_flipped_bit_of_a_million_changes_the_checksum():
    data = np.random.default_rng(1).integers(0, 256, 125_000, dtype="uint8")
    right = crc32c(data)
    for place in (0, 3, 62_500, 124_999):
        data[place] ^= 16
        assert crc32c(data) != right
        data[place] ^= 16
    assert crc32c(data) == right


def test_the_mask_is_that_of_leveldb():
    # leveldb/util/crc32c_test.cc: masked, it is another value, and not that of masking twice.
    crc = crc32c(b"foo")
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    assert masked_crc32c(b"foo") == (rotated + 0xA282EAD8) % 2**32 != crc
