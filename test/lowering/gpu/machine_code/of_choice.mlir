// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// REQUIRES: triton
// RUN: kiln-opt %s --pipeline=gpu --gpu=sm_80 --emit=ptx | filecheck %s --check-prefix=A100
// RUN: kiln-opt %s --pipeline=gpu --emit=ptx | filecheck %s --check-prefix=H200
// RUN: kiln-opt %s --pipeline=gpu --gpu=sm_100 --emit=ptx | filecheck %s --check-prefix=B200
// RUN: not kiln-opt %s --pipeline=cpu --gpu=sm_80 2>&1 | filecheck %s --check-prefix=CPU
// RUN: not kiln-opt %s --pass-pipeline=canonicalize --gpu=sm_80 2>&1 | filecheck %s --check-prefix=NONE

// The whole pipeline for a GPU that is not there: schedules by its machine file, and its own matrix instructions.

// A100: .target sm_80
// A100: mma.sync.aligned.m16n8k16
// H200: .target sm_90a
// H200: wgmma.mma_async
// B200: .target sm_100a
// B200: tcgen05.mma
// CPU: kiln-opt: error: the pipeline 'cpu' is not for a GPU of choice; --pipeline=gpu is
// NONE: kiln-opt: error: --gpu needs --pipeline
func.func @main(%x: !torch.vtensor<[256,768],bf16>, %w: !torch.vtensor<[768,1024],bf16>) -> !torch.vtensor<[256,1024],bf16> {
  %p = torch.aten.mm %x, %w : !torch.vtensor<[256,768],bf16>, !torch.vtensor<[768,1024],bf16> -> !torch.vtensor<[256,1024],bf16>
  %r = torch.aten.relu %p : !torch.vtensor<[256,1024],bf16> -> !torch.vtensor<[256,1024],bf16>
  return %r : !torch.vtensor<[256,1024],bf16>
}
