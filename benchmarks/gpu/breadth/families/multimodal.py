# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Several kinds of inputs in one model."""

from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families.transformers_models import ids, model, reduced

__all__ = ["ENTRIES"]

_TEXT = {"num_hidden_layers": 2}


def _pictures_and_text(
    model_type: str, auto: str, words: int, *, length: int = 64, size: int = 224, batch: int = 8, cost: float = 2.0,
    trains: bool = False, **overrides: Any,
) -> Entry:  # fmt: skip
    def build(batch: int) -> Built:
        texts = ids(words, batch, length, padded=True)

        def make(generator: torch.Generator) -> dict[str, Any]:
            return dict(texts(generator)) | {"pixel_values": torch.randn(batch, 3, size, size, generator=generator)}

        return model(reduced(model_type, 2, **overrides), auto), make

    return Entry(model_type, "multimodal", build, batch, trains, cost)


_TWO = {"text_config": _TEXT, "vision_config": {"num_hidden_layers": 2}}

ENTRIES = [
    _pictures_and_text("clip", "CLIPModel", 49000, length=77, trains=True, **_TWO),
    _pictures_and_text("siglip", "SiglipModel", 31000, **_TWO),
    _pictures_and_text("altclip", "AltCLIPModel", 16000, length=77, cost=2.0,
                       text_config={"num_hidden_layers": 2, "vocab_size": 16000}, vision_config=_TEXT),
    _pictures_and_text("chinese_clip", "ChineseCLIPModel", 21000, **_TWO),
    _pictures_and_text("blip", "BlipModel", 30000, text_config=_TEXT, vision_config={**_TEXT, "image_size": 224}),
    _pictures_and_text("git", "GitForCausalLM", 30000, length=40, vision_config=_TEXT),
    _pictures_and_text("vilt", "ViltModel", 30000, length=40, size=384, batch=4),
    _pictures_and_text("owlvit", "OwlViTModel", 49000, length=16, size=768, batch=2, **_TWO),
    _pictures_and_text("bridgetower", "BridgeTowerModel", 50000, length=40, size=288, batch=4, cost=4.0,
                       num_hidden_layers=2, text_config=_TEXT, vision_config=_TEXT),
    _pictures_and_text("groupvit", "GroupViTModel", 49000, length=77, text_config=_TEXT,
                       vision_config={"depths": [1, 1, 1]}),
    _pictures_and_text("clipseg", "CLIPSegModel", 49000, length=77, **_TWO),
]  # fmt: skip
