# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory of training steps on a GPU that is not there: what is saved for the gradient, and what the plans hold.

``python -m benchmarks.training.saved "gpt2 x16"`` traces a case of `benchmarks.training.cases` at its size for a GPU,
in bf16 and without memory, and prints each group of tensors that Kiln's and Inductor's forward graphs save, with who
reads them, and the most that Kiln's backward plan holds: saved tensors, gradients, calls' results and workspace. What
autograd itself holds (gradients of the caller's results) is not counted.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import detect_fake_mode
from torch._functorch import config
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx import GraphModule, Node

from benchmarks.training.cases import Case, Loss, cases
from kiln.frontend import aot, native
from kiln.frontend.donated import mark_donated
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.lowering.gpu.compile import Artifacts
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.host import gpu_kernels
from kiln.runtime.binding import segments
from kiln.runtime.plan import Plan
from kiln.runtime.statistics import memory_report

__all__ = ["Saved", "backward_peak", "built", "main", "partition"]

_MIB = 2**20
_LEAST = _MIB // 2
"""Bytes of a group of tensors from which it is printed."""


@dataclass
class Saved:
    """What a forward graph keeps for its backward graph, without the caller's own tensors.

    sizes: bytes of each piece of memory, which several tensors may lie in.
    groups: (op, dtype, shape, reading ops) -> how many.
    """

    backward: GraphModule
    sizes: dict[object, int] = field(default_factory=dict[object, int])
    groups: Counter[tuple[str, str, tuple[int, ...], str]] = field(default_factory=Counter[Any])

    @property
    def bytes(self) -> int:
        """All together."""
        return sum(self.sizes.values())

    @classmethod
    def of(cls, forward: GraphModule, backward: GraphModule) -> "Saved":
        """What two graphs pass on."""
        found, given = cls(backward), {_memory(n) for n in forward.graph.find_nodes(op="placeholder")}
        made = {n.name: str(n.target) for n in forward.graph.nodes}
        for argument in backward.graph.find_nodes(op="placeholder"):
            memory, value = _memory(argument), argument.meta.get("val")
            if argument.name not in made or memory in given or not isinstance(value, torch.Tensor):
                continue
            if memory not in found.sizes:
                readers = ", ".join(sorted({str(user.target).removeprefix("aten.") for user in argument.users}))
                found.groups[made[argument.name], str(value.dtype), tuple(value.shape), readers] += 1
            found.sizes[memory] = value.untyped_storage().nbytes()
        return found


def _memory(node: Node) -> object:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _results(gm: GraphModule) -> list[Any]:
    return list(gm.graph.output_node().args[0])


class _Found(Exception):
    pass


def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, **settings: Any) -> Any:
    """What `scaled_dot_product_attention` is on a GPU, whatever device the tensors of a trace are on."""
    if settings.get("enable_gqa"):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    is_causal, scale = settings.get("is_causal", False), settings.get("scale")
    if attn_mask is None:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
    if attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
    added = attn_mask.expand(*q.shape[:3], k.shape[2])
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    return run(q, k, v, added, True, dropout_p, is_causal, scale=scale)[0]


def partition(module: torch.nn.Module, inputs: Sequence[torch.Tensor], *, is_kiln: bool) -> Saved:
    """What is saved of a step of a module (inputs -> the loss), by Kiln's or by Inductor's partition; fake tensors."""
    found: list[Saved] = []

    def keeping(split: Callable[..., tuple[GraphModule, GraphModule]]) -> Callable[..., Any]:
        def keep(joint: GraphModule, given: Sequence[Any], **settings: Any) -> Any:
            forward, backward = split(joint, given, **settings)
            found.append(Saved.of(forward, backward))
            results = [*_results(forward)[: settings["num_fwd_outputs"]], *_results(backward)]
            theirs = {_memory(node) for node in results if isinstance(node, Node)}
            arguments = backward.graph.find_nodes(op="placeholder")
            mark_donated(backward, [i for i, node in enumerate(arguments) if _memory(node) not in theirs])
            raise _Found

        return keep

    def backend(gm: GraphModule, given: Sequence[torch.Tensor]) -> Any:
        for node in gm.graph.nodes:
            if node.target is F.scaled_dot_product_attention:
                node.target = _attention
        gm.recompile()
        return (_with_kiln if is_kiln else _with_inductor)(gm, given, keeping)

    torch._dynamo.reset()
    with config.patch(enable_autograd_cache=False):
        try:
            torch.compile(module, backend=backend)(*inputs)
        except Exception:
            if not found:
                raise
    return found[0]


