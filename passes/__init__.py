# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln's passes: one pass a file, found by the registry without a list to edit."""

from kiln.passes.core import Pass, register_pass
from kiln.passes.manager import PassManager, PipelineStep, run_pipeline
from kiln.passes.pipeline_parser import parse_pipeline

__all__ = ["Pass", "PassManager", "PipelineStep", "parse_pipeline", "register_pass", "run_pipeline"]
