# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The AOTAutograd wiring: from a Dynamo graph to compiled forward, backward and inference graphs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule

from kiln.frontend.compile import compile_graph
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.freezing import FrozenGraph, frozen_inputs
from kiln.frontend.options import Options
from kiln.frontend.output_strides import output_strides
from kiln.frontend.report import Freezing
from kiln.frontend.traces import keeping_traces, savable, serializable

__all__ = ["compile_dynamo_graph"]


def compile_dynamo_graph(gm: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """Functionalise, take apart, split forward from backward, and compile each graph with ``compile_graph``.

    Input mutations of an inference graph stay in it as a final ``aten.copy_``; the import turns them into results that
    are written back.
    """
    inference = _freezing if options.freezing and not torch.is_grad_enabled() else partial(_compile, kind="inference")
    compiler = aot_autograd(
        fw_compiler=serializable(_reporting_strides(partial(_compile, options=options, kind="forward")), options),
        bw_compiler=serializable(partial(_compile, options=options, kind="backward"), options),
        inference_compiler=serializable(partial(inference, options=options), options),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decomposition_table(),
        keep_inference_input_mutations=True,
    )
    with keeping_traces(example_inputs, options):
        return savable(compiler(gm, example_inputs))


def _compile(gm: GraphModule, inputs: Sequence[Any], *, options: Options, kind: str) -> Callable[..., Any]:
    freezing = Freezing("not frozen: grad mode is on; call under torch.no_grad()") if options.freezing else None
    return compile_graph(gm, inputs, options, kind, freezing)


def _freezing(gm: GraphModule, inputs: Sequence[Any], *, options: Options) -> Callable[..., Any]:
    frozen = frozen_inputs(gm)
    if not frozen:
        return compile_graph(gm, inputs, options, "inference", Freezing("not frozen: the graph reads no parameter"))
    return FrozenGraph(gm, inputs, options, frozen)


def _reporting_strides(compile_forward: Callable[..., Any]) -> Callable[..., Any]:
    """Tell AOTAutograd the strides of the forward graph's outputs: those of its trace, which Kiln keeps exactly."""

    def compile_and_report(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled = compile_forward(gm, inputs)
        context = TracingContext.try_get()
        if context is not None and context.output_strides is not None and not context.output_strides:
            context.output_strides.extend(output_strides(gm))
        return compiled

    return compile_and_report
