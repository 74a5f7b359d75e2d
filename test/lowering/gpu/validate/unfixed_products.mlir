// Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// RUN: kiln-opt %s --split-input-file --verify-diagnostics --pass-pipeline="validate-gpu-kernels"

// relu(x @ w.T) of [8192, 64] and [192, 64] in bf16, as it was emitted when a piece of the epilogue took its own width for that
// of the tile: 192 is a multiple of 64, so that the second half of the last tile of columns had no mask.

"tt.func"() ({
^bb0(%arg0: !tt.tensordesc<tensor<128x64xbf16>>, %arg1: !tt.tensordesc<tensor<128x64xbf16>>, %arg2: !tt.ptr<bf16>):
  %c128_i32 = arith.constant 128 : i32
  %c16_i32 = arith.constant 16 : i32
  %c8_i32 = arith.constant 8 : i32
  %c64_i32 = arith.constant 64 : i32
  %cst = arith.constant dense<0.000000e+00> : tensor<128x128xf32>
  %c0_i32 = arith.constant 0 : i32
  %cst_0 = arith.constant dense<192> : tensor<128x1xi32>
  %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
  %0 = "tt.make_range"() {end = 64 : i32, start = 0 : i32} : () -> tensor<64xi32>
  %1 = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %2 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %3 = arith.remui %2, %c128_i32 : i32
  %4 = arith.divui %3, %c16_i32 : i32
  %5 = arith.muli %4, %c8_i32 : i32
  %6 = arith.remui %3, %c16_i32 : i32
  %7 = arith.remui %6, %c8_i32 : i32
  %8 = arith.addi %5, %7 : i32
  %9 = arith.divui %6, %c8_i32 : i32
  %10 = arith.muli %8, %c128_i32 : i32
  %11 = arith.muli %9, %c128_i32 : i32
  %12 = "tt.descriptor_load"(%arg0, %10, %c0_i32) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
  %13 = "tt.descriptor_load"(%arg1, %11, %c0_i32) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
  %14 = "tt.trans"(%13) {order = array<i32: 1, 0>} : (tensor<128x64xbf16>) -> tensor<64x128xbf16>
  %15 = "tt.dot"(%12, %14, %cst) {inputPrecision = 2 : i32, maxNumImpreciseAcc = 0 : i32} : (tensor<128x64xbf16>, tensor<64x128xbf16>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %16 = "tt.expand_dims"(%1) {axis = 1 : i32} : (tensor<128xi32>) -> tensor<128x1xi32>
  %17 = "tt.splat"(%10) : (i32) -> tensor<128x1xi32>
  %18 = arith.addi %17, %16 : tensor<128x1xi32>
  %19 = "tt.reshape"(%15) : (tensor<128x128xf32>) -> tensor<128x2x64xf32>
  %20 = "tt.trans"(%19) {order = array<i32: 0, 2, 1>} : (tensor<128x2x64xf32>) -> tensor<128x64x2xf32>
  %21:2 = "tt.split"(%20) : (tensor<128x64x2xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>)
  %22 = "tt.expand_dims"(%0) {axis = 0 : i32} : (tensor<64xi32>) -> tensor<1x64xi32>
  %23 = "tt.splat"(%11) : (i32) -> tensor<1x64xi32>
  %24 = arith.addi %23, %22 : tensor<1x64xi32>
  %25 = arith.truncf %21#0 : tensor<128x64xf32> to tensor<128x64xbf16>
  %26 = arith.extf %25 : tensor<128x64xbf16> to tensor<128x64xf32>
  %27 = arith.cmpf olt, %26, %cst_1 : tensor<128x64xf32>
  %28 = arith.select %27, %cst_1, %26 : tensor<128x64xi1>, tensor<128x64xf32>
  %29 = arith.truncf %28 : tensor<128x64xf32> to tensor<128x64xbf16>
  %30 = arith.muli %18, %cst_0 : tensor<128x1xi32>
  %31 = "tt.broadcast"(%30) : (tensor<128x1xi32>) -> tensor<128x64xi32>
  %32 = "tt.broadcast"(%24) : (tensor<1x64xi32>) -> tensor<128x64xi32>
  %33 = arith.addi %31, %32 : tensor<128x64xi32>
  %34 = "tt.splat"(%arg2) : (!tt.ptr<bf16>) -> tensor<128x64x!tt.ptr<bf16>>
  %35 = "tt.addptr"(%34, %33) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
  "tt.store"(%35, %29) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
  %36 = arith.addi %11, %c64_i32 : i32
  %37 = "tt.splat"(%36) : (i32) -> tensor<1x64xi32>
  %38 = arith.addi %37, %22 : tensor<1x64xi32>
  %39 = arith.truncf %21#1 : tensor<128x64xf32> to tensor<128x64xbf16>
  %40 = arith.extf %39 : tensor<128x64xbf16> to tensor<128x64xf32>
  %41 = arith.cmpf olt, %40, %cst_1 : tensor<128x64xf32>
  %42 = arith.select %41, %cst_1, %40 : tensor<128x64xi1>, tensor<128x64xf32>
  %43 = arith.truncf %42 : tensor<128x64xf32> to tensor<128x64xbf16>
  %44 = "tt.broadcast"(%38) : (tensor<1x64xi32>) -> tensor<128x64xi32>
  %45 = arith.addi %31, %44 : tensor<128x64xi32>
  %46 = "tt.addptr"(%34, %45) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
  // expected-error @below {{offset 1572864 of argument 2, whose elements are 0 to 1572863}}
  "tt.store"(%46, %43) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
  "tt.return"() : () -> ()
}) {arg_attrs = [{}, {}, {tt.divisibility = 16 : i32}], function_type = (!tt.tensordesc<tensor<128x64xbf16>>, !tt.tensordesc<tensor<128x64xbf16>>, !tt.ptr<bf16>) -> (), kiln.buffers = [{is_result = false, layout = affine_map<(d0, d1) -> (d0 * 64 + d1)>, sizes = affine_map<() -> (8192, 64)>}, {is_result = false, layout = affine_map<(d0, d1) -> (d0 * 64 + d1)>, sizes = affine_map<() -> (192, 64)>}, {is_result = true, layout = affine_map<(d0, d1) -> (d0 * 192 + d1)>, sizes = affine_map<() -> (8192, 192)>}], kiln.descriptors = [{arg = 0 : i64, shape = affine_map<() -> (8192, 64)>, strides = affine_map<() -> (64, 1)>}, {arg = 1 : i64, shape = affine_map<() -> (192, 64)>, strides = affine_map<() -> (64, 1)>}], kiln.grid = affine_map<() -> (128, 1, 1)>, noinline = false, num_stages = 2 : i32, num_warps = 4 : i32, sym_name = "unfixed_linear", sym_visibility = "public"} : () -> ()

// -----

// tanh(x @ w.T / 30) * 30 of [512, 1024] and [16000, 1024], a persistent grid: only the last of 63 tiles of columns is wrong.

"tt.func"() ({
^bb0(%arg0: !tt.tensordesc<tensor<128x64xbf16>>, %arg1: !tt.tensordesc<tensor<256x64xbf16>>, %arg2: !tt.ptr<bf16>):
  %c132_i32 = arith.constant 132 : i32
  %c252_i32 = arith.constant 252 : i32
  %c504_i32 = arith.constant 504 : i32
  %c8_i32 = arith.constant 8 : i32
  %c4_i32 = arith.constant 4 : i32
  %c128_i32 = arith.constant 128 : i32
  %c256_i32 = arith.constant 256 : i32
  %cst = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
  %c0_i32 = arith.constant 0 : i32
  %c16_i32 = arith.constant 16 : i32
  %c1_i32 = arith.constant 1 : i32
  %c64_i32 = arith.constant 64 : i32
  %c192_i32 = arith.constant 192 : i32
  %cst_0 = arith.constant dense<16000> : tensor<128x1xi32>
  %cst_1 = arith.constant dense<3.000000e+01> : tensor<128x64xf32>
  %0 = "tt.make_range"() {end = 64 : i32, start = 0 : i32} : () -> tensor<64xi32>
  %1 = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %2 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %3 = arith.subi %2, %c132_i32 : i32
  %4 = scf.for %arg3 = %2 to %c252_i32 step %c132_i32 iter_args(%arg4 = %3) -> (i32)  : i32 {
    %5 = arith.remui %arg3, %c252_i32 : i32
    %6 = arith.divui %5, %c504_i32 : i32
    %7 = arith.muli %6, %c8_i32 : i32
    %8 = arith.subi %c4_i32, %7 : i32
    %9 = arith.minsi %8, %c8_i32 : i32
    %10 = arith.remui %5, %c504_i32 : i32
    %11 = arith.remui %10, %9 : i32
    %12 = arith.addi %7, %11 : i32
    %13 = arith.divui %10, %9 : i32
    %14 = arith.muli %12, %c128_i32 : i32
    %15 = arith.muli %13, %c256_i32 : i32
    %16 = scf.for %arg5 = %c0_i32 to %c16_i32 step %c1_i32 iter_args(%arg6 = %cst) -> (tensor<128x256xf32>)  : i32 {
      %108 = arith.muli %arg5, %c64_i32 : i32
      %109 = "tt.descriptor_load"(%arg0, %14, %108) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
      %110 = "tt.descriptor_load"(%arg1, %15, %108) : (!tt.tensordesc<tensor<256x64xbf16>>, i32, i32) -> tensor<256x64xbf16>
      %111 = "tt.trans"(%110) {order = array<i32: 1, 0>} : (tensor<256x64xbf16>) -> tensor<64x256xbf16>
      %112 = "tt.dot"(%109, %111, %arg6) {inputPrecision = 2 : i32, maxNumImpreciseAcc = 0 : i32} : (tensor<128x64xbf16>, tensor<64x256xbf16>, tensor<128x256xf32>) -> tensor<128x256xf32>
      scf.yield %112 : tensor<128x256xf32>
    } {tt.num_stages = 3 : i32}
    %17 = arith.addi %arg4, %c132_i32 : i32
    %18 = arith.remui %17, %c252_i32 : i32
    %19 = arith.divui %18, %c504_i32 : i32
    %20 = arith.muli %19, %c8_i32 : i32
    %21 = arith.subi %c4_i32, %20 : i32
    %22 = arith.minsi %21, %c8_i32 : i32
    %23 = arith.remui %18, %c504_i32 : i32
    %24 = arith.remui %23, %22 : i32
    %25 = arith.addi %20, %24 : i32
    %26 = arith.divui %23, %22 : i32
    %27 = arith.muli %25, %c128_i32 : i32
    %28 = "tt.expand_dims"(%1) {axis = 1 : i32} : (tensor<128xi32>) -> tensor<128x1xi32>
    %29 = "tt.splat"(%27) : (i32) -> tensor<128x1xi32>
    %30 = arith.addi %29, %28 : tensor<128x1xi32>
    %31 = arith.muli %26, %c256_i32 : i32
    %32 = "tt.reshape"(%16) : (tensor<128x256xf32>) -> tensor<128x2x128xf32>
    %33 = "tt.trans"(%32) {order = array<i32: 0, 2, 1>} : (tensor<128x2x128xf32>) -> tensor<128x128x2xf32>
    %34:2 = "tt.split"(%33) : (tensor<128x128x2xf32>) -> (tensor<128x128xf32>, tensor<128x128xf32>)
    %35 = "tt.reshape"(%34#0) : (tensor<128x128xf32>) -> tensor<128x2x64xf32>
    %36 = "tt.trans"(%35) {order = array<i32: 0, 2, 1>} : (tensor<128x2x64xf32>) -> tensor<128x64x2xf32>
    %37:2 = "tt.split"(%36) : (tensor<128x64x2xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>)
    %38 = "tt.reshape"(%34#1) : (tensor<128x128xf32>) -> tensor<128x2x64xf32>
    %39 = "tt.trans"(%38) {order = array<i32: 0, 2, 1>} : (tensor<128x2x64xf32>) -> tensor<128x64x2xf32>
    %40:2 = "tt.split"(%39) : (tensor<128x64x2xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>)
    %41 = "tt.expand_dims"(%0) {axis = 0 : i32} : (tensor<64xi32>) -> tensor<1x64xi32>
    %42 = "tt.splat"(%31) : (i32) -> tensor<1x64xi32>
    %43 = arith.addi %42, %41 : tensor<1x64xi32>
    %44 = arith.truncf %37#0 : tensor<128x64xf32> to tensor<128x64xbf16>
    %45 = arith.extf %44 : tensor<128x64xbf16> to tensor<128x64xf32>
    %46 = arith.divf %45, %cst_1 : tensor<128x64xf32>
    %47 = arith.truncf %46 : tensor<128x64xf32> to tensor<128x64xbf16>
    %48 = arith.extf %47 : tensor<128x64xbf16> to tensor<128x64xf32>
    %49 = "tt.extern_elementwise"(%48) {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<128x64xf32>) -> tensor<128x64xf32>
    %50 = arith.truncf %49 : tensor<128x64xf32> to tensor<128x64xbf16>
    %51 = arith.extf %50 : tensor<128x64xbf16> to tensor<128x64xf32>
    %52 = arith.mulf %51, %cst_1 : tensor<128x64xf32>
    %53 = arith.truncf %52 : tensor<128x64xf32> to tensor<128x64xbf16>
    %54 = arith.muli %30, %cst_0 : tensor<128x1xi32>
    %55 = "tt.broadcast"(%54) : (tensor<128x1xi32>) -> tensor<128x64xi32>
    %56 = "tt.broadcast"(%43) : (tensor<1x64xi32>) -> tensor<128x64xi32>
    %57 = arith.addi %55, %56 : tensor<128x64xi32>
    %58 = "tt.splat"(%arg2) : (!tt.ptr<bf16>) -> tensor<128x64x!tt.ptr<bf16>>
    %59 = "tt.addptr"(%58, %57) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
    "tt.store"(%59, %53) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
    %60 = arith.addi %31, %c64_i32 : i32
    %61 = "tt.splat"(%60) : (i32) -> tensor<1x64xi32>
    %62 = arith.addi %61, %41 : tensor<1x64xi32>
    %63 = arith.truncf %37#1 : tensor<128x64xf32> to tensor<128x64xbf16>
    %64 = arith.extf %63 : tensor<128x64xbf16> to tensor<128x64xf32>
    %65 = arith.divf %64, %cst_1 : tensor<128x64xf32>
    %66 = arith.truncf %65 : tensor<128x64xf32> to tensor<128x64xbf16>
    %67 = arith.extf %66 : tensor<128x64xbf16> to tensor<128x64xf32>
    %68 = "tt.extern_elementwise"(%67) {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<128x64xf32>) -> tensor<128x64xf32>
    %69 = arith.truncf %68 : tensor<128x64xf32> to tensor<128x64xbf16>
    %70 = arith.extf %69 : tensor<128x64xbf16> to tensor<128x64xf32>
    %71 = arith.mulf %70, %cst_1 : tensor<128x64xf32>
    %72 = arith.truncf %71 : tensor<128x64xf32> to tensor<128x64xbf16>
    %73 = "tt.broadcast"(%62) : (tensor<1x64xi32>) -> tensor<128x64xi32>
    %74 = arith.addi %55, %73 : tensor<128x64xi32>
    %75 = "tt.addptr"(%58, %74) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
    "tt.store"(%75, %72) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
    %76 = arith.addi %31, %c128_i32 : i32
    %77 = "tt.splat"(%76) : (i32) -> tensor<1x64xi32>
    %78 = arith.addi %77, %41 : tensor<1x64xi32>
    %79 = arith.truncf %40#0 : tensor<128x64xf32> to tensor<128x64xbf16>
    %80 = arith.extf %79 : tensor<128x64xbf16> to tensor<128x64xf32>
    %81 = arith.divf %80, %cst_1 : tensor<128x64xf32>
    %82 = arith.truncf %81 : tensor<128x64xf32> to tensor<128x64xbf16>
    %83 = arith.extf %82 : tensor<128x64xbf16> to tensor<128x64xf32>
    %84 = "tt.extern_elementwise"(%83) {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<128x64xf32>) -> tensor<128x64xf32>
    %85 = arith.truncf %84 : tensor<128x64xf32> to tensor<128x64xbf16>
    %86 = arith.extf %85 : tensor<128x64xbf16> to tensor<128x64xf32>
    %87 = arith.mulf %86, %cst_1 : tensor<128x64xf32>
    %88 = arith.truncf %87 : tensor<128x64xf32> to tensor<128x64xbf16>
    %89 = "tt.broadcast"(%78) : (tensor<1x64xi32>) -> tensor<128x64xi32>
    %90 = arith.addi %55, %89 : tensor<128x64xi32>
    %91 = "tt.addptr"(%58, %90) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
  // expected-error @below {{offset 8192000 of argument 2, whose elements are 0 to 8191999}}
    "tt.store"(%91, %88) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
    %92 = arith.addi %31, %c192_i32 : i32
    %93 = "tt.splat"(%92) : (i32) -> tensor<1x64xi32>
    %94 = arith.addi %93, %41 : tensor<1x64xi32>
    %95 = arith.truncf %40#1 : tensor<128x64xf32> to tensor<128x64xbf16>
    %96 = arith.extf %95 : tensor<128x64xbf16> to tensor<128x64xf32>
    %97 = arith.divf %96, %cst_1 : tensor<128x64xf32>
    %98 = arith.truncf %97 : tensor<128x64xf32> to tensor<128x64xbf16>
    %99 = arith.extf %98 : tensor<128x64xbf16> to tensor<128x64xf32>
    %100 = "tt.extern_elementwise"(%99) {libname = "", libpath = "", pure = true, symbol = "__nv_tanhf"} : (tensor<128x64xf32>) -> tensor<128x64xf32>
    %101 = arith.truncf %100 : tensor<128x64xf32> to tensor<128x64xbf16>
    %102 = arith.extf %101 : tensor<128x64xbf16> to tensor<128x64xf32>
    %103 = arith.mulf %102, %cst_1 : tensor<128x64xf32>
    %104 = arith.truncf %103 : tensor<128x64xf32> to tensor<128x64xbf16>
    %105 = "tt.broadcast"(%94) : (tensor<1x64xi32>) -> tensor<128x64xi32>
    %106 = arith.addi %55, %105 : tensor<128x64xi32>
    %107 = "tt.addptr"(%58, %106) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
    "tt.store"(%107, %104) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
    scf.yield %17 : i32
  } {tt.flatten}
  "tt.return"() : () -> ()
}) {arg_attrs = [{}, {}, {tt.divisibility = 16 : i32}], function_type = (!tt.tensordesc<tensor<128x64xbf16>>, !tt.tensordesc<tensor<256x64xbf16>>, !tt.ptr<bf16>) -> (), kiln.buffers = [{is_result = false, layout = affine_map<(d0, d1) -> (d0 * 1024 + d1)>, sizes = affine_map<() -> (512, 1024)>}, {is_result = false, layout = affine_map<(d0, d1) -> (d0 * 1024 + d1)>, sizes = affine_map<() -> (16000, 1024)>}, {is_result = true, layout = affine_map<(d0, d1) -> (d0 * 16000 + d1)>, sizes = affine_map<() -> (512, 16000)>}], kiln.descriptors = [{arg = 0 : i64, shape = affine_map<() -> (512, 1024)>, strides = affine_map<() -> (1024, 1)>}, {arg = 1 : i64, shape = affine_map<() -> (16000, 1024)>, strides = affine_map<() -> (1024, 1)>}], kiln.grid = affine_map<() -> (132, 1, 1)>, noinline = false, num_stages = 3 : i32, num_warps = 8 : i32, sym_name = "unfixed_logits", sym_visibility = "public"} : () -> ()

// -----

// A 1 x 1 convolution of channels last, [2, 48, 64, 64] and [192, 48, 1, 1], which is a product of two steps.

"tt.func"() ({
^bb0(%arg0: !tt.tensordesc<tensor<128x32xbf16>>, %arg1: !tt.tensordesc<tensor<128x32xbf16>>, %arg2: !tt.ptr<bf16>):
  %c128_i32 = arith.constant 128 : i32
  %c16_i32 = arith.constant 16 : i32
  %c8_i32 = arith.constant 8 : i32
  %c64_i32 = arith.constant 64 : i32
  %cst = arith.constant dense<0.000000e+00> : tensor<128x128xf32>
  %c0_i32 = arith.constant 0 : i32
  %c2_i32 = arith.constant 2 : i32
  %c1_i32 = arith.constant 1 : i32
  %c32_i32 = arith.constant 32 : i32
  %cst_0 = arith.constant dense<192> : tensor<128x1xi32>
  %cst_1 = arith.constant dense<12288> : tensor<128x1xi32>
  %cst_2 = arith.constant dense<786432> : tensor<128x1xi32>
  %cst_3 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
  %cst_4 = arith.constant dense<64> : tensor<128x1xi32>
  %0 = "tt.make_range"() {end = 64 : i32, start = 0 : i32} : () -> tensor<64xi32>
  %1 = "tt.make_range"() {end = 128 : i32, start = 0 : i32} : () -> tensor<128xi32>
  %2 = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
  %3 = arith.remui %2, %c128_i32 : i32
  %4 = arith.divui %3, %c16_i32 : i32
  %5 = arith.muli %4, %c8_i32 : i32
  %6 = arith.remui %3, %c16_i32 : i32
  %7 = arith.remui %6, %c8_i32 : i32
  %8 = arith.addi %5, %7 : i32
  %9 = arith.divui %6, %c8_i32 : i32
  %10 = arith.muli %8, %c128_i32 : i32
  %11 = arith.muli %9, %c128_i32 : i32
  %12 = scf.for %arg3 = %c0_i32 to %c2_i32 step %c1_i32 iter_args(%arg4 = %cst) -> (tensor<128x128xf32>)  : i32 {
    %56 = arith.muli %arg3, %c32_i32 : i32
    %57 = "tt.descriptor_load"(%arg0, %10, %56) : (!tt.tensordesc<tensor<128x32xbf16>>, i32, i32) -> tensor<128x32xbf16>
    %58 = "tt.descriptor_load"(%arg1, %11, %56) : (!tt.tensordesc<tensor<128x32xbf16>>, i32, i32) -> tensor<128x32xbf16>
    %59 = "tt.trans"(%58) {order = array<i32: 1, 0>} : (tensor<128x32xbf16>) -> tensor<32x128xbf16>
    %60 = "tt.dot"(%57, %59, %arg4) {inputPrecision = 2 : i32, maxNumImpreciseAcc = 0 : i32} : (tensor<128x32xbf16>, tensor<32x128xbf16>, tensor<128x128xf32>) -> tensor<128x128xf32>
    scf.yield %60 : tensor<128x128xf32>
  } {tt.num_stages = 2 : i32}
  %13 = "tt.expand_dims"(%1) {axis = 1 : i32} : (tensor<128xi32>) -> tensor<128x1xi32>
  %14 = "tt.splat"(%10) : (i32) -> tensor<128x1xi32>
  %15 = arith.addi %14, %13 : tensor<128x1xi32>
  %16 = "tt.reshape"(%12) : (tensor<128x128xf32>) -> tensor<128x2x64xf32>
  %17 = "tt.trans"(%16) {order = array<i32: 0, 2, 1>} : (tensor<128x2x64xf32>) -> tensor<128x64x2xf32>
  %18:2 = "tt.split"(%17) : (tensor<128x64x2xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>)
  %19 = "tt.expand_dims"(%0) {axis = 0 : i32} : (tensor<64xi32>) -> tensor<1x64xi32>
  %20 = "tt.splat"(%11) : (i32) -> tensor<1x64xi32>
  %21 = arith.addi %20, %19 : tensor<1x64xi32>
  %22 = arith.remui %15, %cst_4 : tensor<128x1xi32>
  %23 = arith.divui %15, %cst_4 : tensor<128x1xi32>
  %24 = arith.remui %23, %cst_4 : tensor<128x1xi32>
  %25 = arith.divui %23, %cst_4 : tensor<128x1xi32>
  %26 = arith.truncf %18#0 : tensor<128x64xf32> to tensor<128x64xbf16>
  %27 = arith.extf %26 : tensor<128x64xbf16> to tensor<128x64xf32>
  %28 = arith.cmpf olt, %27, %cst_3 : tensor<128x64xf32>
  %29 = arith.select %28, %cst_3, %27 : tensor<128x64xi1>, tensor<128x64xf32>
  %30 = arith.truncf %29 : tensor<128x64xf32> to tensor<128x64xbf16>
  %31 = arith.muli %25, %cst_2 : tensor<128x1xi32>
  %32 = arith.muli %24, %cst_1 : tensor<128x1xi32>
  %33 = arith.muli %22, %cst_0 : tensor<128x1xi32>
  %34 = "tt.broadcast"(%31) : (tensor<128x1xi32>) -> tensor<128x64xi32>
  %35 = "tt.broadcast"(%21) : (tensor<1x64xi32>) -> tensor<128x64xi32>
  %36 = arith.addi %34, %35 : tensor<128x64xi32>
  %37 = "tt.broadcast"(%32) : (tensor<128x1xi32>) -> tensor<128x64xi32>
  %38 = arith.addi %36, %37 : tensor<128x64xi32>
  %39 = "tt.broadcast"(%33) : (tensor<128x1xi32>) -> tensor<128x64xi32>
  %40 = arith.addi %38, %39 : tensor<128x64xi32>
  %41 = "tt.splat"(%arg2) : (!tt.ptr<bf16>) -> tensor<128x64x!tt.ptr<bf16>>
  %42 = "tt.addptr"(%41, %40) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
  "tt.store"(%42, %30) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
  %43 = arith.addi %11, %c64_i32 : i32
  %44 = "tt.splat"(%43) : (i32) -> tensor<1x64xi32>
  %45 = arith.addi %44, %19 : tensor<1x64xi32>
  %46 = arith.truncf %18#1 : tensor<128x64xf32> to tensor<128x64xbf16>
  %47 = arith.extf %46 : tensor<128x64xbf16> to tensor<128x64xf32>
  %48 = arith.cmpf olt, %47, %cst_3 : tensor<128x64xf32>
  %49 = arith.select %48, %cst_3, %47 : tensor<128x64xi1>, tensor<128x64xf32>
  %50 = arith.truncf %49 : tensor<128x64xf32> to tensor<128x64xbf16>
  %51 = "tt.broadcast"(%45) : (tensor<1x64xi32>) -> tensor<128x64xi32>
  %52 = arith.addi %34, %51 : tensor<128x64xi32>
  %53 = arith.addi %52, %37 : tensor<128x64xi32>
  %54 = arith.addi %53, %39 : tensor<128x64xi32>
  %55 = "tt.addptr"(%41, %54) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xi32>) -> tensor<128x64x!tt.ptr<bf16>>
  // expected-error @below {{offset 1572864 of argument 2, whose elements are 0 to 1572863}}
  "tt.store"(%55, %50) : (tensor<128x64x!tt.ptr<bf16>>, tensor<128x64xbf16>) -> ()
  "tt.return"() : () -> ()
}) {arg_attrs = [{}, {}, {tt.divisibility = 16 : i32}], function_type = (!tt.tensordesc<tensor<128x32xbf16>>, !tt.tensordesc<tensor<128x32xbf16>>, !tt.ptr<bf16>) -> (), kiln.buffers = [{is_result = false, layout = affine_map<(d0, d1, d2, d3) -> (d0 * 196608 + d1 + d2 * 3072 + d3 * 48)>, sizes = affine_map<() -> (2, 48, 64, 64)>}, {is_result = false, layout = affine_map<(d0, d1, d2, d3) -> (d0 * 48 + d1)>, sizes = affine_map<() -> (192, 48, 1, 1)>}, {is_result = true, layout = affine_map<(d0, d1, d2, d3) -> (d0 * 786432 + d1 + d2 * 12288 + d3 * 192)>, sizes = affine_map<() -> (2, 192, 64, 64)>}], kiln.descriptors = [{arg = 0 : i64, shape = affine_map<() -> (8192, 48)>, strides = affine_map<() -> (48, 1)>}, {arg = 1 : i64, shape = affine_map<() -> (192, 48)>, strides = affine_map<() -> (48, 1)>}], kiln.grid = affine_map<() -> (128, 1, 1)>, noinline = false, num_stages = 2 : i32, num_warps = 4 : i32, sym_name = "unfixed_conv", sym_visibility = "public"} : () -> ()
