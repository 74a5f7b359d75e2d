# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Run an FX graph op by op with ATen: the fallback of a whole graph, numerically eager itself."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch.fx import GraphModule

__all__ = ["AtenExecutor"]


class AtenExecutor:
    """Boxed callable over ``gm``: takes the flat list of inputs (and empties it), returns the list of outputs."""

    def __init__(self, gm: GraphModule) -> None:
        self._boxed_call = True
        self._forward: Callable[..., Any] = gm.forward

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The graph's results; the list of inputs is emptied, so that they can be freed early."""
        args = list(inputs)
        inputs.clear()  # so that the graph can free an input after its last use
        outputs = self._forward(*args)
        return list(cast(Sequence[Any], outputs)) if isinstance(outputs, (tuple, list)) else [outputs]
