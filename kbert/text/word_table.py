"""A hash table in NumPy arrays, with open addressing: the numbers of many short words are looked up at once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# A word has two keys: its first eight bytes as a whole number, and its next eight. Longer words cannot be stored.
LONGEST = 16
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], "<u8")
# Odd numbers that mix the bits of a product: those of splitmix64 (Steele, Lea and Flood, 2014), and the golden ratio's.
_MIX = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_FEWEST_SLOTS = 2**12

Keys: TypeAlias = NDArray[np.uint64]
Slots: TypeAlias = tuple[Keys, Keys, NDArray[np.int64]]  # first keys, second keys, numbers


def windows_of(data: NDArray[np.uint8]) -> Keys:
    """The eight bytes from each position on, as one number. ``data`` ends in `LONGEST` bytes of padding."""
    return np.ndarray(len(data) - 7, "<u8", data, strides=(1,))


def keys_of(windows: Keys, starts: NDArray[Any], lengths: NDArray[Any]) -> tuple[Keys, Keys]:
    """The two keys of words of at most `LONGEST` bytes, given by their first positions and their lengths."""
    first = windows[starts] & _MASKS[np.minimum(lengths, 8)]
    second = np.zeros(len(first), "<u8")
    longer = np.flatnonzero(lengths > 8)
    second[longer] = windows[starts[longer] + 8] & _MASKS[lengths[longer] - 8]
    return first, second


def mixed(first: Keys, second: Keys) -> Keys:
    """A hash of each pair of keys: each of its bits depends on all bits of both keys."""
    product = (first * _MIX[0] + second) * _MIX[1]
    hashes: Keys = (product ^ (product >> np.uint64(32))) * _MIX[2]
    return hashes


class WordTable:
    """Words of at most `LONGEST` bytes and their numbers. Many threads may look words up while one adds some."""

    def __init__(self) -> None:
        self._n = 0
        self._slots = self._empty(_FEWEST_SLOTS)

    def __len__(self) -> int:
        return self._n

    def numbers_of(self, first: Keys, second: Keys) -> NDArray[np.int64]:
        """The numbers of words, given by their keys; -1 for words that are not in the table."""
        firsts, seconds, numbers = self._slots
        slot = self._slot(mixed(first, second), len(firsts))
        found = np.full(len(first), -1, np.int64)
        left = np.arange(len(first))
        while len(left):
            # An empty slot has the first key 0, which no word has: none begins with the byte 0.
            key_there = firsts[slot]
            same = (key_there == first) & (seconds[slot] == second)
            found[left[same]] = numbers[slot[same]]
            go_on = ~same & (key_there != 0)
            left, first, second = left[go_on], first[go_on], second[go_on]
            slot = (slot[go_on] + 1) % len(firsts)
        return found

    def add(self, first: Keys, second: Keys, numbers: NDArray[np.int64]) -> None:
        """Add words, each once, that are not in the table."""
        self._n += len(first)
        slots, n_slots = self._slots, len(self._slots[0])
        while 2 * self._n > n_slots:
            n_slots *= 2
        if n_slots > len(slots[0]):
            taken = slots[0] != 0
            firsts, seconds, earlier = slots
            slots = self._empty(n_slots)
            self._put(slots, firsts[taken], seconds[taken], earlier[taken])
        self._put(slots, first, second, numbers)
        self._slots = slots  # in one assignment, for threads that look up meanwhile

    @staticmethod
    def _empty(n_slots: int) -> Slots:
        return np.zeros(n_slots, "<u8"), np.zeros(n_slots, "<u8"), np.zeros(n_slots, np.int64)

    @staticmethod
    def _slot(hashes: Keys, n_slots: int) -> NDArray[np.int64]:
        return (hashes >> np.uint64(65 - n_slots.bit_length())).astype(np.int64)

    @classmethod
    def _put(cls, slots: Slots, first: Keys, second: Keys, number: NDArray[np.int64]) -> None:
        firsts, seconds, numbers = slots
        slot = cls._slot(mixed(first, second), len(firsts))
        claimed = np.empty(len(firsts), np.int64)
        while len(slot):
            free = np.flatnonzero(firsts[slot] == 0)
            claimed[slot[free]] = free  # if several words claim one slot, the last of them gets it
            won = free[claimed[slot[free]] == free]
            # The first key is written last: a thread that finds it finds the second key and the number too.
            numbers[slot[won]] = number[won]
            seconds[slot[won]] = second[won]
            firsts[slot[won]] = first[won]
            left = np.ones(len(slot), bool)
            left[won] = False
            slot, first, second, number = (slot[left] + 1) % len(firsts), first[left], second[left], number[left]
