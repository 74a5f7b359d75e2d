# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolutions oneDNN does faster than the kernels here: the rule, and the measurements behind it.

Measured with f32 on one image on a Zen 5 server (AVX-512, 1 MiB L2; benchmarks/cpu_conv.py): our kernel with bias and
ReLU against oneDNN's (with bias, in PyTorch) and a ReLU in place; ranges over the layers of ResNet-18 and -50 and of
MobileNetV2. One thread: CPU time; two: wall time on a machine with other load.

| class                        | to oneDNN NCHW | to oneDNN channels-last | two threads, NCHW and channels-last |
|------------------------------|----------------|-------------------------|-------------------------------------|
| first layer, NCHW image      | 1.66 - 2.01    | 1.11 - 1.54             | 1.34 - 2.45, 1.15 - 1.63            |
| 3x3, 56 to 14 pixels         | 1.17 - 1.43    | 1.07 - 1.40             | 1.59 - 1.90, 1.15 - 1.54            |
| 3x3, 7 pixels, 512 channels  | 2.68           | 2.66                    | (not measured)                      |
| 3x3 and 1x1, stride 2        | 1.43 - 2.61    | 1.11 - 2.69             | 1.69 - 3.79, 1.85 - 2.03            |
| 1x1                          | 2.07 - 3.11    | 1.92 - 2.96             | 1.60 - 4.92, 1.19 - 2.65            |
| depthwise, channels-last     | 2.90 - 13.5    | 1.49 - 7.1              | 4.61 - 15.8, 2.31 - 7.46            |
| groups of 1 and 2 channels   | 3.1 - 3.9      | 1.04 - 1.52             | (not measured)                      |
| 32 groups of 4 or 8 channels | 1.43 - 1.63    | 1.09 - 1.49             | 1.98 - 2.04, 0.95 - 1.72            |

Transposed, and over three dims (images of 8 to 112 pixels, one thread, CPU time against PyTorch with the bias):

| class                             | NCHW        | channels-last |
|-----------------------------------|-------------|---------------|
| transposed, 2x2, stride 2 (U-Net) | 1.12 - 3.44 | 0.81 - 1.23   |
| transposed, 4x4 and 3x3, stride 2 | 1.15 - 1.48 | 0.99 - 1.51   |
| the same, depthwise and grouped   | 1.57 - 2.47 | 1.81 - 2.86   |
| 3x3x3, 1x3x3, 3x1x1               | 2.5 - 6.9   | 2.7 - 8.5     |
| 1x1x1, depthwise 3x3x3, patches   | 1.17 - 1.81 | 1.21 - 2.19   |
| 3x7x7 of three channels           | 0.90        | 0.98          |

With an NCHW image and result the kernel takes 0.95 to 1.4 times as long as channels-last and stays ahead of oneDNN;
depthwise 1.1 to 3 times as long, and 2.9 to 4.7 times as fast as oneDNN's. f16 and f64 are 2.5 to 400 times faster
here, where oneDNN has no kernel of its own.

bf16 on a CPU with AVX512-BF16, the same machine and comparison, one thread: channels-last in pairs of channels 1.1 to
4.5 (3x3 1.2 - 2.1, 1x1 1.1 - 4.5, groups 1.2 - 1.5), depthwise 1.8 - 3.5, first layers 0.95 - 2.0. Row-major images of
many channels have no pairs, and their elements are widened one by one: 0.60 to 1.25. So they are copied to be
channels-last, in a kernel of its own (or written so by the kernel that makes them), while the result is written
row-major, which costs 2 %. Compiled calls with the copy against eager's, both row-major, one thread, CPU time:

| class                                                    | to oneDNN NCHW |
|----------------------------------------------------------|----------------|
| 3x3, 112 to 7 pixels, 16 to 1024 channels                | 1.08 - 2.7     |
| 3x3, 64 channels, 112 pixels; 7x7, 64 channels, 28 pixels | 1.04, 1.05     |
| 3x3 and 1x1, stride 2; 7x7, 16 channels, stride 2        | 1.12 - 1.81    |
| 1x1, 112 to 7 pixels, 16 to 2048 channels                | 1.26 - 3.0     |
| 4 to 32 groups; 8 images                                 | 1.13 - 1.51    |
| transposed, 2x2, 3x3 and 4x4                             | 1.76 - 5.7     |
| patches of 16x16 of 64 channels                          | 0.96           |

