# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums of products of tiles: what matmul, convolution and attention have in common on a CPU.

`MatrixUnit` (unit.py) describes what multiplies tiles, and emits its instructions; an instance of it is a file of its
own, such as amx.py. `sum_products` (sums.py) is the loop over k of one register tile, for every unit: its caller says
where the tiles of both operands and of the sums lie.

This package knows nothing of matrices, images or heads: `lowering/cpu/{matmul,conv,attention}` are its clients, and it
imports none of them.
"""

from kiln.lowering.cpu.contraction.sums import Grid, Operand, load_sums, multiply_step, store_sums, sum_products
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place, Tile

__all__ = ["Grid", "MatrixUnit", "Operand", "Place", "Tile", "load_sums", "multiply_step", "store_sums", "sum_products"]
