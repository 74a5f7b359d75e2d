# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Speech and sound: waveforms or spectrograms."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families.transformers_models import model, reduced

__all__ = ["ENTRIES"]

Shapes = Callable[[int, Any], dict[str, tuple[int, ...]]]
"""(batch, configuration) -> the shapes of the inputs; of integers where the name ends in `ids`."""


def _wave(batch: int, config: Any) -> dict[str, tuple[int, ...]]:
    return {"input_values": (batch, 16000)}


def _audio(
    model_type: str,
    shapes: Shapes,
    *,
    auto: str = "AutoModel",
    name: str = "",
    batch: int = 4,
    depth: int = 2,
    trains: bool = False,
    cost: float = 1.5,
    **overrides: Any,
) -> Entry:
    def build(batch: int) -> Built:
        config = reduced(model_type, depth, **overrides)
        found = shapes(batch, config)

        def make(generator: torch.Generator) -> dict[str, torch.Tensor]:
            return {
                key: torch.randint(3, 500, shape, generator=generator)
                if key.endswith("ids")
                else torch.randn(shape, generator=generator)
                for key, shape in found.items()
            }

        return model(config, auto), make

    # Speech models that read waves make their first hidden states need gradients: a leaf must not have a history then.
    return Entry(name or model_type, "audio", build, batch, trains, cost, input_gradients=shapes is not _wave)


def _spoken(batch: int, config: Any) -> dict[str, tuple[int, ...]]:
    return {"input_features": (batch, config.num_mel_bins, 3000), "decoder_input_ids": (batch, 40)}


ENTRIES = [
    _audio("whisper", _spoken, d_model=512, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
           decoder_ffn_dim=2048, trains=True, cost=2.0, depth=1),
    _audio("wav2vec2", _wave, trains=True, auto="AutoModelForCTC", mask_time_prob=0.0),
    _audio("hubert", _wave, trains=True, mask_time_prob=0.0),
    _audio("wavlm", _wave, mask_time_prob=0.0),
    _audio("unispeech", _wave, mask_time_prob=0.0),
    _audio("unispeech-sat", _wave, mask_time_prob=0.0),
    _audio("data2vec-audio", _wave, mask_time_prob=0.0, trains=True),
    _audio("sew", _wave, mask_time_prob=0.0, trains=True),
    _audio("sew-d", _wave, mask_time_prob=0.0),
    _audio("wav2vec2-conformer", _wave, mask_time_prob=0.0, trains=True),
    _audio("wav2vec2-bert", lambda b, c: {"input_features": (b, 200, c.feature_projection_input_dim)},
           mask_time_prob=0.0, trains=True),
    _audio("audio-spectrogram-transformer", lambda b, c: {"input_values": (b, c.max_length, c.num_mel_bins)},
           max_length=512, trains=True),
    _audio("speech_to_text", lambda b, c: {"input_features": (b, 300, 80), "decoder_input_ids": (b, 40)},
           trains=True),
    _audio("moonshine", lambda b, c: {"input_values": (b, 16000), "decoder_input_ids": (b, 32)}, depth=1,
           encoder_num_hidden_layers=1, decoder_num_hidden_layers=1),
    _audio("parakeet_encoder", lambda b, c: {"input_features": (b, 400, c.num_mel_bins)}, auto="ParakeetEncoder"),
    _audio("encodec", lambda b, c: {"input_values": (b, 1, 12000)}, cost=3.0),
    _audio("dac", lambda b, c: {"input_values": (b, 1, 8192)}, cost=3.0),
    _audio("univnet", lambda b, c: {"input_features": (b, 60, 100), "noise_sequence": (b, 60, 64)},
           auto="UnivNetModel", cost=3.0),
    _audio("clap_audio_model", lambda b, c: {"input_features": (b, 1, 1001, 64)}, auto="ClapAudioModel",
           depths=[1, 1, 1, 1], cost=3.0),
    _audio("patchtst", lambda b, c: {"past_values": (b, 512, 7)}, context_length=512, num_input_channels=7, trains=True,
           d_model=128, num_attention_heads=16, patch_length=12, patch_stride=12),
    _audio("patchtsmixer", lambda b, c: {"past_values": (b, 512, 7)}, context_length=512, num_input_channels=7,
           patch_length=16, patch_stride=16, d_model=64, trains=True),
]  # fmt: skip
