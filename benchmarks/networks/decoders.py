# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transformers that write: causal language models."""

from typing import Any

from benchmarks.networks.common import First, Network, tokens

__all__ = ["gemma", "gpt2", "llama", "mistral", "opt", "phi", "qwen2"]


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
    return First(GPT2LMHeadModel(config), ("input_ids",), use_cache=False).eval(), tokens(vocabulary, batch, length)


def _rotary(
    config_class: Any,
    model_class: Any,
    fixed: dict[str, Any],
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
    """A decoder of Llama's family: rotary positions, grouped-query attention, gated feed-forward, RMS norms."""
    config = config_class(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden or 2 * width + 24,  # no multiple of a vector's length
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=max(64, length),
        **fixed,
    )
    return First(model_class(config), ("input_ids",), use_cache=False).eval(), tokens(vocabulary, batch, length)


def llama(**sizes: Any) -> Network:
    """Llama with grouped-query attention; tokens [batch, length] -> logits [batch, length, vocabulary].

    Sizes: ``layers``, ``width``, ``heads``, ``key_heads``, ``hidden``, ``batch``, ``length``, ``vocabulary``.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    return _rotary(LlamaConfig, LlamaForCausalLM, {}, **sizes)


def mistral(*, window: int = 8, **sizes: Any) -> Network:
    """Mistral: attention over a window of the last `window` tokens; sizes and result are `llama`'s."""
    from transformers import MistralConfig, MistralForCausalLM

    return _rotary(MistralConfig, MistralForCausalLM, {"sliding_window": window}, **sizes)


def qwen2(**sizes: Any) -> Network:
    """Qwen2: queries, keys and values have a bias; sizes and result are `llama`'s."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _rotary(Qwen2Config, Qwen2ForCausalLM, {}, **sizes)


def gemma(**sizes: Any) -> Network:
    """Gemma: GELU gates, norms that multiply by 1 + weight, scaled embeddings; sizes and result are `llama`'s."""
    from transformers import GemmaConfig, GemmaForCausalLM

    heads = {"head_dim": sizes.get("width", 64) // sizes.get("heads", 4)}
    return _rotary(GemmaConfig, GemmaForCausalLM, heads, **sizes)


def opt(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """OPT: ReLU and learned positions; tokens [batch, length] -> logits [batch, length, vocabulary]."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        ffn_dim=4 * width,
        word_embed_proj_dim=width,
        max_position_embeddings=max(64, length),
        bos_token_id=0,
        eos_token_id=0,
    )
    return First(OPTForCausalLM(config), ("input_ids",), use_cache=False).eval(), tokens(vocabulary, batch, length)


def phi(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """Phi: attention and feed-forward side by side, rotations of half of each head.

    Tokens [batch, length] -> logits [batch, length, vocabulary].
    """
    from transformers import PhiConfig, PhiForCausalLM

    config = PhiConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max(64, length),
        partial_rotary_factor=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return First(PhiForCausalLM(config), ("input_ids",), use_cache=False).eval(), tokens(vocabulary, batch, length)
