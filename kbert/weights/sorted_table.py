"""LevelDB's sorted table of keys and values, which is the index of a TensorFlow checkpoint.

The format is that of github.com/google/leveldb, doc/table_format.md. A table consists of blocks with entries; a block
without entries; an index block, which says where the blocks are; and a footer, which says where the last two are. After
each block come a byte for its compression and a checksum. In a block, a key is stored as the number of bytes that it
shares with the key before it, and the remaining bytes.
"""

from __future__ import annotations

from kbert.weights.crc32c import masked_crc32c

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48  # bytes: two handles, zeros up to 40 bytes, the magic number
_TRAILER = 5  # bytes: one of compression, four of checksum
_RESTART_INTERVAL = 16  # every 16th key of a block is stored whole
_COMPRESSIONS = {1: "Snappy"}
# The most bytes of all keys. The size of the file is no bound: a few bytes can claim to share all of a long key.
_MOST_KEY_BYTES = 8 << 20

# The offset of a block, and its bytes without the trailer.
Handle = tuple[int, int]


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Read all values of a table, by their keys, in order.

    Raises
    ------
    ValueError
        If the data does not follow the format, or a checksum is wrong. The message says what is wrong.
    NotImplementedError
        If the table is compressed.
    """
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("it does not end as such a table does")
    end = len(data) - _FOOTER
    empty, position = _read_handle(data, end)
    index, _ = _read_handle(data, position)
    if _entries(_block(data, empty, end)):
        raise ValueError("it has a block of a kind that TensorFlow does not write")
    values: dict[bytes, bytes] = {}
    last: bytes | None = None
    key_bytes, free = 0, 0
    for _, encoded in _entries(_block(data, index, end)):
        handle, _ = _read_handle(encoded, 0)
        offset, size = handle
        if offset < free:
            raise ValueError("its blocks overlap")
        free = offset + size
        for key, value in _entries(_block(data, handle, end)):
            if last is not None and key <= last:
                raise ValueError("its keys are not in order")
            values[key] = value
            last, key_bytes = key, key_bytes + len(key)
            if key_bytes > _MOST_KEY_BYTES:
                raise ValueError("its keys are longer than any checkpoint's")
    return values


def write_table(values: dict[bytes, bytes]) -> bytes:
    """Write a table with a single block. TensorFlow does the same for up to 256 kB."""
    entries = sorted(values.items())
    last = entries[-1][0]
    # In the index LevelDB has the shortest key that is not less than the block's last one.
    successor = bytes([last[0] + 1]) if last and last[0] < 0xFF else last
    table, handles = b"", []
    for entries_of_block in (entries, []):
        handles.append(_written_handle(len(table), block := _written_block(entries_of_block)))
        table += block
    data, empty = handles
    index = _written_block([(successor, data)])
    footer = (empty + _written_handle(len(table), index)).ljust(_FOOTER - len(_MAGIC), b"\0")
    return table + index + footer + _MAGIC


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of up to 64 bits, seven in each byte, the lowest first. Return it and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("it ends within a number")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a number in it has more than 64 bits")


def write_varint(value: int) -> bytes:
    """Encode a number in the form that `read_varint` reads."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _read_handle(data: bytes, position: int) -> tuple[Handle, int]:
    """Read a handle. Return it and the position after it."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _written_handle(offset: int, block: bytes) -> bytes:
    return write_varint(offset) + write_varint(len(block) - _TRAILER)


def _block(data: bytes, handle: Handle, end: int) -> bytes:
    """Return the content of a block, and check that it lies before ``end`` and has the right checksum."""
    offset, size = handle
    if offset + size + _TRAILER > end:
        raise ValueError("it says that a block lies beyond its end")
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + _TRAILER]
    if masked_crc32c(block + trailer[:1]) != int.from_bytes(trailer[1:], "little"):
        raise ValueError("the checksum of a block is wrong")
    if trailer[0]:
        name = _COMPRESSIONS.get(trailer[0], f"method {trailer[0]}")
        raise NotImplementedError(f"it is compressed ({name})")
    return block


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a block. The list of the keys that are stored whole, at its end, is not needed."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if len(block) < 4 or end < 0:
        raise ValueError("a block is shorter than it says")
    entries: list[tuple[bytes, bytes]] = []
    key, position, key_bytes = b"", 0, 0
    while position < end:
        shared, position = read_varint(block, position)
        more, position = read_varint(block, position)
        length, position = read_varint(block, position)
        if shared > len(key) or position + more + length > end:
            raise ValueError("an entry of a block is longer than the block")
        key = key[:shared] + block[position : position + more]
        position += more
        entries.append((key, block[position : position + length]))
        position += length
        key_bytes += len(key)
        if key_bytes > _MOST_KEY_BYTES:
            raise ValueError("its keys are longer than any checkpoint's")
    return entries


def _written_block(entries: list[tuple[bytes, bytes]]) -> bytes:
    block, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % _RESTART_INTERVAL == 0:
            restarts.append(len(block))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        block += write_varint(shared) + write_varint(len(key) - shared) + write_varint(len(value))
        block += key[shared:] + value
        last = key
    for number in [*(restarts or [0]), len(restarts or [0])]:
        block += number.to_bytes(4, "little")
    block.append(0)  # not compressed
    return bytes(block) + masked_crc32c(bytes(block)).to_bytes(4, "little")
