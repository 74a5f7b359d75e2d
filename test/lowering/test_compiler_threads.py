# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pools of compiler threads: as many threads as the process may use cores, and new ones behind a fork."""

import os
import subprocess
import sys
import threading

import pytest

from kiln.lowering.compiler_threads import available_cores, compiler_threads

ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import threading
from kiln.lowering.compiler_threads import available_cores, compiler_threads
pool = compiler_threads("test")
names = {f.result() for f in [pool.submit(lambda: threading.current_thread().name) for _ in range(20)]}
print(available_cores(), len(names))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity of processes")
def test_a_process_on_one_core_has_one_thread():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.check_output([sys.executable, "-c", ONE_CORE], env=environment, text=True, timeout=300)
    assert found.split() == ["1", "1"]


def test_pools_have_names_and_work_at_once():
    assert compiler_threads("test-a") is compiler_threads("test-a") is not compiler_threads("test-b")
    together = threading.Barrier(available_cores())
    waiting = [compiler_threads("test-a").submit(together.wait, 60) for _ in range(available_cores())]
    assert sorted(future.result() for future in waiting) == list(range(available_cores()))
    names = {f.result() for f in [compiler_threads("test-c", 1).submit(threading.get_ident) for _ in range(9)]}
    assert len(names) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own():
    assert compiler_threads("test-a").submit(int, "7").result() == 7
    child = os.fork()
    if child == 0:
        try:
            os._exit(compiler_threads("test-a").submit(int, "7").result(60))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
