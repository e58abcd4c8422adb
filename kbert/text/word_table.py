"""Numbers of short words, looked up for many words at once: an open hash table in NumPy arrays."""

import numpy as np

# A word is two keys: its first eight bytes as a whole number, and the next eight. Longer ones have no place here.
LONGEST = 16
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], "<u8")
# Odd numbers that mix the bits of a product: those of splitmix64 (Steele, Lea and Flood, 2014), and the golden ratio's.
_MIX = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_FEWEST_SLOTS = 2**12


def windows_of(data: np.ndarray) -> np.ndarray:
    """The eight bytes from each place on, as one number. ``data`` ends in `LONGEST` bytes that are not looked at."""
    return np.ndarray(len(data) - 7, "<u8", data, strides=(1,))


def keys_of(windows: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys of words of at most `LONGEST` bytes, by where they start and how long they are."""
    first = windows[starts] & _MASKS[np.minimum(lengths, 8)]
    second = np.zeros(len(first), "<u8")
    longer = np.flatnonzero(lengths > 8)
    second[longer] = windows[starts[longer] + 8] & _MASKS[lengths[longer] - 8]
    return first, second


def mixed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A number for each pair of keys, of which all bits depend on all of theirs."""
    product = (first * _MIX[0] + second) * _MIX[1]
    return (product ^ (product >> np.uint64(32))) * _MIX[2]


class WordTable:
    """Words of at most `LONGEST` bytes and their numbers. Many threads may look words up while one adds some."""

    def __init__(self):
        self._n = 0
        self._slots = self._empty(_FEWEST_SLOTS)

    def __len__(self) -> int:
        return self._n

    def numbers_of(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The numbers of words, given by their keys; -1 for those that are not here."""
        firsts, seconds, numbers = self._slots
        slot = self._slot(mixed(first, second), len(firsts))
        found = np.full(len(first), -1, np.int64)
        left = np.arange(len(first))
        while len(left):
            # An empty slot has the first key 0, which no word has: none begins with the byte 0.
            there = firsts[slot]
            same = (there == first) & (seconds[slot] == second)
            found[left[same]] = numbers[slot[same]]
            go_on = ~same & (there != 0)
            left, first, second = left[go_on], first[go_on], second[go_on]
            slot = (slot[go_on] + 1) % len(firsts)
        return found

    def add(self, first: np.ndarray, second: np.ndarray, numbers: np.ndarray) -> None:
        """Take in words, each once, that are not here."""
        self._n += len(first)
        slots, n_slots = self._slots, len(self._slots[0])
        while 2 * self._n > n_slots:
            n_slots *= 2
        if n_slots > len(slots[0]):
            taken = slots[0] != 0
            slots = self._empty(n_slots)
            self._put(slots, *(array[taken] for array in self._slots))
        self._put(slots, first, second, numbers)
        self._slots = slots  # at once, for threads that look up

    @staticmethod
    def _empty(n_slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros(n_slots, "<u8"), np.zeros(n_slots, "<u8"), np.zeros(n_slots, np.int64)

    @staticmethod
    def _slot(mixed: np.ndarray, n_slots: int) -> np.ndarray:
        return (mixed >> np.uint64(65 - n_slots.bit_length())).astype(np.int64)

    @classmethod
    def _put(cls, slots, first, second, number) -> None:
        firsts, seconds, numbers = slots
        slot = cls._slot(mixed(first, second), len(firsts))
        claimed = np.empty(len(firsts), np.int64)
        while len(slot):
            free = np.flatnonzero(firsts[slot] == 0)
            claimed[slot[free]] = free  # of several words for one slot, the last one has it
            won = free[claimed[slot[free]] == free]
            # The first key last: who finds it finds the rest.
            numbers[slot[won]] = number[won]
            seconds[slot[won]] = second[won]
            firsts[slot[won]] = first[won]
            left = np.ones(len(slot), bool)
            left[won] = False
            slot, first, second, number = (slot[left] + 1) % len(firsts), first[left], second[left], number[left]
