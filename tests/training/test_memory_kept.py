"""Memory between steps: kept while it is wanted, given back afterwards, and left alone where the user has chosen."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbert.training import memory

# Blocks by malloc itself: NumPy asks for huge pages, of which there are few to touch.
BLOCKS = """
import ctypes, resource
from kbert.training.memory import memory_kept

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
SIZE = 100 * 2**20

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(SIZE)
    libc.memset(block, 1, SIZE)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
"""


def run(code: str, **environment: str) -> list[int]:
    """What such a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS + code], capture_output=True, text=True, check=True, env=environment
    )
    return [int(number) for number in done.stdout.split()]


@pytest.mark.usefixtures("own_allocator")
def test_pages_are_touched_once_and_given_back_at_the_end():
    first, second, kept, left, nested = run("""
with memory_kept():
    print(faults(), faults(), resident() // SIZE)
print(resident() // SIZE)
with memory_kept():
    with memory_kept():
        faults()
    print(faults())
""")
    assert first > 20 and second < first / 10
    assert kept == 1 and left == 0
    assert nested < first / 10  # the inner end does not give back what the outer one keeps


@pytest.mark.usefixtures("own_allocator")
@pytest.mark.parametrize(
    "environment",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"KBERT_KEEP_PROCESS_SETTINGS": "1"},
    ],
)
def test_what_the_user_has_chosen_stands(environment):
    first, second = run("with memory_kept(): print(faults(), faults())", **environment)
    assert second > first / 2


def test_several_threads_may_be_inside_and_an_error_leaves():
    def inside(i):
        with memory.memory_kept():
            if i % 2:
                raise ValueError(i)

    with ThreadPoolExecutor(4) as threads:
        errors = [threads.submit(inside, i).exception() for i in range(100)]
    assert sum(isinstance(error, ValueError) for error in errors) == 50
    assert memory._users == 0


@pytest.mark.usefixtures("own_allocator")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_begins_outside(monkeypatch):
    monkeypatch.setattr(memory, "_is_tensorflow_the_backend", lambda: False)
    with memory.memory_kept(), memory._lock:
        child = os.fork()
        if not child:
            with memory.memory_kept():
                inside = memory._users
            os._exit(10 * inside + memory._users)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10


def test_where_the_library_is_another_nothing_is_done(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    with memory.memory_kept():
        assert memory._users == 0
