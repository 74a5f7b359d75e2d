# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compilation did, as data, and the tools that show it: ``kiln.explain`` and ``kiln.profile``."""

from kiln.frontend.report.compile_report import CompileReport, Decision, Freezing, Kernel, Proved, collect, publish

__all__ = ["CompileReport", "Decision", "Freezing", "Kernel", "Proved", "collect", "publish"]
