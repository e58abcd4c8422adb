"""Seeded damage to files: to their bytes, and to what is inside of JSON, archives, packed files and safetensors."""

import copy
import gzip
import io
import json
import os
import pickle
import struct
import zipfile

LONG, HUGE = "a" * 100_000, 10**30
# What takes the place of a value in JSON.
VALUES = [
    None, True, False, 0, 1, -1, 0.5, 2**31, 2**53, 2**63, 10**9, HUGE, -HUGE, 1e300, float("nan"), float("inf"),
    "", "a", "1", "nan", LONG, "../../etc/passwd", "\x1b[2J\x1b[31m", "\0", "\ud800", "\u202e", "é" * 50,
    [], {}, [[]], [None], [1, "a", None], [[0], [0, 1]], {"a": 1}, {"": None}, {"dict": 5}, {"BertConfig": {}},
    [0] * 10_000,
]  # fmt: skip
CONTROL = [b"\0", b"\x1b[2J", b"\x07", b"\r", b"\x85", b"\xc2\x9b31m", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80"]
LARGE = 150_000_000


class Payload:
    """What a pickle runs that somebody loads without care: it makes a folder."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def mutate(path, rng, marker, large=True):
    """Damage a file in one way or several.

    Parameters
    ----------
    path : Path
        The file, which is replaced.
    rng : random.Random
    marker : Path
        What a payload would make, if it ran.
    large : bool
        Whether a file may become so large that it may not be read whole.

    Returns
    -------
    str
        What was done.
    """
    content = path.read_bytes()
    if rng.random() < 0.04:
        return _mutate_place(path, rng, large)
    damaged, done = content, []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        damaged, what = mutated(path.name, damaged, rng, marker)
        done.append(what)
    path.write_bytes(damaged)
    return ", ".join(done)


def _mutate_place(path, rng, large):
    """What is no matter of the content."""
    what = rng.choice(("a folder in its place", "no file", "a link to itself", *["zeros without end"] * large))
    size = path.stat().st_size
    path.unlink()
    if what == "a folder in its place":
        path.mkdir()
        (path / "file").write_text("text")
    elif what == "a link to itself":
        path.symlink_to(path.name)
    elif what == "zeros without end":
        with path.open("wb") as file:
            file.truncate(LARGE + size)
    return what


def mutated(name, content, rng, marker):
    """Damage the content of a file of that name.

    Returns
    -------
    content : bytes
    what : str
        What was done.
    """
    if rng.random() < 0.75:
        for ending, change in INSIDE.items():
            if name.endswith(ending):
                try:
                    return change(name, content, rng, marker)
                except Exception:
                    break  # it was damaged before, and is no such file any more
    if rng.random() < 0.04:
        return pickle.dumps(Payload(marker), protocol=2), "a pickle"
    what = rng.choice(list(BYTES))
    return BYTES[what](content, rng), what


# === Bytes ===


def _place(content, rng):
    """Places near the two ends are as likely as all others: headers are there."""
    near = min(len(content), 64)
    return rng.choice((rng.randint(0, len(content)), rng.randint(0, near), len(content) - rng.randint(0, near)))


def _flipped(content, rng):
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if damaged:
            damaged[min(_place(content, rng), len(damaged) - 1)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _block(content, rng):
    begin = _place(content, rng)
    return begin, min(len(content), begin + rng.choice((1, 2, 4, 8, 64, 1000)))


def _deleted(content, rng):
    begin, end = _block(content, rng)
    return content[:begin] + content[end:]


def _repeated(content, rng):
    begin, end = _block(content, rng)
    return content[:end] + content[begin:end] * rng.choice((1, 1, 2, 1000)) + content[end:]


def _moved(content, rng):
    (begin, end), place = _block(content, rng), _place(content, rng)
    return content[:place] + content[begin:end] + content[place:]


def _inserted(content, rng):
    place = _place(content, rng)
    return content[:place] + rng.randbytes(rng.choice((1, 4, 100))) + content[place:]


def _replaced(content, rng):
    begin, end = _block(content, rng)
    filling = rng.choice((b"\0", b"\xff", b"\x7f", b"9", b"[", b" ", b"\n"))
    return content[:begin] + filling * (end - begin) + content[end:]


def _control(content, rng):
    place = _place(content, rng)
    return content[:place] + rng.choice(CONTROL) + content[place:]


BYTES = {
    "cut off": lambda content, rng: content[: _place(content, rng)],
    "flipped bits": _flipped,
    "a block deleted": _deleted,
    "a block repeated": _repeated,
    "a block elsewhere": _moved,
    "bytes inserted": _inserted,
    "a block replaced": _replaced,
    "control characters": _control,
    "empty": lambda content, rng: b"",
    "brackets": lambda content, rng: rng.choice((b"[", b'{"a":', b"(", b"\x80\x02]" + b"(")) * 100_000,
    "a long line": lambda content, rng: content + b"9" * 1_000_000,
}


# === JSON ===


def _places(value, path=()):
    """The paths of all values, without those of long lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for i, (key, inner) in enumerate(items):
        if i < 20 or i == len(value) - 1:
            yield from _places(inner, (*path, key))


def _of_json(name, content, rng, marker):
    value = json.loads(content)
    damaged, what = _of_value(value, rng)
    text = json.dumps(damaged, indent=rng.choice((None, 1)))
    if what == "a key twice" and (at := text.find('"')) > 0:
        key = rng.choice(list(damaged)) if isinstance(damaged, dict) and damaged else "a"
        text = f"{text[:at]}{json.dumps(key)}: {json.dumps(rng.choice(VALUES))}, {text[at:]}"
    if what == "a deep value":
        text = text.replace('"DEEP"', rng.choice(("[" * 100_000 + "]" * 100_000, "[" * 500 + "]" * 500)))
    if what == "a long number":
        text = text.replace('"LONG"', "9" * rng.choice((400, 5000)))
    return text.encode("utf-8"), f"JSON: {what}"


def _of_value(value, rng):
    value = copy.deepcopy(value)
    # Each depth is as likely as each other, else all changes would be in the longest list.
    places = list(_places(value))
    depth = rng.choice(sorted({len(place) for place in places}))
    place = rng.choice([place for place in places if len(place) == depth])
    what = rng.choice(
        ["a value"] * 6
        + ["a key missing", "a key more", "a key of another name", "a key twice", "a list longer", "a list shorter"]
        + ["a deep value", "a long number", "negative", "another number", "a value elsewhere"]
    )
    if not place:
        return (rng.choice(VALUES), "another value as the whole") if rng.random() < 0.3 else (value, "a key twice")
    outer = value
    for key in place[:-1]:
        outer = outer[key]
    key, old = place[-1], outer[place[-1]]
    match what:
        case "a key missing":
            del outer[key]
        case "a key more" if isinstance(outer, dict):
            outer[rng.choice(("new", "", "\x1b[31m", "\u202e", LONG, "auto_map", "__class__"))] = rng.choice(VALUES)
        case "a key of another name" if isinstance(outer, dict):
            outer[rng.choice(("", "\x1b[2J", f"{key}\n", f"{key} ", "\ud800"))] = outer.pop(key)
        case "a list longer" if isinstance(old, list):
            outer[key] = old * rng.choice((2, 3)) if len(old) > 100 else old * 1000
        case "a list shorter" if isinstance(old, list):
            outer[key] = old[: len(old) // 2]
        case "a deep value":
            outer[key] = "DEEP"
        case "a long number":
            outer[key] = "LONG"
        case "negative" if isinstance(old, int | float):
            outer[key] = -old
        case "another number" if isinstance(old, int | float):
            outer[key] = rng.choice((old + 1, old - 1, old * 2, old * 1000, float(old), str(old)))
        case "a value elsewhere":
            other = value
            for part in rng.choice(places):
                other = other[part] if part in other or isinstance(other, list) else old
            outer[key] = copy.deepcopy(other)
        case "a key twice":
            pass
        case _:
            what, outer[key] = "a value", rng.choice(VALUES)
    return value, what


def _of_lines(name, content, rng, marker):
    lines = content.split(b"\n")
    i = rng.randrange(len(lines))
    lines[i], what = _of_json(name, lines[i], rng, marker)
    return b"\n".join(lines), what


# === What is packed ===


def _of_zip(name, content, rng, marker):
    """One file of an archive; or the archive in another form, with right sums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    entry = rng.choice(list(files))
    what = rng.choice(("a file", "a file", "a file", "a file missing", "another name", "compressed", "a pickle"))
    if what == "a file missing":
        del files[entry]
    elif what == "another name":
        files[rng.choice(("../../evil", "/tmp/evil", "\x1b[2J", entry + "x"))] = files.pop(entry)
    elif what == "a pickle":
        body = pickle.dumps(Payload(marker), protocol=2)
        files[entry] = npy_of_objects(marker) if entry.endswith(".npy") else body
    elif what == "a file":
        files[entry], inner = mutated(entry, files[entry], rng, marker)
        what = f"{entry}: {inner}"
    method = zipfile.ZIP_DEFLATED if what == "compressed" else zipfile.ZIP_STORED
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for entry, body in files.items():
            archive.writestr(entry, body)
    return stream.getvalue(), f"archive: {what}"


def npy_of_objects(marker):
    """A .npy file whose one element is a pickle."""
    import numpy as np

    stream = io.BytesIO()
    array = np.empty(1, object)
    array[0] = Payload(marker)
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def _of_npy(name, content, rng, marker):
    """The header of an array: its type, order and shape."""
    if rng.random() < 0.1:
        return npy_of_objects(marker), "an array of pickles"
    length = struct.unpack("<H", content[8:10])[0]
    header, body = content[10 : 10 + length], content[10 + length :]
    change = rng.choice(
        ((b"'<", b"'>"), (b"<f4", b"<f8"), (b"<f4", b"|O "), (b"<u2", b"|O "), (b"(", b"(9999999999,"), (b"(", b"(-"))
        + ((b"False", b"True "), (b"{", b"["), (b"<u4", b"<i4"), (b"<u2", b"<i2"), (b"(", b"((" * 50))
    )
    header = header.replace(*change, 1)
    return content[:8] + struct.pack("<H", len(header)) + header + body, f"header {change[0]!r} to {change[1][:9]!r}"


def _of_gzip(name, content, rng, marker):
    inner, what = mutated(name.removesuffix(".gz"), gzip.decompress(content), rng, marker)
    return gzip.compress(inner, 1, mtime=0), f"packed: {what}"


def _of_safetensors(name, content, rng, marker):
    length = struct.unpack("<Q", content[:8])[0]
    header, what = _of_json(name, content[8 : 8 + length], rng, marker)
    stated = len(header) if rng.random() < 0.9 else rng.choice((0, 1, len(header) + 1, 10**12, 2**64 - 1))
    return struct.pack("<Q", stated) + header + content[8 + length :], f"header: {what}"


def _of_vocabulary(name, content, rng, marker):
    """Lines of a vocab.txt: fewer, more, twice, in another order."""
    lines = content.split(b"\n")
    i, what = (
        rng.randrange(len(lines)),
        rng.choice(("a line twice", "a line missing", "lines moved", "fewer", "a line")),
    )
    match what:
        case "a line twice":
            lines.insert(i, rng.choice(lines))
        case "a line missing":
            del lines[i]
        case "lines moved":
            rng.shuffle(lines)
        case "fewer":
            lines = lines[:i]
        case "a line":
            lines[i] = rng.choice((b"", b"\x1b[2J", b" ", b"##", b"[MASK]", b"\xc2\x85", b"a" * 100_000, b"a b"))
    return b"\n".join(lines), what


def _of_table(name, content, rng, marker):
    """A cell of a table, or a column."""
    lines = content.split(b"\n")
    tab = b"\t" if b"\t" in content else b" " if name.endswith(".conll") else b","
    i = rng.randrange(len(lines))
    cells = lines[i].split(tab)
    cell = rng.choice((b"", b'"', b"-1", b"nan", b"1e999", b"9" * 5000, b"a" * 200_000, b"\x1b[2J", b"B-", b"\0"))
    cells[rng.randrange(len(cells))] = cell
    lines[i] = tab.join(cells if rng.random() < 0.8 else [*cells, cell])
    return b"\n".join(lines), f"cell {cell[:8]!r}"


# What is inside a file, by the ending of its name.
INSIDE = {
    ".index.json": _of_json,
    ".json": _of_json,
    ".jsonl": _of_lines,
    ".gz": _of_gzip,
    ".safetensors": _of_safetensors,
    ".npz": _of_zip,
    ".npy": _of_npy,
    ".keras": _of_zip,
    ".bin": _of_zip,  # an older file is no archive
    "vocab.txt": _of_vocabulary,
    ".tsv": _of_table,
    ".csv": _of_table,
    ".conll": _of_table,
}