def _with_kiln(gm: GraphModule, given: Sequence[torch.Tensor], keeping: Callable[..., Any]) -> Any:
    with patch.object(aot, "_partition", keeping(aot._partition)):
        return aot.compile_dynamo_graph(gm, given, Options(target="tt-cpu", fallback=False))


def _with_inductor(gm: GraphModule, given: Sequence[torch.Tensor], keeping: Callable[..., Any]) -> Any:
    from torch._inductor.compile_fx import partition_fn
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V

    def nothing(gm: GraphModule, inputs: Sequence[Any]) -> Any:
        return gm

    settings = dict(fw_compiler=nothing, bw_compiler=nothing, partition_fn=keeping(partition_fn))
    with V.set_fake_mode(detect_fake_mode(given)):
        return aot_autograd(**settings, decompositions=select_decomp_table())(gm, given)


def backward_peak(saved: Saved, arch: str = "sm_90") -> int:
    """Most bytes that the plan of a backward graph holds on a GPU; kernels are planned and not compiled."""
    plans: list[Plan] = []

    def keep(plan: Plan, *_: Any) -> Callable[..., Any]:
        plans.append(plan)
        return lambda inputs: []

    done = Artifacts("", "", "", "", b"-", {"shared": 0, "name": "kernel", "num_warps": 4})
    with (
        unset_fake_temporarily(),
        patch.object(native, "choose_target", return_value=GpuTarget("cuda:0", arch)),
        patch.object(native, "make_runner", keep),
        patch.object(native, "describe_plan"),
        patch.object(gpu_kernels, "compile_ttir", return_value=done),
    ):
        native.compile_native(saved.backward, Options(fallback=False), CompileReport("backward", 1))
    return _peak(plans[0], saved)


def _peak(plan: Plan, saved: Saved) -> int:
    """Bytes at the segment that holds most; an input goes behind the last segment that reads it."""
    arguments = saved.backward.graph.find_nodes(op="placeholder")
    last: dict[object, int] = {}
    parts = segments(plan)
    for k, part in enumerate(parts):
        for number in part.buffers:
            buffer = plan.buffers[number]
            if buffer.kind == "input":
                last[_memory(arguments[buffer.index])] = k
    given = [sum(n for m, n in saved.sizes.items() if last.get(m, -1) >= k) for k in range(len(parts) + 1)]
    return max(map(sum, zip(given, memory_report(plan).held, strict=True)))


def built(case: Case) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """A case's network with its loss, in bf16, and its inputs."""
    torch.set_default_dtype(torch.bfloat16)  # modules of fake tensors cannot be converted
    try:
        network, make = case.build(**case.sizes)
        module = Loss(network, case.loss).train()
        inputs = [t.bfloat16() if t.is_floating_point() else t for t in make(torch.Generator().manual_seed(1))]
        return module, [*inputs, module.target(*inputs)]
    finally:
        torch.set_default_dtype(torch.float32)


def _print(case: Case) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, inputs = built(case)
        for name, is_kiln in (("Kiln", True), ("Inductor", False)):
            saved = partition(module, inputs, is_kiln=is_kiln)
            print(f"{case.name}, {name}: saved {saved.bytes / _MIB:.1f} MiB")
            for (op, dtype, shape, readers), count in saved.groups.most_common():
                size = count * torch.Size(shape).numel() * getattr(torch, dtype.removeprefix("torch.")).itemsize
                if size >= _LEAST:
                    print(f"  {size / _MIB:9.1f} MiB in {count:3d} {dtype} {shape} of {op} for {readers}")
            if is_kiln:
                print(f"{case.name}, {name}: the backward plan holds {backward_peak(saved) / _MIB:.1f} MiB at most")


def main() -> None:
    """Entry point: cases whose names contain the argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help='part of the names of cases, as "gpt2 x16"')
    wanted = parser.parse_args().case
    for case in cases("cuda"):
        if wanted in case.name:
            _print(case)


if __name__ == "__main__":
    main()
