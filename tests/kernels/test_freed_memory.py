"""Freed memory stays with a process that trains, which needs it again at the next step; a server returns it."""

import subprocess
import sys
from mmap import PAGESIZE

import pytest

SCRIPT = """
import ctypes
import resource
import numpy
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: no huge pages, of which there would be few
from pellucid.kernels.freed_memory import keep_freed_memory
def faults_of_a_large_array():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.ones(9 * 2**20, numpy.float32)  # 36 MiB, above what malloc keeps by itself: 9,216 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def fewest():
    return min(faults_of_a_large_array() for _ in range(20))  # until no small block lies in the way
print(fewest())
keep_freed_memory()
print(fewest())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's C library is asked")
def test_memory_that_was_freed_costs_no_new_pages():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    handed_back, kept = map(int, done.stdout.split())
    assert kept < 36 * 2**20 / PAGESIZE / 9 < handed_back


SERVER = """
import os
import threading
from pellucid.kernels.freed_memory import return_freed_memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 2**20
def answer():
    many = [bytearray(2**19 + i) for i in range(100)]  # 50 MiB
    kept.append(bytearray(2**10))  # above them, as what a cache keeps of an answer
kept = []
return_freed_memory()
answer()
before = resident()
threads = [threading.Thread(target=answer) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's C library is asked")
def test_what_the_threads_of_a_server_free_goes_back_to_the_system():
    """It was 400 MiB that stayed with them."""
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, check=True)
    assert int(done.stdout) < 100