(The smallest take less than 50 us, most of eager's time being its call.) An odd number of channels is left to oneDNN.

bf16 on a CPU with AMX (Emerald Rapids, one thread, other work on the machine, November 2026, PyTorch 2.11): the kernel
of tiles with bias and ReLU, weights row-major and packed by it, against oneDNN's and a ReLU in place with image and
weight channels-last, and both row-major:

| class                                         | channels-last | packed before | both NCHW   |
|-----------------------------------------------|---------------|---------------|-------------|
| 3x3, 56 to 7 pixels, 64 to 512 channels       | 1.38 - 2.29   | 1.46 - 2.86   | 1.85 - 3.28 |
| 3x3, stride 2                                 | 1.46 - 2.90   | 1.61 - 4.04   | 2.11 - 3.72 |
| 1x1 (ResNet-50, MobileNetV2)                  | 1.19 - 4.27   | 1.23 - 6.60   | 2.39 - 4.51 |
| 1x1, stride 2                                 | 1.37 - 2.39   | 1.37 - 2.77   | 2.64 - 4.74 |
| first layers and patches, NCHW image          | 1.11 - 1.74   | 1.13 - 2.38   | 1.94 - 2.73 |
| 2x2, stride 2                                 | 1.68          | 1.86          | 2.52        |
| 3x3, 32 to 256 pixels, U-Nets                 | 1.02 - 1.53   | 1.11 - 1.70   | 1.27 - 3.38 |

What tiles do not take there is oneDNN's: transposed convolutions, three spatial dims, groups of few channels, windows
of more than 25 elements, rows of a length that is not known.
"""

from math import prod

from torch_mlir import ir

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.conv.tiles_plan import fits_tiles
from kiln.lowering.cpu.named_kernels import no_kernel

__all__ = ["vendor_reason", "wants_channels_last"]

_FEW_CHANNELS = 4


def vendor_reason(op: ir.Operation) -> str | None:
    """Why a `kiln.conv` is left to oneDNN; None where the kernel of its own, with its epilogue fused, is as fast."""
    missing = no_kernel(op)
    if missing is not None:
        return f"oneDNN: {missing}"
    x, weight = (ir.RankedTensorType(v.type) for v in op.operands)
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    depthwise = weight.shape[0] == groups and weight.shape[1] == 1
    if not isinstance(x.element_type, ir.BF16Type) or depthwise:
        return None
    if isa.target().has("amx-bf16"):
        return None if _fits_tiles(op) else "oneDNN: its products of bf16 run on units for them"
    if not isa.target().has("avx512bf16") or _channels(op) <= _FEW_CHANNELS or wants_channels_last(op):
        return None
    return "oneDNN: an odd number of channels of bf16"


def wants_channels_last(op: ir.Operation) -> bool:
    """Whether the kernel of a `kiln.conv` needs an image with neighbouring channels, for which a copy pays."""
    target, channels = isa.target(), _channels(op)
    multiplies_pairs = target.has("avx512bf16") and not target.has("amx-bf16")
    is_bf16 = isinstance(ir.RankedTensorType(op.operands[1].type).element_type, ir.BF16Type)
    return is_bf16 and multiplies_pairs and channels > _FEW_CHANNELS and channels % 2 == 0


def _channels(op: ir.Operation) -> int:
    """Channels of one group of the image."""
    weight = ir.RankedTensorType(op.operands[1].type)
    if bool(ir.IntegerAttr(op.attributes["transposed"]).value):
        return weight.shape[0] // ir.IntegerAttr(op.attributes["groups"]).value
    return weight.shape[1]


def _fits_tiles(op: ir.Operation) -> bool:
    """Whether the kernel of tiles (AMX) takes a convolution, as far as is known before tensors have their places."""
    x, weight = (ir.RankedTensorType(v.type) for v in op.operands)
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    outputs, channels, *window = weight.shape
    if bool(ir.IntegerAttr(op.attributes["transposed"]).value) or x.rank > 4:
        return False
    pixels = prod(window) == 1 and all(n == 1 for n in ir.DenseI64ArrayAttr(op.attributes["stride"]))
    known = x.shape[-1] != ir.ShapedType.get_dynamic_size()
    return (known or pixels) and fits_tiles(groups, channels, outputs // groups, window)
