# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import threading

import pytest

from kiln.errors import KilnError
from kiln.runtime.loader import load
from kiln.runtime.threads import symbol_address


def test_same_names_in_two_libraries(add_kernel):
    first = load([add_kernel.object_bytes], ["add_entry"])
    second = load([add_kernel.object_bytes], ["add_entry"])
    assert first["add_entry"] and second["add_entry"] and first["add_entry"] != second["add_entry"]


def test_load_from_many_threads(add_kernel):
    loaded = []
    threads = [
        threading.Thread(target=lambda: loaded.append(load([add_kernel.object_bytes], ["add_entry"]))) for _ in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({code["add_entry"] for code in loaded}) == 8


def test_symbols_of_torch():
    assert symbol_address("GOMP_parallel")
    assert symbol_address("omp_get_thread_num")
    assert symbol_address("expf")
    assert symbol_address("kiln_no_such_symbol") == 0


@pytest.mark.parametrize("data", [b"", b"abc", b"\x7fELF\x02\x01" + b"\0" * 10])
def test_not_an_object(data):
    with pytest.raises(KilnError, match="not an ELF64 object"):
        load([data], ["f"])


def test_truncated_object(add_kernel):
    with pytest.raises(KilnError, match="truncated"):
        load([add_kernel.object_bytes[:700]], ["add_entry"])


def test_missing_export(add_kernel):
    with pytest.raises(KilnError, match="no object defines nothing_here"):
        load([add_kernel.object_bytes], ["nothing_here"])


def test_unknown_external(add_kernel):
    image = add_kernel.object_bytes.replace(b"omp_get_thread_num\0", b"omp_get_thread_nix\0")
    with pytest.raises(KilnError, match="'omp_get_thread_nix'"):
        load([image], ["add_entry"])
