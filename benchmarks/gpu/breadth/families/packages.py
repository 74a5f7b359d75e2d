# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vision networks of timm and torchvision, by name, as they are published: only their weights are random."""

from typing import Any

import torch

from benchmarks.gpu.breadth.entry import Built, Entry
from benchmarks.gpu.breadth.families.transformers_models import pixels

__all__ = ["ENTRIES"]


def _timm(
    name: str, *, size: int = 224, batch: int = 32, trains: bool = False, cost: float = 4.0, **more: Any
) -> Entry:
    def build(batch: int) -> Built:
        import timm

        return timm.create_model(name, pretrained=False, **more), pixels(batch, size, "x")

    return Entry(f"timm {name}", "vision (timm)", build, batch, trains, cost)


def _torchvision(
    name: str, *, size: int = 224, batch: int = 32, trains: bool = False, cost: float = 4.0, **more: Any
) -> Entry:
    def build(batch: int) -> Built:
        import torchvision

        found = torchvision.models.get_model(name, weights=None, **more)
        return found, lambda generator: (torch.randn(batch, 3, size, size, generator=generator),)

    return Entry(f"torchvision {name}", "vision (torchvision)", build, batch, trains, cost)


def _clips(name: str, *, size: int = 112, batch: int = 4, cost: float = 4.0) -> Entry:
    def build(batch: int) -> Built:
        import torchvision

        found = torchvision.models.get_model(name, weights=None)
        return found, lambda generator: (torch.randn(batch, 3, 16, size, size, generator=generator),)

    return Entry(f"torchvision {name}", "video (torchvision)", build, batch, False, cost)


_TIMM = [
    _timm("efficientnet_b0", batch=128, trains=True),
    _timm("tf_efficientnetv2_b0", trains=True),
    _timm("mixnet_s"),
    _timm("mnasnet_100"),
    _timm("mobilenetv3_large_100", batch=128, trains=True),
    _timm("mobilenetv4_conv_small", trains=True),
    _timm("lcnet_100"),
    _timm("hardcorenas_a"),
    _timm("ghostnet_100", trains=True),
    _timm("rexnet_100"),
    _timm("regnetx_004", trains=True),
    _timm("regnety_004"),
    _timm("resnet26d", trains=True),
    _timm("seresnext26d_32x4d"),
    _timm("skresnet18"),
    _timm("resnest14d"),
    _timm("res2net50_14w_8s", cost=6.0),
    _timm("resnetv2_50"),
    _timm("nf_regnet_b0"),
    _timm("densenet121", cost=8.0),
    _timm("dla34"),
    _timm("dpn48b", cost=6.0),
    _timm("hrnet_w18_small", cost=6.0),
    _timm("inception_v3", size=299, batch=16, cost=6.0),
    _timm("xception41", size=224, batch=16),
    _timm("vovnet39a"),
    _timm("cspresnet50"),
    _timm("darknet53"),
    _timm("selecsls42b"),
    _timm("tresnet_m"),
    _timm("repvgg_a0"),
    _timm("mobileone_s0", cost=5.0),
    _timm("repvit_m0_9", cost=6.0),
    _timm("fastvit_t8", size=256, cost=5.0),
    _timm("starnet_s1"),
    _timm("convmixer_768_32", batch=8, trains=True),
    _timm("mixer_s16_224", trains=True),
    _timm("gmlp_s16_224"),
    _timm("resmlp_12_224"),
    _timm("convnext_atto", trains=True),
    _timm("inception_next_atto"),
    _timm("mambaout_femto"),
    _timm("edgenext_xx_small"),
    _timm("efficientformer_l1"),
    _timm("efficientvit_b0"),
    _timm("efficientvit_m0"),
    _timm("levit_128s"),
    _timm("mobilevitv2_050", size=256),
    _timm("tiny_vit_5m_224", trains=True),
    _timm("vit_tiny_patch16_224", trains=True),
    _timm("vit_relpos_small_patch16_224", trains=True),
    _timm("beit_base_patch16_224", batch=16),
    _timm("eva02_tiny_patch14_224"),
    _timm("cait_xxs24_224", cost=5.0),
    _timm("deit3_small_patch16_224"),
    _timm("xcit_nano_12_p16_224"),
    _timm("volo_d1_224", batch=16, cost=6.0),
    _timm("pit_ti_224"),
    _timm("convit_tiny"),
    _timm("crossvit_9_240", size=240),
    _timm("coat_lite_tiny"),
    _timm("twins_svt_small", trains=True),
    _timm("swin_tiny_patch4_window7_224", trains=True, cost=6.0),
    _timm("swinv2_tiny_window8_256", size=256, cost=6.0),
    _timm("swinv2_cr_tiny_224", cost=6.0),
    _timm("gcvit_xxtiny", cost=6.0),
    _timm("maxvit_tiny_rw_224", batch=16, cost=8.0),
    _timm("coatnet_nano_rw_224", cost=6.0),
    _timm("mvitv2_tiny", cost=6.0),
    _timm("hiera_tiny_224"),
    _timm("davit_tiny", cost=6.0),
    _timm("focalnet_tiny_srf"),
    _timm("nest_tiny"),
    _timm("poolformer_s12", trains=True),
    _timm("caformer_s18", cost=6.0),
    _timm("pvt_v2_b0", trains=True),
    _timm("visformer_tiny"),
    _timm("tnt_s_patch16_224"),
    _timm("sequencer2d_s", cost=10.0),
    _timm("halonet26t", size=256),
    _timm("lambda_resnet26t", size=256),
    _timm("botnet26t_256", size=256),
    _timm("rdnet_tiny", cost=6.0),
    _timm("nextvit_small", cost=6.0),
    _timm("shvit_s1"),
]

_TORCHVISION = [
    _torchvision("alexnet", batch=64),
    _torchvision("vgg11_bn", batch=16, trains=True),
    _torchvision("squeezenet1_1", batch=64, trains=True),
    _torchvision("shufflenet_v2_x1_0", batch=128, trains=True),
    _torchvision("mobilenet_v2", batch=64, trains=True),
    _torchvision("mobilenet_v3_large", batch=128, trains=True),
    _torchvision("mobilenet_v3_small"),
    _torchvision("mnasnet0_5"),
    _torchvision("efficientnet_b0", batch=128, cost=5.0),
    _torchvision("efficientnet_v2_s", batch=16, cost=8.0),
    _torchvision("googlenet", aux_logits=False, init_weights=False),
    _torchvision("resnet18", batch=64, trains=True),
    _torchvision("resnext50_32x4d"),
    _torchvision("regnet_y_400mf", trains=True),
    _torchvision("densenet121", cost=8.0),
    _torchvision("convnext_tiny", trains=True),
    _torchvision("vit_b_16", batch=16),
    _torchvision("swin_t", trains=True, cost=6.0),
    _torchvision("swin_v2_t", cost=6.0),
    _torchvision("maxvit_t", batch=8, cost=8.0),
    _torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None, batch=8, cost=5.0),
    _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None, batch=8, cost=5.0),
    _torchvision("fcn_resnet50", weights_backbone=None, batch=4, cost=5.0),
    _clips("r3d_18"),
    _clips("mc3_18"),
    _clips("r2plus1d_18"),
    _clips("s3d", size=224, batch=2, cost=6.0),
    _clips("mvit_v2_s", size=224, batch=1, cost=8.0),
]

ENTRIES = [*_TIMM, *_TORCHVISION]
