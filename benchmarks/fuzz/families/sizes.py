# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes that networks have, and those one off tiles, vectors, and lines of 16 and 128 bytes."""

import torch

SMALL = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 64, 70)
ROWS = (1, 2, 7, 8, 15, 16, 17, 31, 33, 49, 63, 64, 65, 100, 127, 128, 129, 196, 197, 255, 256, 257, 384, 500, 512, 577,
        1000, 1024, 2048, 3136, 4000, 4096, 8192, 12544, 20000)  # fmt: skip
FEATURES = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 136, 144, 160, 192, 200, 224, 240, 256, 320, 384,
            448, 480, 512, 576, 640, 672, 768, 960, 1024, 1280, 1536, 2048, 3072, 4096, 8192)  # fmt: skip
ODD = (1, 2, 3, 4, 5, 7, 10, 12, 20, 21, 33, 50, 63, 65, 100, 127, 129, 197, 250, 255, 257, 1000, 1001, 1023, 4097)
WORDS = (1000, 16000, 16384, 32000, 50257)
IMAGES = (7, 8, 12, 13, 14, 15, 16, 17, 27, 28, 32, 33, 35, 56, 64, 112, 113, 224)
CHANNELS = (3, 8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 120, 128, 136, 144, 160, 192, 240, 256, 320, 384, 480, 512,
            576, 672, 960)  # fmt: skip
BATCHES = (1, 1, 2, 3, 4, 8, 16, 32, 64, 128)
HEADS = (1, 2, 3, 4, 6, 8, 12)
HEAD_SIZES = (8, 16, 24, 32, 40, 48, 64, 64, 72, 80, 96, 112, 120, 128, 128, 160, 192, 256)
TOKENS = (1, 2, 7, 16, 17, 31, 49, 64, 65, 77, 100, 127, 128, 129, 196, 197, 255, 256, 257, 300, 512, 577, 1024, 2048)
FLOATS = (torch.bfloat16,) * 4 + (torch.float16,) * 3 + (torch.float32,) * 3

LEAST_NORMED = 4
"""Numbers that a norm is over: of one or two it makes signs, whose condition number has no bound."""
INSIDE = 8
"""Columns or channels more than those that are read, half of them in front: rows of 16 bits then start between
multiples of 16 bytes, a multiple of 16 bytes apart."""
