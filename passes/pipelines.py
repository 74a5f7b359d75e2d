# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pipelines: one readable list per target, each step with one line that says why it stands where it stands."""

from kiln.passes.manager import PipelineStep

__all__ = ["PIPELINES", "cpu_pipeline"]


def cpu_pipeline(options: object | None = None) -> list[PipelineStep]:
    """From the torch dialect to a host plan for the CPU.

    ``options`` are the backend's options (``kiln.frontend.options.Options``); None means their defaults.
    """
    return [
        PipelineStep("canonicalize", "fold what the importer left foldable"),
        PipelineStep("cse", "merge what was computed twice, before any pattern counts uses", stage="graph"),
    ]


# For ``kiln-opt --pipeline=NAME``.
PIPELINES = {"cpu": cpu_pipeline}
