# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The stages of a graph as artifacts of PyTorch's structured trace (TORCH_TRACE), which tlparse shows."""

from typing import TYPE_CHECKING

from torch._logging._internal import trace_structured
from typing_extensions import override

from kiln.dialects import to_text
from kiln.passes.instruments import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes import PipelineStep

__all__ = ["StageTrace"]


class StageTrace(Instrument):
    """One artifact where a stage is complete, and behind each own pass: ``kiln_<graph>_<stage>``."""

    def __init__(self, graph: str) -> None:
        self._graph = graph

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if step.stage or step.is_inserted:
            name = f"kiln_{self._graph}_{step.name if step.is_inserted else step.stage}"
            trace_structured(
                "artifact",
                metadata_fn=lambda: {"name": name, "encoding": "string"},
                payload_fn=lambda: to_text(module),
                expect_trace_id=False,
            )
