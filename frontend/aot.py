# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The AOTAutograd wiring: from a Dynamo graph to compiled forward, backward and inference graphs."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import (
    SerializableAOTDispatchCompiler,  # pyright: ignore[reportPrivateImportUsage] - it has no public name
    aot_module_simplified,
)
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

from kiln.errors import KilnError
from kiln.frontend.attention_statistics import correct_statistics
from kiln.frontend.bias_gradients import has_bias_gradients, sum_bias_gradients
from kiln.frontend.cache.autograd_cache import keeping_traces, savable, serializable
from kiln.frontend.cache.autograd_cache_failures import is_saving_asked_for, keeping_no_traces, not_kept
from kiln.frontend.calls.boxed_graph import USER_OUTPUTS
from kiln.frontend.calls.output_strides import output_strides
from kiln.frontend.compile import compile_graph
from kiln.frontend.constant_masks import fold_constant_masks
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.detaches import drop_detaches
from kiln.frontend.distances import mark_distances
from kiln.frontend.donated import donated_arguments, mark_donated, mark_made
from kiln.frontend.enlarging_gradients import sum_windows
from kiln.frontend.formulas import traced_formulas
from kiln.frontend.freezing.frozen_graph import FrozenGraph, frozen_inputs
from kiln.frontend.import_.argument_names import NAMES, Names, argument_names
from kiln.frontend.input_gradients import convolve_input_gradients, has_input_gradients
from kiln.frontend.kept_statistics import keep_statistics
from kiln.frontend.losses import write_no_log_softmax
from kiln.frontend.norms import write_out_norms
from kiln.frontend.options import Options
from kiln.frontend.pooling_gradients import gather_gradients
from kiln.frontend.pooling_offsets import find_maxima, has_poolings, keep_offsets
from kiln.frontend.powers import write_powers_less_one
from kiln.frontend.prims_views import replace_prims_views
from kiln.frontend.recomputable import knowing_fused_ops
from kiln.frontend.recomputed import round_recomputed
from kiln.frontend.report import Freezing, collect
from kiln.frontend.saved_channels_last import keep_channels_last
from kiln.frontend.scans import differentiate_scans
from kiln.frontend.size_fractions import write_size_fractions
from kiln.frontend.size_operands import share_size_operands

__all__ = ["compile_dynamo_graph"]


def compile_dynamo_graph(gm: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """Functionalise, take apart, split forward from backward, and compile each graph with ``compile_graph``.

    Input mutations of an inference graph stay in it as a final ``aten.copy_``; the import turns them into results that
    are written back. What fails in PyTorch's cache of traces is traced and compiled without that cache, and what fails
    in the rewrites of this frontend without those too.
    """
    replace_prims_views(gm)
    fold_constant_masks(gm)
    differentiate_scans(gm)
    names = argument_names(gm)
    try:
        with keeping_traces(example_inputs, options), traced_formulas():
            settings = _settings(options, names, partial(serializable, options=options))
            return savable(_dispatch(gm, example_inputs, settings))
    except (KilnError, TorchDynamoException):  # the latter are how Dynamo is asked to trace anew, or to leave it
        raise
    except Exception as error:  # noqa: BLE001 - of PyTorch's cache, if it does not come again without
        if is_saving_asked_for():
            raise
        for rewritten in (True, False) if options.fallback else (True,):
            with collect() as reports, keeping_no_traces(), traced_formulas():
                try:
                    settings = _settings(options, names, lambda compiler: compiler, rewritten=rewritten)
                    compiled = _dispatch(gm, example_inputs, settings)
                except Exception:  # noqa: BLE001 - the graph's own: the first is the one without a history
                    continue
            not_kept(reports, error, rewritten=rewritten)
            return compiled
        raise error from None


def _settings(
    options: Options, names: Names, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], *, rewritten: bool = True
) -> dict[str, Any]:
    """What AOTAutograd is called with; ``wrap`` is applied to each compiler. Only rewritten graphs are optimised before
    they are imported.
    """
    compiler = partial(_compile, options=options, names=names, rewritten=rewritten)
    inference = partial(compiler, kind="inference")
    if options.freezing and not torch.is_grad_enabled():
        inference = partial(_freezing, options=options)
    return dict(
        fw_compiler=wrap(_reporting_strides(partial(compiler, kind="forward"))),
        bw_compiler=wrap(partial(compiler, kind="backward")),
        inference_compiler=wrap(inference),
        partition_fn=partial(_partition, options=options, rewritten=rewritten),
        decompositions=decomposition_table(),
        keep_inference_input_mutations=True,
    )


