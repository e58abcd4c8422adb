"""LevelDB's table of sorted keys and their values, as TensorFlow writes it for the index of a checkpoint.

The format is that of github.com/google/leveldb, doc/table_format.md: blocks, each with a byte for its compression and a
checksum after it; then a block without entries, a block that says where the others are, and a footer that says where
these two are. In a block, a key is stored as the bytes that it shares with the one before it, and the rest.
"""

from kbert.weights.crc32c import masked_crc32c

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48  # two handles, zeros up to 40 bytes, the magic number
_TRAILER = 5  # one byte of compression, four of checksum
_RESTART_INTERVAL = 16  # entries after which a key is stored whole
_COMPRESSIONS = {1: "Snappy"}
# A few bytes can claim to repeat all of a long key, so that the keys, not the file, are what has to be bounded.
_MOST_KEY_BYTES = 8 << 20


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All values of a table by their keys, in order.

    Raises
    ------
    ValueError
        If anything does not follow the format, or a checksum is wrong; it says what.
    NotImplementedError
        If the table is compressed.
    """
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("it does not end as such a table does")
    end = len(data) - _FOOTER
    empty, at = _handle(data, end)
    index, _ = _handle(data, at)
    if _entries(_block(data, *empty, end)):
        raise ValueError("it has a block of a kind that TensorFlow does not write")
    values: dict[bytes, bytes] = {}
    last, total, free = None, 0, 0
    for _, handle in _entries(_block(data, *index, end)):
        (offset, size), _ = _handle(handle, 0)
        if offset < free:
            raise ValueError("its blocks overlap")
        free = offset + size
        for key, value in _entries(_block(data, offset, size, end)):
            if last is not None and key <= last:
                raise ValueError("its keys are not in order")
            values[key] = value
            last, total = key, total + len(key)
            if total > _MOST_KEY_BYTES:
                raise ValueError("its keys are longer than any checkpoint's")
    return values


def write_table(values: dict[bytes, bytes]) -> bytes:
    """A table of these values, in a single block; as TensorFlow writes it if that is not more than 256 kB."""
    entries = sorted(values.items())
    last = entries[-1][0]
    # LevelDB takes the shortest key that is not before the last.
    successor = bytes([last[0] + 1]) if last and last[0] < 0xFF else last
    table, handles = b"", []
    for entries_of_block in (entries, []):
        handles.append(_written_handle(len(table), block := _written_block(entries_of_block)))
        table += block
    data, empty = handles
    index = _written_block([(successor, data)])
    footer = (empty + _written_handle(len(table), index)).ljust(_FOOTER - len(_MAGIC), b"\0")
    return table + index + footer + _MAGIC


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, seven in a byte, the lowest first; and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends within a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number in it has more than 64 bits")


def write_varint(value: int) -> bytes:
    """What `read_varint` reads."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Where a block starts and its bytes without the trailer; and the place after that."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _written_handle(offset: int, block: bytes) -> bytes:
    return write_varint(offset) + write_varint(len(block) - _TRAILER)


def _block(data: bytes, offset: int, size: int, end: int) -> bytes:
    """The contents of a block, once its place and its checksum were found right."""
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
    """The keys and values of a block. The places where keys are stored whole serve look-ups, and are passed over."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if len(block) < 4 or end < 0:
        raise ValueError("a block is shorter than it says")
    entries, key, at, total = [], b"", 0, 0
    while at < end:
        shared, at = read_varint(block, at)
        more, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + more + length > end:
            raise ValueError("an entry of a block is longer than the block")
        key = key[:shared] + block[at : at + more]
        entries.append((key, block[at + more : at + more + length]))
        at += more + length
        total += len(key)
        if total > _MOST_KEY_BYTES:
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
