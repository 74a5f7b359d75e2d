# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Images, with the transformers package."""

from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families.transformers_models import model, pixels, reduced

__all__ = ["ENTRIES"]


def _vision(
    model_type: str,
    *,
    auto: str = "AutoModelForImageClassification",
    name: str = "",
    size: int = 224,
    batch: int = 32,
    depth: int = 2,
    trains: bool = False,
    cost: float = 1.5,
    input_name: str = "pixel_values",
    noise: int = 0,
    **overrides: Any,
) -> Entry:
    """noise: of so many patches, at most 256, for models that would draw it themselves, anew in each call."""

    def build(batch: int) -> Built:
        images = pixels(batch, size, input_name)

        def inputs(generator: torch.Generator) -> dict[str, torch.Tensor]:
            if not noise:
                return images(generator)
            # It is sorted: no two numbers may be equal in 16 bits.
            orders = [torch.randperm(noise, generator=generator) / 256 for _ in range(batch)]
            return images(generator) | {"noise": torch.stack(orders)}

        return model(reduced(model_type, depth, **overrides), auto), inputs

    return Entry(name or f"hf {model_type}", "vision (transformers)", build, batch, trains, cost)


_SHALLOW = {"depths": [1, 1, 1, 1]}

ENTRIES = [
    _vision("vit", trains=True),
    _vision("deit", auto="DeiTForImageClassification", trains=True),
    _vision("beit", trains=True, use_relative_position_bias=True, use_absolute_position_embeddings=False),
    _vision("data2vec-vision", use_relative_position_bias=True),
    _vision("swin", depths=[2, 2, 2, 2], trains=True, cost=3.0),
    _vision("swinv2", depths=[2, 2, 2, 2], window_size=8, image_size=256, size=256, trains=True, cost=3.0),
    _vision("convnext", depth=9, **_SHALLOW, trains=True, cost=2.0),
    _vision("convnextv2", depth=9, **_SHALLOW, trains=True, cost=2.0),
    _vision("segformer", auto="AutoModelForSemanticSegmentation", **_SHALLOW, trains=True, cost=2.0),
    _vision("clip_vision_model", auto="CLIPVisionModel", trains=True),
    _vision("siglip_vision_model", auto="SiglipVisionModel", trains=True),
    _vision("dinov2", trains=True),
    _vision("dinov2_with_registers"),
    _vision("dinov3_vit", auto="AutoModel"),
    _vision("dinov3_convnext", auto="AutoModel", **_SHALLOW, cost=2.0),
    _vision("ijepa", hidden_size=768, num_attention_heads=12, image_size=224),
    _vision("vit_mae", auto="ViTMAEModel", noise=196),
    _vision("vit_msn"),
    _vision("vitdet", auto="AutoModel", window_block_indices=[0], image_size=224,
            use_relative_position_embeddings=True),
    _vision("levit", auto="LevitForImageClassification", cost=2.0, depths=[1, 1, 1]),
    _vision("mobilevit", cost=3.0),
    _vision("mobilevitv2", cost=3.0),
    _vision("mobilenet_v1", cost=3.0),
    _vision("mobilenet_v2", cost=3.0, trains=True),
    _vision("efficientnet", cost=5.0, hidden_dim=1280, width_coefficient=1.0, depth_coefficient=1.0, trains=True),
    _vision("regnet", hidden_sizes=[128, 192, 512, 1088], depths=[1, 1, 2, 1], groups_width=64, cost=2.0, trains=True),
    _vision("resnet", depths=[1, 1, 1, 1], cost=2.0, trains=True),
    _vision("bit", depths=[1, 1, 1, 1], cost=2.0),
    _vision("poolformer", **_SHALLOW, cost=2.0, trains=True),
    _vision("pvt", depths=[1, 1, 1, 1], cost=2.0),
    _vision("pvt_v2", depths=[1, 1, 1, 1], cost=2.0, trains=True),
    _vision("cvt", cost=4.0),
    _vision("focalnet", depths=[1, 1, 1, 1], cost=2.0, trains=True),
    _vision("swiftformer", depths=[1, 1, 1, 1], cost=2.0),
    _vision("hiera", depths=[1, 1, 2, 1], cost=2.0),
    _vision("hgnet_v2", cost=3.0),
    _vision("dpt", auto="AutoModelForDepthEstimation", size=384, batch=4, cost=3.0, depth=4,
            backbone_out_indices=[0, 1, 2, 3]),
    _vision("glpn", auto="AutoModelForDepthEstimation", depths=[1, 1, 1, 1], batch=8, cost=2.0),
    _vision("yolos", auto="AutoModelForObjectDetection", image_size=[256, 320], size=256, batch=8),
    _vision("detr", auto="DetrModel", use_timm_backbone=False, use_pretrained_backbone=False,
            backbone_config={"model_type": "resnet", "depths": [1, 1, 1, 1], "out_features": ["stage4"]}, depth=1,
            batch=4, cost=3.0),
    _vision("sam_vision_model", auto="SamVisionModel", size=512, image_size=512, batch=2, global_attn_indexes=[1]),
    _vision("sam2_hiera_det_model", auto="Sam2HieraDetModel", size=256, batch=4, blocks_per_stage=[1, 2, 1, 1],
            global_attention_blocks=[2], cost=2.0),
    _vision("swin2sr", auto="AutoModel", size=64, depths=[2], num_heads=[6], embed_dim=180, batch=4, cost=2.0),
    _vision("textnet", cost=3.0),
    _vision("donut-swin", auto="AutoModel", depths=[2, 2, 2, 2], window_size=7, cost=3.0),
    _vision("maskformer-swin", auto="AutoModel", depths=[2, 2, 2, 2], cost=3.0),
]  # fmt: skip