def _partition(
    joint: GraphModule, inputs: Sequence[Any], *, options: Options, rewritten: bool, **settings: Any
) -> tuple[GraphModule, GraphModule]:
    """Forward and backward graphs: of what the gradient reads, the cheaper of keeping and computing again."""
    correct_statistics(joint)
    if not rewritten:
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **settings)
        forward.meta[USER_OUTPUTS] = settings["num_fwd_outputs"]
        return forward, backward
    from kiln.frontend.targets import has_triton_kernels  # MLIR: not where the cache has both graphs

    drop_detaches(joint)
    sum_windows(joint)
    write_no_log_softmax(joint)
    write_out_norms(joint, settings["num_fwd_outputs"])
    mark_distances(joint)
    if not options.emulate_precision_casts:
        keep_statistics(joint, settings["num_fwd_outputs"])
    keep_offsets(joint, has_poolings(joint) and has_triton_kernels(joint, options))
    share_size_operands(joint)
    _rewrite_for_gpu(joint, options)
    with knowing_fused_ops():
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **settings)
    forward.meta[USER_OUTPUTS] = settings["num_fwd_outputs"]
    mark_made(forward, backward)
    round_recomputed(forward, backward)
    if has_triton_kernels(joint, options):
        keep_channels_last(forward, backward, settings["num_fwd_outputs"])
    gather_gradients(backward)
    return forward, backward


def _rewrite_for_gpu(gm: GraphModule, options: Options) -> None:
    """Takes out of ATen's calls for convolutions' gradients and poolings what kernels of GPUs make faster."""
    if has_bias_gradients(gm) or has_input_gradients(gm) or has_poolings(gm):
        from kiln.frontend.targets import has_triton_kernels  # MLIR: not where the cache has both graphs

        if has_triton_kernels(gm, options):
            sum_bias_gradients(gm)
            convolve_input_gradients(gm)
            find_maxima(gm)


def _dispatch(gm: GraphModule, example_inputs: Sequence[Any], settings: dict[str, Any]) -> Callable[..., Any]:
    """AOTAutograd with these settings, as ``torch._dynamo.backends.common.aot_autograd`` calls it.

    That function imports Inductor's lowering first, which takes longer than all of Kiln's that a warm start needs, for
    the files that TORCH_COMPILE_DEBUG asks for. It is called for these, and for inputs in lists.
    """
    nested = any(isinstance(value, (list, tuple, dict)) for value in example_inputs)
    if nested or os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1":
        return aot_autograd(**settings)(gm, example_inputs)
    counters["aot_autograd"]["total"] += 1
    try:
        compiled = aot_module_simplified(
            gm, example_inputs, **{**settings, "bw_compiler": _untraced(settings["bw_compiler"])}
        )
    except Exception:
        counters["aot_autograd"]["not_ok"] += 1
        raise
    counters["aot_autograd"]["ok"] += 1
    return torch._dynamo.disable(compiled, reason="do not trace AOT-compiled graph")


def _untraced(compiler: Any) -> Any:
    """A compiler of backward graphs that Dynamo traces neither itself nor in what it returns."""
    if isinstance(compiler, SerializableAOTDispatchCompiler):
        compiler.compiler_fn = _untraced(compiler.compiler_fn)
        return compiler

    def compile_untraced(*args: Any, **kwargs: Any) -> Any:
        disable = cast(Any, torch._dynamo.disable)
        compiled = disable(compiler, reason="do not trace backward compiler function")(*args, **kwargs)
        return disable(compiled, reason="do not trace generated backwards pass")

    return compile_untraced


def _compile(
    gm: GraphModule, inputs: Sequence[Any], *, options: Options, names: Names, kind: str, rewritten: bool
) -> Callable[..., Any]:
    gm.meta[NAMES] = names
    if rewritten:
        write_size_fractions(gm)
    if kind == "backward" and rewritten:
        mark_donated(gm, donated_arguments())
    if kind == "inference" and rewritten:
        write_powers_less_one(gm)
        write_no_log_softmax(gm)
        mark_distances(gm)
        _rewrite_for_gpu(gm, options)
    freezing = Freezing("not frozen: grad mode is on; call under torch.no_grad()") if options.freezing else None
    return compile_graph(gm, options, kind, freezing)


def _freezing(gm: GraphModule, inputs: Sequence[Any], *, options: Options) -> Callable[..., Any]:
    mark_distances(gm)
    frozen = frozen_inputs(gm)
    if not frozen:
        return compile_graph(gm, options, "inference", Freezing("not frozen: the graph reads no parameter"))
    return FrozenGraph(gm, options, frozen)


def _reporting_strides(compile_forward: Callable[..., Any]) -> Callable[..., Any]:
    """Tell AOTAutograd the strides of the forward graph's outputs: those of its trace, which Kiln keeps exactly."""

    def compile_and_report(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled = compile_forward(gm, inputs)
        context = TracingContext.try_get()
        if context is not None and context.output_strides is not None and not context.output_strides:
            context.output_strides.extend(output_strides(gm))
        return compiled

    return compile_and_report
