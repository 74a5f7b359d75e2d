# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Models of the transformers package from its configurations: real widths, few layers, nothing downloaded."""

from typing import Any

import torch
from torch import nn

from benchmarks.gpu.breadth.entry import Built, Inputs

__all__ = ["ids", "model", "pixels", "reduced", "text_model"]

_DEPTHS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
)
_VOCABULARY = 52000
"""Larger ones shrink to 16,000 words: their tables in float64 would take most of the memory."""


def reduced(model_type: str, depth: int, **overrides: Any) -> Any:
    """The configuration of `model_type` with its own widths and at most `depth` layers, without dropout or a cache."""
    from transformers import AutoConfig

    default = AutoConfig.for_model(model_type)
    for name in _DEPTHS:
        if isinstance(getattr(default, name, None), int) and getattr(default, name) > depth:
            overrides.setdefault(name, depth)
    words = getattr(default, "vocab_size", None)
    if isinstance(words, int) and words > _VOCABULARY:
        overrides.setdefault("vocab_size", 16000)
    config = AutoConfig.for_model(model_type, **overrides)
    _settle(config)
    return config


def _settle(config: Any) -> None:
    words = getattr(config, "vocab_size", None)
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_diff_dict"):
            _settle(value)
        elif isinstance(value, float) and any(part in name for part in ("drop", "_pdrop")):
            setattr(config, name, 0.0)
        elif name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
            if isinstance(words, int) and isinstance(value, int) and value >= words:
                setattr(config, name, 0)
        elif name == "use_cache":
            config.use_cache = False


def model(config: Any, auto: str = "AutoModel") -> nn.Module:
    """`auto`: one of the package's Auto classes, or a class by its name."""
    import transformers

    found = getattr(transformers, auto)
    return found.from_config(config) if auto.startswith("Auto") else found(config)


def ids(vocabulary: int, batch: int, length: int, *, padded: bool = False, **more: Any) -> Inputs:
    """Tokens [batch, length]; `padded`: with a mask that hides the ends of every second sequence."""

    def make(generator: torch.Generator) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": torch.randint(3, vocabulary, (batch, length), generator=generator)}
        if padded:
            mask = torch.ones(batch, length, dtype=torch.int64)
            mask[::2, length - length // 5 :] = 0
            arguments["attention_mask"] = mask
        return arguments | more

    return make


def pixels(batch: int, size: int, name: str = "pixel_values") -> Inputs:
    """Images [batch, 3, size, size]."""
    return lambda generator: {name: torch.randn(batch, 3, size, size, generator=generator)}


def text_model(
    model_type: str, auto: str, batch: int, length: int, depth: int, padded: bool, overrides: dict[str, Any]
) -> Built:
    """A model of tokens alone."""
    config = reduced(model_type, depth, **overrides)
    words = getattr(config, "vocab_size", None) or 1000
    return model(config, auto), ids(words, batch, length, padded=padded)
