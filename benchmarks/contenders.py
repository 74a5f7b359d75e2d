# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Who is measured: eager PyTorch, Inductor, and Kiln; and `tracing`, a backend that compiles nothing (the floor of
compile time: what Dynamo and AOTAutograd take)."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

__all__ = ["CONTENDERS", "Contender"]


@dataclass(frozen=True)
class Contender:
    """``prepare(module)`` returns the callable to time; ``unavailable()`` why there is none ("" if there is)."""

    name: str
    prepare: Callable[[torch.nn.Module], Callable[..., Any]]
    unavailable: Callable[[], str] = lambda: ""
    compiles: bool = True


def _inductor(options: dict[str, Any] | None) -> Callable[[torch.nn.Module], Callable[..., Any]]:
    return lambda module: torch.compile(module, fullgraph=True, options=options)


def _kiln(mode: str | None = None, **options: Any) -> Callable[[torch.nn.Module], Callable[..., Any]]:
    def prepare(module: torch.nn.Module) -> Callable[..., Any]:
        import kiln

        # Without the fallback: a graph that Kiln fails on would be timed as eager's. torch.compile itself takes either
        # a mode or options.
        backend = partial(kiln.backend, mode=mode, options={"fallback": False, **options})
        return torch.compile(module, backend=backend, fullgraph=True)

    return prepare


def _no_compiler() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return "" if any(shutil.which(n) for n in names) else f"no C++ compiler ({', '.join(names)})"


CONTENDERS = {
    c.name: c
    for c in (
        Contender("eager", lambda module: module, compiles=False),
        Contender("inductor", _inductor(None), _no_compiler),
        Contender("inductor-freezing", _inductor({"freezing": True}), _no_compiler),
        Contender("inductor-max-autotune", _inductor({"max_autotune": True}), _no_compiler),
        # Inductor's own products on the CPU need frozen weights.
        Contender("inductor-max-autotune-freezing", _inductor({"max_autotune": True, "freezing": True}), _no_compiler),
        Contender("kiln", _kiln()),
        Contender("kiln-freezing", _kiln(freezing=True)),
        Contender("kiln-max-autotune", _kiln("max-autotune")),
        Contender("kiln-max-autotune-freezing", _kiln("max-autotune", freezing=True)),
        Contender("tracing", lambda module: torch.compile(module, backend="aot_eager", fullgraph=True)),
    )
}
