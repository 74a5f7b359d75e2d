# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Language models that see all tokens: hidden states or logits."""

from typing import Any

from benchmarks.gpu.breadth.entry import DTYPES, Entry
from benchmarks.gpu.breadth.families.transformers_models import text_model

__all__ = ["ENTRIES"]


def _encoder(
    model_type: str,
    *,
    auto: str = "AutoModelForMaskedLM",
    name: str = "",
    batch: int = 16,
    length: int = 128,
    depth: int = 2,
    padded: bool = True,
    trains: bool = False,
    cost: float = 1.0,
    dtypes: tuple[str, ...] = tuple(DTYPES),
    **overrides: Any,
) -> Entry:
    def build(batch: int) -> Any:
        return text_model(model_type, auto, batch, length, depth, padded, overrides)

    return Entry(name or model_type, "encoder", build, batch, trains, cost, dtypes=dtypes)


ENTRIES = [
    _encoder("bert", trains=True),
    _encoder("bert", name="bert 512", length=512, batch=4, padded=False),
    _encoder("roberta", length=200, trains=True),
    _encoder("albert", trains=True),
    _encoder("distilbert", trains=True, length=197),
    _encoder("electra", trains=True),
    _encoder("deberta", length=128, relative_attention=True, pos_att_type=["c2p", "p2c"], trains=True),
    _encoder("deberta-v2", hidden_size=768, num_attention_heads=12, intermediate_size=3072, relative_attention=True,
             pos_att_type=["p2c", "c2p"], length=128, trains=True),
    _encoder("mpnet", trains=True),
    _encoder("modernbert", length=256, batch=4, trains=True),
    _encoder("longformer", attention_window=64, length=256, batch=4, cost=2.0, trains=True),
    _encoder("big_bird", length=256, batch=4, attention_type="original_full"),
    _encoder("fnet", padded=False, trains=True, dtypes=("f32",)),
    _encoder("camembert"),
    _encoder("xlm-roberta", length=100),
    _encoder("xlm-roberta-xl", hidden_size=2560, intermediate_size=10240, batch=4),
    _encoder("roberta-prelayernorm", trains=True),
    _encoder("xmod", default_language="en_XX", languages=["en_XX"], auto="AutoModelForMaskedLM"),
    _encoder("xlm", emb_dim=1024, n_heads=16, padded=True, length=100),
    _encoder("flaubert", emb_dim=768, n_heads=12, length=100),
    _encoder("ernie", trains=True),
    _encoder("esm", mask_token_id=32, pad_token_id=1, vocab_size=33, hidden_size=640, num_attention_heads=20,
             intermediate_size=2560, position_embedding_type="rotary", length=250, trains=True),
    _encoder("convbert", trains=True),
    _encoder("squeezebert", trains=True),
    _encoder("mobilebert", trains=True),
    _encoder("megatron-bert", hidden_size=1024, num_attention_heads=16, trains=True),
    _encoder("nystromformer", segment_means_seq_len=64, num_landmarks=64, length=256, batch=4),
    _encoder("roformer", length=200, trains=True),
    _encoder("rembert", num_attention_heads=18),
    _encoder("funnel", block_sizes=[1, 1, 1], depth=99, auto="FunnelModel", padded=True),
    _encoder("canine", auto="AutoModel", length=256, batch=4),
    _encoder("ibert", trains=True),
    _encoder("data2vec-text", auto="AutoModel"),
    _encoder("splinter", auto="AutoModel"),
    _encoder("layoutlm", auto="AutoModel"),
    _encoder("luke", auto="AutoModel", entity_vocab_size=1000),
    _encoder("markuplm", auto="AutoModel", length=64),
    _encoder("nomic_bert", auto="AutoModel"),
    _encoder("eurobert", auto="AutoModel", hidden_size=768, num_attention_heads=12, num_key_value_heads=12,
             intermediate_size=3072),
    _encoder("jina_embeddings_v3", auto="AutoModel"),
    _encoder("mra", auto="AutoModel", length=128, max_position_embeddings=128),
    _encoder("yoso", auto="AutoModel", use_expectation=True, length=128),
    _encoder("bert-generation", auto="AutoModel"),
    _encoder("dpr", auto="DPRQuestionEncoder"),
    _encoder("clip_text_model", auto="CLIPTextModel", length=77, trains=True),
    _encoder("siglip_text_model", auto="SiglipTextModel", length=64),
    _encoder("mt5", name="mt5 encoder", auto="MT5EncoderModel", length=200, trains=True),
]  # fmt: skip
