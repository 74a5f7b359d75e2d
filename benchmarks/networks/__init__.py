# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The networks that tests and benchmarks run: random weights, nothing is downloaded.

Each builder returns ``(model, make_inputs)``: a module in eval mode, and a function from a ``torch.Generator`` to a
tuple of inputs. Every model takes positional tensors and returns one tensor. Without arguments a builder makes a
network that is small enough for tests.
"""

from collections.abc import Callable

from benchmarks.networks.common import Inputs, Network
from benchmarks.networks.convolutional import (
    EFFICIENTNET_STAGES,
    MOBILENET_STAGES,
    MobileNetV2,
    ResNet18,
    efficientnet,
    mobilenet_v2,
    resnet18,
    resnet50,
    vgg11,
)
from benchmarks.networks.decoders import gemma, gpt2, llama, mistral, opt, phi, qwen2
from benchmarks.networks.encoders import bert, clip_text, clip_vision, distilbert, roberta, t5, vit, whisper_encoder
from benchmarks.networks.tables import dlrm, lstm
from benchmarks.networks.unet import diffusion_unet, unet
from benchmarks.networks.vision import convnext, mixer, swin

__all__ = [
    "BUILDERS",
    "EFFICIENTNET_STAGES",
    "MOBILENET_STAGES",
    "Inputs",
    "MobileNetV2",
    "Network",
    "ResNet18",
    "bert",
    "gpt2",
    "llama",
    "mobilenet_v2",
    "resnet18",
    "t5",
    "vit",
]

_ENCODERS = (bert, distilbert, roberta, clip_text, clip_vision, whisper_encoder, vit, t5)
_DECODERS = (gpt2, llama, mistral, qwen2, gemma, opt, phi)
_CONVOLUTIONAL = (resnet18, resnet50, vgg11, mobilenet_v2, efficientnet)
_VISION = (convnext, swin, mixer, unet, diffusion_unet)
_TABLES = (lstm, dlrm)

BUILDERS: dict[str, Callable[..., Network]] = {
    builder.__name__: builder for builder in (*_ENCODERS, *_DECODERS, *_CONVOLUTIONAL, *_VISION, *_TABLES)
}
