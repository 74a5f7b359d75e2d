# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-trace --serve``: the trace's page beside an editor of stages and schedules.

``server`` is the HTTP server, ``session`` what it shows, ``children`` the processes that compile, ``worker`` what runs
in them, and ``edits`` a person's changes.
"""
