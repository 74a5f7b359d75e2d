# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Kiln does with 8-bit floats: conversions, and ops that move elements."""

__all__ = ["CARRY_FLOAT8"]

CARRY_FLOAT8 = frozenset(
    f"torch.{name}"
    for name in (
        *("aten._to_copy", "aten.to.dtype", "aten.to.dtype_layout", "prims.convert_element_type", "aten.copy"),
        *(
            "aten.clone",
            "aten.view",
            "aten._unsafe_view",
            "aten.reshape",
            "aten.permute",
            "aten.transpose.int",
            "aten.t",
        ),
        *(
            "aten.unsqueeze",
            "aten.squeeze",
            "aten.squeeze.dim",
            "aten.squeeze.dims",
            "aten.expand",
            "aten.slice.Tensor",
        ),
        *("aten.select.int", "aten.alias", "aten.detach"),
    )
)
"""The ops whose rules hold for float8_e4m3fn and float8_e5m2 as well."""
