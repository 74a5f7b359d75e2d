# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Imported once by the process that jobs are forked from: nothing here may start CUDA."""

import contextlib
import importlib

import torch._dynamo
import torch._inductor.compile_fx  # noqa: F401 - AOTAutograd's parts that Dynamo loads at its first graph

import benchmarks.gpu.breadth.child  # noqa: F401 - children of this process have it
import kiln.frontend.aot  # noqa: F401 - children of this process have it
from benchmarks.gpu.breadth.families import entries_of

for name in ("transformers", "transformers.models.auto.modeling_auto", "timm", "torchvision", "triton"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
entries_of("")
