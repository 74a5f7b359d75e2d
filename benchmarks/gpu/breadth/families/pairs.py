# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Encoders with decoders: logits of every token of the target."""

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families.transformers_models import ids, model, reduced

__all__ = ["ENTRIES"]


def _pair(
    model_type: str,
    *,
    auto: str = "AutoModelForSeq2SeqLM",
    batch: int = 8,
    source: int = 128,
    target: int = 64,
    depth: int = 1,
    padded: bool = True,
    trains: bool = False,
    cost: float = 1.5,
    **overrides: Any,
) -> Entry:
    def build(batch: int) -> Built:
        config = reduced(model_type, depth, **overrides)
        words = getattr(config, "vocab_size", None) or 1000
        sources, targets = ids(words, batch, source, padded=padded), ids(words, batch, target)

        def make(generator: torch.Generator) -> Mapping[str, Any]:
            arguments = dict(sources(generator))
            return arguments | {"decoder_input_ids": dict(targets(generator))["input_ids"]}

        return model(config, auto), make

    return Entry(model_type, "encoder-decoder", build, batch, trains, cost)


ENTRIES = [
    _pair("t5", trains=True),
    _pair("mt5", d_model=768, d_ff=2048, num_heads=12, source=200),
    _pair("umt5", d_model=768, d_ff=2048, num_heads=12),
    _pair("longt5", d_model=768, num_heads=12, source=256),
    _pair("switch_transformers", num_experts=4, depth=2, cost=3.0, batch=4),
    _pair("bart", trains=True),
    _pair("mbart", trains=True),
    _pair("marian", d_model=512, decoder_start_token_id=0, encoder_attention_heads=8, decoder_attention_heads=8,
          pad_token_id=0, trains=True),
    _pair("pegasus", trains=True, source=200),
    _pair("pegasus_x", source=256, block_size=64, num_global_tokens=32),
    _pair("blenderbot", d_model=2560, encoder_attention_heads=32, decoder_attention_heads=32, batch=4),
    _pair("blenderbot-small", trains=True),
    _pair("m2m_100", source=100, trains=True),
    _pair("nllb-moe", d_model=512, encoder_ffn_dim=2048, decoder_ffn_dim=2048, num_experts=4, encoder_sparse_step=1,
          decoder_sparse_step=1, cost=3.0, batch=2),
    _pair("plbart"),
    _pair("mvp"),
    _pair("led", attention_window=64, source=256, batch=4, cost=2.0),
    _pair("bigbird_pegasus", attention_type="original_full", source=256, batch=4),
    _pair("prophetnet", depth=99, num_encoder_layers=1, num_decoder_layers=1, hidden_size=1024,
          source=100, target=40, cost=2.0),
    _pair("fsmt", langs=["en", "de"], src_vocab_size=16000, tgt_vocab_size=16000, d_model=1024, target=40),
]  # fmt: skip
