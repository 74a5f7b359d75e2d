# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loss curves of a small GPT-2 trained on this repository's documentation, byte by byte, with AdamW.

Eager, Inductor, Kiln and, as the reference, eager in float64 start from the same parameters and see the same batches,
in float32 and under autocast to bfloat16. Both compilers compile the optimizer's step as well. Without dropout, whose
random numbers would differ. ``--record`` writes benchmarks/results/loss_curves.json and draws docs/loss-curves.svg.
"""

import argparse
import copy
import datetime
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.charts import Chart, svg
from benchmarks.networks.decoders import gpt2
from benchmarks.training.measure import without_dropout

__all__ = ["curve_charts", "documentation", "main", "train"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results/loss_curves.json"
CHART = ROOT / "docs/loss-curves.svg"
CONTENDERS = {"eager": "", "Inductor": "inductor", "Kiln": "kiln"}
"""Name in the chart -> backend."""
_SMALLEST = 1e-8
"""Losses are of order 1 and kept with six digits behind the point: what is drawn for equal ones."""


class Step(nn.Module):
    """Loss of the next byte, [batch, length + 1] -> a number in f32 (f64 for a network in f64)."""

    def __init__(self, network: nn.Module, device: str, autocast: bool) -> None:
        super().__init__()
        self.network, self.device, self.autocast = network, device, autocast

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16) if self.autocast else nullcontext():
            logits = self.network(text[:, :-1])
        logits = logits.float() if self.autocast else logits
        return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def documentation() -> torch.Tensor:
    """The bytes of README.md and of the pages in docs/, in the order of their names: int64 [bytes]."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return torch.tensor(list(b"\n".join(page.read_bytes() for page in pages)))


def batches(text: torch.Tensor, steps: int, batch: int, length: int) -> Iterator[torch.Tensor]:
    """Random windows of the text, the same in each call: ``steps`` times int64 [batch, length + 1]."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        starts = torch.randint(0, len(text) - length - 1, (batch, 1), generator=generator)
        yield text[starts + torch.arange(length + 1)]


def train(network: nn.Module, given: Sequence[torch.Tensor], backend: str, device: str, autocast: bool) -> list[float]:
    """The losses of one step of AdamW for each batch; ``network`` is changed."""
    step = Step(network, device, autocast).to(device).train()
    update: Any = torch.optim.AdamW(step.parameters(), lr=1e-3).step
    call: Any = step
    if backend:
        torch._dynamo.reset()
        options = {"fallback": False} if backend == "kiln" else None
        call = torch.compile(step, backend=backend, options=options)
        update = torch.compile(update, backend=backend, options=options)
    losses: list[float] = []
    for text in given:
        step.zero_grad(set_to_none=True)
        loss = call(text.to(device))
        loss.backward()
        update()
        losses.append(loss.item())
    return losses


def curves(sizes: Mapping[str, int], steps: int, device: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """For each precision the losses of each contender, and of eager in float64 as "float64"."""
    network, given = small_gpt2(sizes), list(batches(documentation(), steps, sizes["batch"], sizes["length"]))
    exact = train(copy.deepcopy(network).double(), given, "", device, autocast=False)
    for precision, autocast in (("float32", False), ("autocast to bfloat16", True)):
        found = {
            name: train(copy.deepcopy(network), given, backend, device, autocast)
            for name, backend in CONTENDERS.items()
        }
        yield precision, {**found, "float64": exact}


def small_gpt2(sizes: Mapping[str, int]) -> nn.Module:
    """GPT-2 with vocabulary of bytes and without dropout; int64 [batch, length] -> [batch, length, 256]."""
    torch.manual_seed(0)
    return without_dropout(gpt2(**sizes, vocabulary=256)[0])


def largest_differences(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The largest difference of a step's losses: of each contender from float64, and of Kiln from eager."""
    pairs = {f"{name} - float64": (name, "float64") for name in CONTENDERS} | {"Kiln - eager": ("Kiln", "eager")}
    pairs["Inductor - eager"] = ("Inductor", "eager")
    return {
        title: float(f"{max(abs(a - b) for a, b in zip(found[one], found[other], strict=True)):.2g}")
        for title, (one, other) in pairs.items()
    }


def curve_charts(document: Mapping[str, Any]) -> list[Chart]:
    """For each precision the losses by step, and the distances from float64; about 40 steps of all."""
    charts: list[Chart] = []
    for run in document["runs"]:
        found, kind = run["losses"], run["precision"]
        steps = len(found["float64"])
        shown = sorted({round(steps ** (i / 40)) for i in range(41)})
        lines = {name: [(float(s), found[name][s - 1]) for s in shown] for name in CONTENDERS}
        charts.append(Chart(f"loss, {kind}", "step", "nats a byte", lines))
        apart = {
            name: [(float(s), max(_SMALLEST, abs(found[name][s - 1] - found["float64"][s - 1]))) for s in shown]
            for name in CONTENDERS
        }
        charts.append(Chart(f"distance from eager in float64, {kind}", "step", "nats a byte", apart))
    return charts


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    options = _options(argv)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    sizes = {name: getattr(options, name) for name in ("layers", "width", "heads", "batch", "length")}
    runs = []
    for precision, found in curves(sizes, options.steps, options.device):
        differences = largest_differences(found)
        print(
            f"{precision}: {found['Kiln'][0]:.3f} to {found['Kiln'][-1]:.3f} nats a byte; largest differences:",
            flush=True,
        )
        print("".join(f"  {title}: {value:g}\n" for title, value in differences.items()), end="")
        rounded = {name: [round(loss, 6) for loss in losses] for name, losses in found.items()}
        runs.append({"precision": precision, "largest_difference": differences, "losses": rounded})
    if options.record:
        head = {
            "date": datetime.date.today().isoformat(),
            "commit": commit(),
            "machine": torch.cuda.get_device_name() if options.device == "cuda" else options.machine,
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
            "network": {"kind": "GPT-2", "vocabulary": 256, "bytes": len(documentation()), **sizes},
            "threads": options.threads if options.device == "cpu" else None,
            "optimizer": "AdamW, lr 1e-3",
        }
        write(RESULTS, {**head, "runs": runs})
        CHART.write_text(svg(curve_charts({"runs": runs})), encoding="utf-8")


def commit() -> str:
    """The hash of what is checked out."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(file: Path, document: Mapping[str, Any]) -> None:
    """The document with each curve on a line of its own."""
    text = json.dumps({key: value for key, value in document.items() if key != "runs"}, indent=1)
    runs = []
    for run in document["runs"]:
        head = json.dumps({key: value for key, value in run.items() if key != "losses"})[:-1]
        lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(losses)}" for name, losses in run["losses"].items())
        runs.append(f'  {head}, "losses": {{\n{lines}\n  }}}}')
    file.write_text(f'{text[:-2]},\n "runs": [\n' + ",\n".join(runs) + "\n ]\n}\n", encoding="utf-8")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.curves", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--record", action="store_true", help="store the curves, and draw them")
    parser.add_argument("--machine", default=platform.processor(), help="what --record calls a CPU")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
