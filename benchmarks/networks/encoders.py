# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transformers that read: encoders of text, images and sound, and the encoder-decoder T5."""

import torch

from benchmarks.networks.common import First, Network, images, tokens

__all__ = ["bert", "clip_text", "clip_vision", "distilbert", "roberta", "t5", "vit", "whisper_encoder"]


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
    return First(model, ("input_ids",)).eval(), tokens(vocabulary, batch, length)


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
    return First(ViTForImageClassification(config), ("pixel_values",)).eval(), images(batch, size)


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
    model = First(T5ForConditionalGeneration(config), ("input_ids", "decoder_input_ids"), use_cache=False)
    return model.eval(), tokens(vocabulary, batch, length, length // 2)


def distilbert(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """DistilBERT; tokens [batch, length] -> hidden states [batch, length, width]."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=vocabulary,
        dim=width,
        n_layers=layers,
        n_heads=heads,
        hidden_dim=4 * width,
        max_position_embeddings=max(64, length),
    )
    return First(DistilBertModel(config), ("input_ids",)).eval(), tokens(vocabulary, batch, length)


def roberta(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """RoBERTa with its masked-language head: positions are counted over the tokens that are no padding.

    Tokens [batch, length] -> logits [batch, length, vocabulary].
    """
    from transformers import RobertaConfig, RobertaForMaskedLM

    config = RobertaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=max(64, length) + 2,
    )
    return First(RobertaForMaskedLM(config), ("input_ids",)).eval(), tokens(vocabulary, batch, length)


def clip_text(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, length: int = 16, vocabulary: int = 100
) -> Network:
    """CLIP's text tower, causal, with the fast GELU; tokens [batch, length] -> hidden states [batch, length, width]."""
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=max(64, length),
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=2,  # as published: the end is the largest token
    )
    return First(CLIPTextModel(config), ("input_ids",)).eval(), tokens(vocabulary, batch, length)


def clip_vision(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, size: int = 32, patch: int = 8
) -> Network:
    """CLIP's image tower; images [batch, 3, size, size] -> hidden states [batch, patches + 1, width]."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=size,
        patch_size=patch,
    )
    return First(CLIPVisionModel(config), ("pixel_values",)).eval(), images(batch, size)


def whisper_encoder(
    *, layers: int = 2, width: int = 64, heads: int = 4, batch: int = 2, frames: int = 40, bands: int = 20
) -> Network:
    """Whisper's encoder: two one-dimensional convolutions, then a transformer.

    Spectrograms [batch, bands, frames] -> hidden states [batch, frames / 2, width].
    """
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        num_mel_bins=bands,
        max_source_positions=frames // 2,
    )

    def spectrograms(g: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(batch, bands, frames, generator=g),)

    return First(WhisperEncoder(config), ("input_features",)).eval(), spectrograms
