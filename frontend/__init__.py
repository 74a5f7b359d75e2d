# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The torch.compile backend.

Here are the backend, its options, the AOTAutograd wiring, and the way of one graph through the compiler
(``compile``, ``native``, ``targets``). Subjects have packages:

- ``import_``: from an FX graph to the torch dialect; dynamic sizes;
- ``calls``: calling a compiled graph in place of its FX graph;
- ``freezing``: parameters as constants;
- ``cache``: Kiln's persistent cache, and Kiln's part in PyTorch's caches;
- ``report``: what a compilation did, ``kiln.explain`` and ``kiln.profile``.
"""
