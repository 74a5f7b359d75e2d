# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""An interrupt during the first compilation, which imports the compiler, leaves a process that can compile."""

import os
import subprocess
import sys

INTERRUPTED = """
import signal, torch, kiln
import kiln.frontend.backend, kiln.frontend.compiler_import

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for delay in (0.02, 0.1, 0.2):
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        kiln.frontend.compiler_import.import_compiler()
    except KeyboardInterrupt:
        print("interrupted")
    signal.setitimer(signal.ITIMER_REAL, 0)
compiled = torch.compile(lambda x: torch.softmax(x @ x, -1) + 1, backend="kiln", options={"fallback": False})
print(float(compiled(torch.ones(2, 2)).sum()))
"""

REGISTERED = """
import sys, torch, kiln
import kiln.frontend.compiler_import
kiln.frontend.compiler_import.import_compiler()
before = set(sys.modules)
compiled = torch.compile(lambda x: torch.softmax(x @ x, -1) + 1, backend="kiln", options={"fallback": False})
compiled(torch.ones(2, 2))
registering = ("torch_mlir.dialects", "kiln.dialects", "kiln.passes.torch_to_kiln", "kiln.passes.algebra")
print(sorted(m for m in set(sys.modules) - before if m.startswith((*registering, "kiln.passes.patterns"))))
"""

LOADED = """
import sys, torch, kiln
compiled = torch.compile(lambda x: torch.softmax(x @ x, -1) + 1, backend="kiln", options={"fallback": False})
compiled(torch.ones(2, 2))
kernels = ("kiln.lowering.gpu.target", "kiln.lowering.gpu.ttir", "kiln.lowering.gpu.compile", "kiln.lowering.gpu.tile")
print([m for m in sys.modules if m in kernels or m.startswith(("kiln.runtime.cuda", "kiln.lowering.host.gpu"))])
"""

COLLECTED = """
import gc, sys, torch, kiln
import kiln.frontend.backend
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
collections = []
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]) if phase == "start" else None)
if sys.argv[1] == "off":
    gc.disable()
if sys.argv[1] == "frozen":
    gc.freeze()
gc.set_threshold(700, 10, 2)
gc.collect()  # PyTorch 2.12 leaves a collection of everything due, which would be the first behind any block
collections.clear()
with kiln.frontend.compiler_import.no_collections(("kiln.frontend.aot",)):
    import kiln.frontend.aot
kiln.frontend.compiler_import.import_compiler()
print(len(collections), gc.isenabled())
model = torch.nn.Sequential(*(m for _ in range(8) for m in (torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))))
collections.clear()
kiln.backend, backend = (lambda *a, **k: (collections.clear(), backend(*a, **k), print(*collections))[1]), kiln.backend
print(float(torch.compile(model, backend=kiln.backend)(torch.ones(2, 8)).sum()) > -1e9, gc.get_threshold()[2])
print(gc.get_freeze_count() > 1000)  # Python 3.12 begins with some hundreds
"""


THREADS = """
import gc, threading, torch, kiln
from kiln.frontend.compiler_import import no_full_collections

gc.set_threshold(600, 11, 12)
inside, done = threading.Barrier(2), threading.Event()

def other():
    with no_full_collections():
        inside.wait()
        done.wait()

thread = threading.Thread(target=other)
thread.start()
inside.wait()
with no_full_collections():
    with no_full_collections():
        first = gc.get_threshold()[2] > 12
second = gc.get_threshold()[2] > 12
done.set()
thread.join()
print(first, second, gc.get_threshold())
try:
    with no_full_collections():
        gc.set_threshold(500, 5, 6)
        raise ValueError
except ValueError:
    print(gc.get_threshold())
"""


BEHIND = """
import gc, kiln
from kiln.frontend.compiler_import import no_full_collections

alive = [[i] for i in range(200_000)]
gc.set_threshold(700, 10, 10)
gc.collect()
everything = []
gc.callbacks.append(lambda phase, info: everything.append(info) if phase == "start" and info["generation"] == 2 else 0)
with no_full_collections():
    made = [[[i]] for i in range(500_000)]
within = len(everything)
guards = [[i] for i in range(20_000)]
behind = len(everything) - within
later = [[[i]] for i in range(1_000_000)]
print(within, behind, len(everything) > behind)
"""


def run(script: str, *arguments: str) -> list[str]:
    environment = {**os.environ, "KILN_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.check_output(
        [sys.executable, "-c", script, *arguments], env=environment, text=True, timeout=300
    ).splitlines()


def test_an_interrupted_first_compilation_can_be_repeated():
    *interruptions, result = run(INTERRUPTED)
    assert interruptions and set(interruptions) == {"interrupted"}
    assert result == "6.0"


def test_nothing_that_registers_is_imported_later():
    assert run(REGISTERED) == ["['kiln.passes.algebra.aliasing']"]  # which is no table of rules


def test_a_graph_for_the_cpu_does_not_load_what_makes_kernels_of_gpus():
    assert run(LOADED) == ["[]"]


def test_no_collection_while_modules_are_imported_and_none_of_everything_while_a_graph_is_compiled():
    imports, generations, *rest = run(COLLECTED, "on")
    assert imports.split()[0] in "01" and imports.endswith(" True")  # what was due before comes behind the first block
    assert "0" in generations and "2" not in generations
    assert rest == ["True 2", "False"]


def test_collections_that_are_off_and_objects_that_are_frozen_stay_so():
    assert run(COLLECTED, "off") == ["0 False", "", "True 2", "False"]
    *_, frozen = run(COLLECTED, "frozen")
    assert frozen == "True"


def test_blocks_in_threads_and_within_each_other():
    assert run(THREADS) == ["True True (600, 11, 12)", "(500, 5, 6)"]  # a threshold that was set meanwhile stays


def test_none_is_due_behind_a_block_and_they_go_on_later():
    assert run(BEHIND) == ["0 0 True"]
