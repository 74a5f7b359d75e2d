# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transformers of the x-transformers package: attention is written out, with what papers have put into it."""

from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry

__all__ = ["ENTRIES"]

_WORDS, _LENGTH = 1000, 96
_OPTIONS: dict[str, dict[str, Any]] = {
    "alibi": {"alibi_pos_bias": True},
    "contextual positions": {"attn_use_cope": True, "attn_cope_max_pos": 16},
    "data-dependent alibi": {"attn_data_dependent_alibi": True},
    "dynamic tanh": {"use_dynamic_tanh": True},
    "gated residual": {"gate_residual": True},
    "gated values": {"attn_gate_values": True},
    "GLU": {"ff_glu": True, "ff_swish": True},
    "grouped heads": {"attn_kv_heads": 2},
    "laser": {"attn_laser": True},
    "macaron": {"macaron": True},
    "memory keys": {"attn_num_mem_kv": 4},
    "on attention": {"attn_on_attn": True},
    "one key head": {"attn_one_kv_head": True},
    "post-norm": {"pre_norm": False},
    "query-key norm": {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True},
    "relative bias": {"rel_pos_bias": True},
    "residual attention": {"residual_attn": True},
    "RMS norm": {"use_rmsnorm": True},
    "rotary": {"rotary_pos_emb": True},
    "sandwich norm": {"sandwich_norm": True},
    "scaled heads": {"attn_head_scale": True},
    "selective": {"attn_selective": True},
    "shifted tokens": {"shift_tokens": 1},
    "soft-clamped logits": {"attn_softclamp_logits": True},
    "squared ReLU": {"ff_relu_squared": True},
    "streams": {"num_residual_streams": 2},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "top k": {"attn_sparse_topk": 8},
    "xPos": {"rotary_xpos": True},
    "zero key": {"attn_add_zero_kv": True},
}


def _decoder(name: str) -> Entry:
    def build(batch: int) -> Built:
        from x_transformers import Decoder, TransformerWrapper

        layers = Decoder(dim=256, depth=2, heads=4, **_OPTIONS[name])
        found = TransformerWrapper(num_tokens=_WORDS, max_seq_len=_LENGTH, attn_layers=layers)
        return found, lambda generator: (torch.randint(0, _WORDS, (batch, _LENGTH), generator=generator),)

    return Entry(f"x-transformers {name}", "transformers (written out)", build, 16, trains=True, cost=3.0)


ENTRIES = [_decoder(name) for name in _OPTIONS]
