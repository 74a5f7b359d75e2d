# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whole models at the sizes of one request."""

from typing import Any

from benchmarks import networks
from benchmarks.case import Case

__all__ = ["MODEL_CASES"]


def _model(name: str, describe: str, full: dict[str, Any], small: dict[str, Any]) -> Case:
    builder = networks.BUILDERS[name]
    return Case(name, "model", describe, lambda: builder(**full), lambda: builder(**small))


_BASE = {"width": 768, "heads": 12, "batch": 1}
_SMALL = {"layers": 1, "width": 128, "heads": 4, "batch": 1}
_TEXT = {"layers": 4, "length": 128}
_DECODER = {"layers": 4, "width": 512, "heads": 8, "key_heads": 4, "hidden": 1408}
_DECODER |= {"batch": 1, "length": 128, "vocabulary": 8000}
_PUBLISHED = {"classes": 1000, "batch": 1, "size": 224}
_QUICK = {"batch": 1, "size": 64}


def _encoder(name: str, vocabulary: int) -> Case:
    full = _BASE | _TEXT | {"vocabulary": vocabulary}
    return _model(
        name, f"4 layers of width 768, 1 x 128 tokens, vocabulary {vocabulary}", full, _SMALL | {"length": 64}
    )


def _decoder(name: str, **more: Any) -> Case:
    window = f", windows of {more['window']}" if more else ""
    describe = f"4 layers of width 512, 8 heads on 4, 1 x 128 tokens{window}, vocabulary 8000"
    return _model(name, describe, _DECODER | more, _SMALL | {"length": 64})


def _published(name: str, sizes: dict[str, Any], small: dict[str, Any]) -> Case:
    return _model(name, "published size, one 224 x 224 image", _PUBLISHED | sizes, small | _QUICK)


MODEL_CASES = [
    _encoder("bert", 30522),
    _encoder("distilbert", 30522),
    _encoder("roberta", 8000),
    _encoder("gpt2", 8000),
    _encoder("opt", 8000),
    _encoder("phi", 8000),
    _decoder("llama"),
    _decoder("mistral", window=64),
    _decoder("qwen2"),
    _decoder("gemma"),
    _model(
        "t5",
        "2 + 2 layers of width 512, 1 x 128 and 64 tokens, vocabulary 8000",
        {"layers": 2, "width": 512, "heads": 8, "batch": 1, "length": 128, "vocabulary": 8000},
        _SMALL | {"length": 64},
    ),
    _model(
        "vit",
        "4 layers of width 768, one 224 x 224 image",
        _BASE | {"layers": 4, "size": 224, "patch": 16, "classes": 1000},
        _SMALL | {"size": 64},
    ),
    _model(
        "clip_vision",
        "4 layers of width 768, one 224 x 224 image in patches of 32",
        _BASE | {"layers": 4, "size": 224, "patch": 32},
        _SMALL | {"size": 64},
    ),
    _model(
        "clip_text",
        "4 layers of width 512, 1 x 77 tokens, vocabulary 49408",
        {"layers": 4, "width": 512, "heads": 8, "batch": 1, "length": 77, "vocabulary": 49408},
        _SMALL | {"length": 64},
    ),
    _model(
        "whisper_encoder",
        "4 layers of width 384, 80 bands, 1 x 1000 frames",
        {"layers": 4, "width": 384, "heads": 6, "batch": 1, "frames": 1000, "bands": 80},
        _SMALL | {"frames": 100},
    ),
    _published("resnet18", {"width": 64}, {"width": 16}),
    _published("resnet50", {"width": 64, "blocks": (3, 4, 6, 3)}, {"width": 16}),
    _published("vgg11", {"width": 64, "hidden": 4096, "pooled": 7}, {"width": 16}),
    _published("mobilenet_v2", {"stages": networks.MOBILENET_STAGES, "last": 1280}, {}),
    _published("efficientnet", {"stages": networks.EFFICIENTNET_STAGES, "last": 1280}, {}),
    _published("convnext", {"widths": (96, 192, 384, 768), "blocks": (3, 3, 9, 3)}, {}),
    _published("swin", {"width": 96, "blocks": (2, 2, 6, 2), "heads": (3, 6, 12, 24), "window": 7}, {}),
    _published("mixer", {"layers": 8, "width": 512, "token_width": 256, "channel_width": 2048, "patch": 16}, {}),
    _model(
        "unet",
        "width 32, 4 levels, one 256 x 256 image",
        {"width": 32, "levels": 4, "batch": 1, "size": 256},
        {"batch": 1, "size": 64},
    ),
    _model(
        "diffusion_unet",
        "width 128, 8 heads, one 32 x 32 image",
        {"width": 128, "heads": 8, "groups": 32, "batch": 1, "size": 32},
        {"batch": 1, "size": 16},
    ),
    _model(
        "lstm",
        "2 layers of width 256, 8 x 32 tokens, vocabulary 8000",
        {"width": 256, "batch": 8, "length": 32, "vocabulary": 8000},
        {"width": 64, "length": 8},
    ),
    _model(
        "dlrm",
        "8 tables of 100000 x 64, bags of 10, 128 requests",
        {"rows": (100_000,) * 8, "width": 64, "hidden": 512, "bag": 10, "batch": 128},
        {"rows": (1000,) * 4, "batch": 16},
    ),
]
