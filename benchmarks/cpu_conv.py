# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolution kernels against PyTorch's (oneDNN), called directly (without torch.compile's call path).

    python benchmarks/cpu_conv.py                      # ResNet-18/50 and MobileNetV2 layers, one image, one thread
    python benchmarks/cpu_conv.py --threads 2 --images 8 --only depthwise pointwise
    python benchmarks/cpu_conv.py --json out.json

Every contestant computes relu(conv2d(x, weight, bias)): `kiln` as one kernel on a channels-last image (the first layer:
on an NCHW one), and, in the column `NCHW` behind it, with NCHW image and result; PyTorch as `conv2d` and `relu_` on
NCHW and on channels-last tensors, with its call alone beside, as `conv`. All contestants of a row run interleaved in
one process; a figure is the low quantile (1/6) of the rounds, thread CPU time for one thread and wall time for more.
`error` is the largest error against float64 over PyTorch's own.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "lowering" / "cpu"), str(ROOT / "benchmarks")]

from conv_support import conv_kernel, conv_problem
from cpu_matmul import measure

from kiln.dialects.schedules import to_plain
from kiln.dialects.schedules.cpu import DirectConvSchedule
from kiln.lowering.cpu import isa

# Class -> (channels, size of the image, output channels, window, stride, groups).
LAYERS = {
    "first": [(3, 224, 64, 7, 2, 1), (3, 224, 32, 3, 2, 1)],
    "regular": [
        (64, 56, 64, 3, 1, 1),
        (128, 28, 128, 3, 1, 1),
        (256, 14, 256, 3, 1, 1),
        (512, 7, 512, 3, 1, 1),
    ],
    "strided": [(64, 56, 128, 3, 2, 1), (128, 28, 256, 3, 2, 1), (256, 14, 512, 3, 2, 1), (64, 56, 128, 1, 2, 1)],
    "pointwise": [
        (16, 112, 96, 1, 1, 1),
        (24, 56, 144, 1, 1, 1),
        (144, 56, 24, 1, 1, 1),
        (32, 28, 192, 1, 1, 1),
        (192, 28, 32, 1, 1, 1),
        (64, 14, 384, 1, 1, 1),
        (384, 14, 64, 1, 1, 1),
        (160, 7, 960, 1, 1, 1),
        (960, 7, 160, 1, 1, 1),
        (320, 7, 1280, 1, 1, 1),
        (64, 56, 256, 1, 1, 1),
        (256, 56, 64, 1, 1, 1),
        (1024, 14, 256, 1, 1, 1),
        (2048, 7, 512, 1, 1, 1),
    ],
    "depthwise": [
        (32, 112, 32, 3, 1, 32),
        (96, 112, 96, 3, 2, 96),
        (144, 56, 144, 3, 1, 144),
        (192, 28, 192, 3, 1, 192),
        (384, 14, 384, 3, 1, 384),
        (576, 14, 576, 3, 2, 576),
        (960, 7, 960, 3, 1, 960),
    ],
    "pixels": [(960, 1, 240, 1, 1, 1), (240, 1, 960, 1, 1, 1)],
    "grouped": [(64, 56, 64, 3, 1, 32), (64, 56, 128, 3, 1, 64), (128, 56, 128, 3, 1, 32), (256, 28, 256, 3, 1, 32)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=list(LAYERS), choices=list(LAYERS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = []
    print(
        f"{'layer':34} {'kernel':16} {'NCHW ms':>8} {'conv':>7} {'NHWC ms':>8} {'conv':>7} {'kiln ms':>8} {'NCHW':>7}"
        f" {'GFLOP/s':>8} {'/NCHW':>6} {'/NHWC':>6} {'error':>6}"
    )
    for kind in arguments.only:
        for layer in LAYERS[kind]:
            row = _row(kind, layer, arguments)
            rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps({**vars(arguments), "json": None, "rows": rows}, indent=1))


def _row(kind: str, layer: tuple[int, ...], arguments: argparse.Namespace) -> dict:
    channels, size, outputs, window, step, groups = layer
    stride, padding = (step, step), (window // 2, window // 2)
    x = torch.randn(arguments.images, channels, size, size)
    weight = torch.randn(outputs, channels // groups, window, window)
    bias = torch.randn(outputs)
    last = torch.channels_last
    own_x, own_weight = x if kind == "first" else x.to(memory_format=last), weight
    fast_x, fast_weight = x.to(memory_format=last), weight.to(memory_format=last)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding, 1, groups).relu_()
    out = torch.empty_like(exact, dtype=torch.float32, memory_format=last)
    problem = conv_problem(own_x, own_weight, out, stride, padding, groups=groups)
    call, schedule = conv_kernel(own_x, own_weight, bias, out, problem, isa.host(), arguments.threads, checked=False)
    planar = torch.empty_like(out, memory_format=torch.contiguous_format)
    problem = conv_problem(x, weight, planar, stride, padding, groups=groups)
    planar_call, _ = conv_kernel(x, weight, bias, planar, problem, isa.host(), arguments.threads, checked=False)
    eager = F.conv2d(x, weight, bias, stride, padding, 1, groups).relu_()

    def conv(x: torch.Tensor, weight: torch.Tensor):
        return lambda: F.conv2d(x, weight, bias, stride, padding, 1, groups)

    def both(x: torch.Tensor, weight: torch.Tensor):
        return lambda: F.conv2d(x, weight, bias, stride, padding, 1, groups).relu_()

    calls = {
        "nchw": (both(x, weight), eager),
        "nchw conv": (conv(x, weight), eager),
        "nhwc": (both(fast_x, fast_weight), eager),
        "nhwc conv": (conv(fast_x, fast_weight), eager),
        "kiln": (call, out),
        "kiln nchw": (planar_call, planar),
    }
    seconds = measure(calls, arguments.threads, arguments.rounds)
    error = (out.double() - exact).abs().max() / (eager.double() - exact).abs().max().clamp_min(1e-30)
    name = f"{kind} {channels}x{size}->{outputs} {window}x{window}" + ("/2" if step == 2 else "")
    tile = f"{schedule.mr}x{schedule.nv}x{schedule.tiles}" if isinstance(schedule, DirectConvSchedule) else ""
    flops = 2.0 * exact.numel() * channels // groups * window * window
    ms = {key: value * 1e3 for key, value in seconds.items()}
    ratios = f"{ms['nchw'] / ms['kiln']:6.2f} {ms['nhwc'] / ms['kiln']:6.2f} {error:6.2f}"
    print(
        f"{name:34} {schedule.kernel + ' ' + tile:16} {ms['nchw']:8.3f} {ms['nchw conv']:7.3f} {ms['nhwc']:8.3f}"
        f" {ms['nhwc conv']:7.3f} {ms['kiln']:8.3f} {ms['kiln nchw']:7.3f}"
        f" {flops / seconds['kiln'] / 1e9:8.1f} {ratios}",
        flush=True,
    )
    return {"layer": name, "schedule": to_plain(schedule), "seconds": seconds, "error": float(error)}


if __name__ == "__main__":
    main()
