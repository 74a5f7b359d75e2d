# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The networks that tests and benchmarks run: random weights, nothing is downloaded.

Each builder returns ``(model, make_inputs)``: a module in eval mode, and a function from a ``torch.Generator`` to a
tuple of inputs. Every model takes positional tensors and returns one tensor.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = [
    "BUILDERS",
    "Inputs",
    "MobileNetV2",
    "ResNet18",
    "bert",
    "gpt2",
    "llama",
    "mobilenet_v2",
    "resnet18",
    "t5",
    "vit",
]

Inputs = Callable[[torch.Generator], tuple[torch.Tensor, ...]]
Network = tuple[nn.Module, Inputs]


class _First(nn.Module):
    """A transformers model that returns the first field of its output alone (hidden states or logits)."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)[0]


def _tokens(vocabulary: int, batch: int, *lengths: int) -> Inputs:
    return lambda g: tuple(torch.randint(0, vocabulary, (batch, length), generator=g) for length in lengths)


def _images(batch: int, size: int) -> Inputs:
    return lambda g: (torch.randn(batch, 3, size, size, generator=g),)


def bert(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """BERT encoder; tokens [batch, length] -> hidden states [batch, length, width]."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=max(64, length),
    )
    model = BertModel(config, add_pooling_layer=False)
    return _First(model, ("input_ids",)).eval(), _tokens(vocabulary, batch, length)


def gpt2(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """GPT-2 with its language-model head; tokens [batch, length] -> logits [batch, length, vocabulary]."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=max(64, length),
        bos_token_id=0,
        eos_token_id=0,
    )
    return _First(GPT2LMHeadModel(config), ("input_ids",), use_cache=False).eval(), _tokens(vocabulary, batch, length)


def llama(
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    key_heads: int = 2,
    hidden: int | None = None,
    batch: int = 2,
    length: int = 16,
    vocabulary: int = 100,
) -> Network:
    """Llama with grouped-query attention; tokens [batch, length] -> logits [batch, length, vocabulary]."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden or 2 * width + 24,  # no multiple of a vector's length
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=max(64, length),
    )
    return _First(LlamaForCausalLM(config), ("input_ids",), use_cache=False).eval(), _tokens(vocabulary, batch, length)


def vit(
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    batch: int = 2,
    size: int = 32,
    patch: int = 8,
    classes: int = 10,
) -> Network:
    """Vision transformer; images [batch, 3, size, size] -> logits [batch, classes]."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=size,
        patch_size=patch,
        num_labels=classes,
    )
    return _First(ViTForImageClassification(config), ("pixel_values",)).eval(), _images(batch, size)


def t5(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """T5; tokens [batch, length] and [batch, length / 2] -> logits [batch, length / 2, vocabulary]."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=0,
    )
    model = _First(T5ForConditionalGeneration(config), ("input_ids", "decoder_input_ids"), use_cache=False)
    return model.eval(), _tokens(vocabulary, batch, length, length // 2)


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution without bias, padded to keep the size, and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class _Basic(nn.Module):
    """ResNet's two-convolution block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv(inputs, outputs, 3, stride), nn.ReLU(inplace=True), *_conv(outputs, outputs, 3)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 (He et al. 2015); ``width`` 64 is the published one."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_conv(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inputs = width
        for stage in range(4):
            outputs = width << stage
            for block in range(2):
                layers.append(_Basic(inputs, outputs, 2 if stage and not block else 1))
                inputs = outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class _Inverted(nn.Module):
    """MobileNetV2's inverted residual: expand, depthwise, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = [*_conv(inputs, hidden, 1), nn.ReLU6(inplace=True)] if expand > 1 else []
        layers += [*_conv(hidden, hidden, 3, stride, hidden), nn.ReLU6(inplace=True), *_conv(hidden, outputs, 1)]
        self.body, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


#: (expansion, channels, blocks, stride) of the published MobileNetV2 (Sandler et al. 2018).
MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    """MobileNetV2 with the given stages."""

    def __init__(
        self, stages: tuple[tuple[int, int, int, int], ...] = MOBILENET_STAGES, last: int = 1280, classes: int = 1000
    ) -> None:
        super().__init__()
        inputs = 32
        layers: list[nn.Module] = [*_conv(3, inputs, 3, 2), nn.ReLU6(inplace=True)]
        for expand, outputs, blocks, stride in stages:
            for block in range(blocks):
                layers.append(_Inverted(inputs, outputs, 1 if block else stride, expand))
                inputs = outputs
        layers += [*_conv(inputs, last, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@torch.no_grad()
def _trained_statistics(model: nn.Module) -> nn.Module:
    """Give batch norms the statistics and weights of a trained network's order, not the (0, 1, 1, 0) of a new one."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.2)
    return model.eval()


def resnet18(*, width: int = 16, classes: int = 10, batch: int = 2, size: int = 32) -> Network:
    """ResNet-18; images [batch, 3, size, size] -> logits [batch, classes]."""
    return _trained_statistics(ResNet18(width, classes)), _images(batch, size)


def mobilenet_v2(
    *,
    stages: tuple[tuple[int, int, int, int], ...] = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2)),
    last: int = 64,
    classes: int = 10,
    batch: int = 2,
    size: int = 32,
) -> Network:
    """MobileNetV2; images [batch, 3, size, size] -> logits [batch, classes]."""
    return _trained_statistics(MobileNetV2(stages, last, classes)), _images(batch, size)


BUILDERS: dict[str, Callable[..., Network]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "vit": vit,
    "t5": t5,
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
}
