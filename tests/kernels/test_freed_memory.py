"""Freed memory stays with the process, so that the next step need not fetch it again."""

import subprocess
import sys
from mmap import PAGESIZE

import pytest

SCRIPT = """
import ctypes
import resource
import torch
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: no huge pages, of which there would be few
from pellucid.kernels.freed_memory import keep_freed_memory
def faults_of_a_large_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(9 * 2**20)  # 36 MiB, above what malloc keeps by itself: 9,216 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def fewest():
    return min(faults_of_a_large_tensor() for _ in range(20))  # until no small block lies in the way
print(fewest())
keep_freed_memory()
print(fewest())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's C library is asked")
def test_a_tensor_that_was_freed_costs_no_new_pages():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    handed_back, kept = map(int, done.stdout.split())
    assert kept < 36 * 2**20 / PAGESIZE / 9 < handed_back
