# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Language models that read from left to right: logits of every token."""

import functools
from typing import Any

from benchmarks.gpu.breadth.entry import DTYPES, Entry
from benchmarks.gpu.breadth.families.transformers_models import text_model

__all__ = ["ENTRIES"]


def _lm(
    model_type: str,
    *,
    name: str = "",
    batch: int = 8,
    length: int = 256,
    depth: int = 2,
    padded: bool = False,
    trains: bool = False,
    cost: float = 1.0,
    dtypes: tuple[str, ...] = tuple(DTYPES),
    **overrides: Any,
) -> Entry:
    def build(batch: int) -> Any:
        return text_model(model_type, "AutoModelForCausalLM", batch, length, depth, padded, overrides)

    return Entry(name or model_type, "decoder", build, batch, trains, cost, dtypes=dtypes)


_mixture = functools.partial(_lm, cost=2.0, batch=4)
"""Mixtures of experts: how many tokens an expert gets is known at run time only."""

_WIDE = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16}
_GROUPED = {**_WIDE, "num_key_value_heads": 4}
_EXPERTS = {"hidden_size": 1024, "intermediate_size": 1408, "num_attention_heads": 16, "num_key_value_heads": 4}

ENTRIES = [
    _lm("gpt2", batch=8, length=512, trains=True),
    _lm("openai-gpt", length=200, trains=True),
    _lm("gpt_neo", num_layers=2, attention_types=[[["global", "local"], 1]], length=300, trains=True),
    _lm("gptj", n_embd=2048, n_head=16, rotary_dim=64),
    _lm("gpt_neox", hidden_size=2560, intermediate_size=10240, num_attention_heads=32, trains=True),
    _lm("gpt_bigcode", n_embd=2048, n_head=16, length=384),
    _lm("codegen", n_embd=1024, n_head=16, rotary_dim=32),
    _lm("opt", hidden_size=1024, ffn_dim=4096, num_attention_heads=16, trains=True, padded=True),
    _lm("bloom", hidden_size=1024, n_head=16, trains=True, padded=True),
    _lm("mpt", d_model=2048, n_heads=16, batch=4, trains=True),
    _lm("falcon", hidden_size=2304, num_attention_heads=36, length=200, trains=True),
    _lm("llama", batch=4, length=512, **_GROUPED, trains=True),
    _lm("llama", name="llama 7B wide", batch=1, length=2048, depth=1),
    _lm("mistral", batch=1, length=2048, sliding_window=512, **_GROUPED),
    _lm("ministral", **_GROUPED, head_dim=128),
    _lm("qwen2", hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2, trains=True),
    _lm("qwen3", hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, trains=True),
    _lm("gemma", hidden_size=2048, intermediate_size=8192, num_attention_heads=8, num_key_value_heads=1, head_dim=256),
    _lm("gemma2", hidden_size=2304, intermediate_size=9216, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        batch=1, length=512, trains=True),
    _lm("gemma3_text", hidden_size=1152, intermediate_size=6912, num_attention_heads=4, num_key_value_heads=1,
        head_dim=256, sliding_window=128, length=300),
    _lm("phi", hidden_size=2560, intermediate_size=10240, num_attention_heads=32, length=200, trains=True),
    _lm("phi3", hidden_size=3072, intermediate_size=8192, num_attention_heads=32, pad_token_id=0),
    _lm("stablelm", hidden_size=2560, intermediate_size=6912, num_attention_heads=32, num_key_value_heads=32,
        trains=True),
    _lm("cohere", **_GROUPED, trains=True),
    _lm("cohere2", **_GROUPED, sliding_window=128),
    _lm("olmo", **_WIDE),
    _lm("olmo2", **_GROUPED, trains=True),
    _lm("olmo3", **_GROUPED),
    _lm("granite", **_GROUPED, logits_scaling=8.0, residual_multiplier=0.22, embedding_multiplier=12.0),
    _lm("starcoder2", hidden_size=3072, intermediate_size=12288, num_attention_heads=24, num_key_value_heads=2),
    _lm("nemotron", **_GROUPED),
    _lm("persimmon", hidden_size=2048, intermediate_size=8192, num_attention_heads=32, length=100),
    _lm("glm", hidden_size=2048, intermediate_size=6848, num_attention_heads=16, num_key_value_heads=2),
    _lm("glm4", hidden_size=2048, intermediate_size=6848, num_attention_heads=16, num_key_value_heads=2),
    _lm("helium", **_GROUPED),
    _lm("smollm3", **_GROUPED, pad_token_id=0),
    _lm("exaone4", **_GROUPED),
    _lm("ernie4_5", **_GROUPED),
    _lm("seed_oss", **_GROUPED, head_dim=128),
    _lm("arcee", **_GROUPED),
    _lm("apertus", **_GROUPED),
    _lm("bitnet", **_GROUPED),
    _lm("diffllama", **_WIDE),
    _lm("hunyuan_v1_dense", **_GROUPED, head_dim=128),
    _lm("lfm2", **_GROUPED),
    _lm("nanochat"),
    _lm("vaultgemma", hidden_size=1152, intermediate_size=6912, num_attention_heads=4, num_key_value_heads=4,
        head_dim=256),
    _lm("biogpt", length=200, trains=True),
    _lm("ctrl", n_embd=1280, n_head=16, length=256),
    _lm("xglm", d_model=1024, ffn_dim=4096, attention_heads=16, length=200),
    _lm("trocr", length=64, d_model=768, decoder_attention_heads=12, trains=True),
    _lm("xlnet", length=200, n_layer=2),
    _lm("modernbert-decoder", length=300),
    _lm("reformer", length=128, axial_pos_shape=[8, 16], is_decoder=True, cost=2.0),
    _lm("mamba", hidden_size=768, length=64, cost=8.0, batch=2),
    _lm("mamba2", hidden_size=1024, num_heads=32, length=256, cost=2.0),
    _lm("falcon_mamba", hidden_size=1024, length=64, cost=8.0, batch=2),
    _lm("rwkv", hidden_size=768, length=32, cost=4.0, batch=4),
    _lm("recurrent_gemma", hidden_size=1024, intermediate_size=3072, num_attention_heads=8, lru_width=1024, depth=3,
        cost=4.0),
    _lm("xlstm", hidden_size=1024, num_heads=4, num_blocks=2, cost=3.0, dtypes=("f32",)),
    _lm("jamba", **_GROUPED, depth=2, length=64, num_experts=4, use_mamba_kernels=False, cost=6.0, batch=2),
    _lm("bamba", **_GROUPED, cost=2.0, mamba_n_heads=64, mamba_d_head=64),
    _lm("falcon_h1", **_GROUPED, cost=2.0),
    _mixture("mixtral", **_EXPERTS, num_local_experts=8),
    _mixture("qwen2_moe", **_EXPERTS, num_experts=16, moe_intermediate_size=704, shared_expert_intermediate_size=2816),
    _mixture("qwen3_moe", **_EXPERTS, num_experts=16, moe_intermediate_size=768),
    _mixture("olmoe", **_EXPERTS, num_experts=16),
    _mixture("phimoe", **_EXPERTS, num_local_experts=8),
    _mixture("granitemoe", **_EXPERTS, num_local_experts=8),
    _mixture("jetmoe", hidden_size=1024, num_key_value_heads=8, kv_channels=64, intermediate_size=2816),
    _mixture("dbrx", d_model=1024, n_heads=16, attn_config={"kv_n_heads": 4, "clip_qkv": 8, "rope_theta": 1e4}),
    _mixture("deepseek_v2", hidden_size=1024, intermediate_size=2816, moe_intermediate_size=704, num_attention_heads=16,
             num_key_value_heads=16, n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4),
    _mixture("deepseek_v3", hidden_size=1024, intermediate_size=2816, moe_intermediate_size=704, num_attention_heads=16,
             num_key_value_heads=16, n_routed_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4,
             first_k_dense_replace=1),
    _mixture("gpt_oss", hidden_size=1024, intermediate_size=1024, num_attention_heads=16, num_key_value_heads=4,
             num_local_experts=8),
]  # fmt: skip
