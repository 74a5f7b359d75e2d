# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-demo``: compile a small transformer with Kiln, check it against float64, and time it next to eager.

The model is a BERT encoder from transformers with random weights; nothing is downloaded.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 0 when Kiln's error is at most three times eager's, 1 otherwise."""
    arguments = _arguments(argv)
    import copy

    import torch

    import kiln

    torch.manual_seed(0)
    model, ids = _bert(arguments)
    precise = copy.deepcopy(model).double()
    compiled: Callable[..., Any] = torch.compile(model, backend="kiln", fullgraph=True)
    print(
        f"BERT: {arguments.layers} layers of width {arguments.width}, batch {arguments.batch}, "
        f"{arguments.length} tokens, {torch.get_num_threads()} threads\n"
    )
    with torch.no_grad():
        print(kiln.explain(model, ids))
        torch._dynamo.reset()
        start = time.perf_counter()
        result = compiled(ids)[0]
        first = time.perf_counter() - start
        expected = precise(ids)[0]
        eager_error = _error(model(ids)[0], expected)
        kiln_error = _error(result, expected)
        eager_ms, kiln_ms = _time(arguments.repeat, lambda: model(ids), lambda: compiled(ids))
    print(f"first call: {first:.2f} s, compiling included")
    print(f"relative error against float64: eager {eager_error:.2e}, kiln {kiln_error:.2e}")
    print(f"time per call, median of {arguments.repeat} interleaved runs:", end=" ")
    print(f"eager {eager_ms:.2f} ms, kiln {kiln_ms:.2f} ms ({eager_ms / kiln_ms:.2f}x)")
    if not kiln_error <= 3 * eager_error + 1e-12:
        print("kiln-demo: error: the result is wrong", file=sys.stderr)
        return 1
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kiln-demo", description="Compile and run a small BERT with Kiln.")

    def add(name: str, default: int, text: str) -> None:
        parser.add_argument(name, type=_positive, default=default, metavar="N", help=f"{text}; {default} by default")

    add("--layers", 2, "layers of attention and two products")
    add("--width", 256, "hidden size, a multiple of 64")
    add("--batch", 4, "sequences")
    add("--length", 128, "tokens per sequence")
    add("--repeat", 30, "timed calls of each")
    found = parser.parse_args(argv)
    if found.width % 64:
        parser.error(f"argument --width: a multiple of 64, the width of a head, expected, found {found.width}")
    return found


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a positive number expected, found {text!r}")
    return int(text)


def _bert(arguments: argparse.Namespace) -> tuple[Any, Any]:
    import torch

    try:
        # By name: for an import statement, pyright reads all of transformers, which takes it 20 s.
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise SystemExit("kiln-demo: error: needs transformers: pip install 'kiln-mlir[test]'") from None
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.width // 64,
        intermediate_size=4 * arguments.width,
        max_position_embeddings=max(512, arguments.length),
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    return model, torch.randint(0, 1000, (arguments.batch, arguments.length))


def _error(result: Any, expected: Any) -> float:
    """Frobenius norm of the difference over that of ``expected``, computed in float64."""
    return float((result.double() - expected).norm() / expected.norm())


def _time(repeat: int, *calls: Callable[[], Any]) -> list[float]:
    """Median milliseconds of each call; the calls take turns, so that a slow moment hits all alike."""
    for call in calls:
        for _ in range(3):
            call()
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for call, mine in zip(calls, samples, strict=True):
            start = time.perf_counter()
            call()
            mine.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(mine) for mine in samples]


if __name__ == "__main__":
    sys.exit(main())
