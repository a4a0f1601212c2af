"""A process keeps what it frees, until it is told to return it."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCK = """
import threading
import numpy as np, psutil
from dab.utils import allocator

def use_and_free():
    np.ones(300 << 20, np.uint8)

def resident():
    return psutil.Process().memory_info().rss >> 20

kept = allocator.keep_freed()
before = resident()
{use}
freed = resident()
allocator.return_freed()
print(int(kept), before, freed, resident())
"""
IN_A_THREAD = "thread = threading.Thread(target=use_and_free); thread.start(); thread.join()"


@pytest.mark.parametrize("use", ["use_and_free()", IN_A_THREAD])
def test_freed_memory_is_kept_until_it_is_returned(use):
    # In a process of its own, since it cannot be undone.
    code = BLOCK.format(use=use)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    kept, before, freed, returned = map(int, printed.split())
    if not kept:
        pytest.skip("another allocator than glibc's")
    assert freed > before + 250
    assert returned < before + 50
