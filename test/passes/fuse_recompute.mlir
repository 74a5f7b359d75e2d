// RUN: kiln-opt --split-input-file --pass-pipeline=fuse %s | filecheck %s
// RUN: kiln-opt --split-input-file --pass-pipeline="fuse{recompute=false}" %s | filecheck %s --check-prefix=STORED
// RUN: kiln-opt --split-input-file --pass-pipeline=fuse --remarks --verify-diagnostics=only-expected %s | filecheck %s

// Weights of 8 bits, which rows and columns are summed of: a quarter of the bytes is read twice, nothing is stored. The
// kernels depend on each other no more, and are parts of one, whose body has the op once.

#all = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @dequantised
// CHECK-COUNT-1: "kiln.fusion
// CHECK: arith.sitofp
// CHECK: parts = array<i64: 0, 1>
// CHECK-NOT: "kiln.fusion
// CHECK: return
// STORED-LABEL: func.func @dequantised
// STORED-COUNT-2: "kiln.fusion
func.func @dequantised(%q: tensor<256x1024xi8>) -> (tensor<256xf32>, tensor<1024xf32>) {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.1 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (256, 1024)>} : () -> tensor<256x1024xf32>
  %e0 = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %f0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e0 : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<256xf32>
  %f1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e1 : tensor<1024xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<1024xf32>
  // expected-remark @+1 {{computed in another kernel that reads it, too: saves 1.84 MB of traffic}}
  %w = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<256x1024xi8>) outs(%e : tensor<256x1024xf32>) {
  ^bb0(%i: i8, %o: f32):
    %a = arith.sitofp %i : i8 to f32
    %b = arith.mulf %a, %scale : f32
    linalg.yield %b : f32
  } -> tensor<256x1024xf32>
  %rows = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<256x1024xf32>) outs(%f0 : tensor<256xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %columns = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%w : tensor<256x1024xf32>) outs(%f1 : tensor<1024xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<1024xf32>
  return %rows, %columns : tensor<256xf32>, tensor<1024xf32>
}

// -----

// The same of four exponentials each: too much to do again.

#all = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @expensive
// CHECK-COUNT-2: "kiln.fusion
// CHECK-NOT: "kiln.fusion
// CHECK: return
func.func @expensive(%q: tensor<256x1024xf32>) -> (tensor<256xf32>, tensor<1024xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (256, 1024)>} : () -> tensor<256x1024xf32>
  %e0 = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %f0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e0 : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<256xf32>
  %f1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e1 : tensor<1024xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<1024xf32>
  %w = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<256x1024xf32>) outs(%e : tensor<256x1024xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = math.exp %i : f32
    %b = math.exp %a : f32
    %c = math.exp %b : f32
    %d = math.exp %c : f32
    linalg.yield %d : f32
  } -> tensor<256x1024xf32>
  %rows = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<256x1024xf32>) outs(%f0 : tensor<256xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %columns = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%w : tensor<256x1024xf32>) outs(%f1 : tensor<1024xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<1024xf32>
  return %rows, %columns : tensor<256xf32>, tensor<1024xf32>
}

// -----

// The same of 16 bits, as f32: only the cast is done again, so that the kernel in front stores half of the bytes.

#all = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @stored_before_the_cast
// CHECK: math.exp
// CHECK: : (tensor<256x1024xbf16>) -> (tensor<256x1024xbf16>, tensor<256xf32>)
// CHECK: arith.extf
// CHECK: : (tensor<256x1024xbf16>) -> tensor<1024xf32>
// STORED-LABEL: func.func @stored_before_the_cast
// STORED: : (tensor<256x1024xf32>) -> tensor<1024xf32>
func.func @stored_before_the_cast(%q: tensor<256x1024xbf16>) -> (tensor<256xf32>, tensor<1024xf32>) {
  %zero = arith.constant 0.0 : f32
  %n = "kiln.empty"() {shape = affine_map<() -> (256, 1024)>} : () -> tensor<256x1024xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (256, 1024)>} : () -> tensor<256x1024xf32>
  %e0 = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1024)>} : () -> tensor<1024xf32>
  %f0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e0 : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<256xf32>
  %f1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%e1 : tensor<1024xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<1024xf32>
  %w = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<256x1024xbf16>) outs(%n : tensor<256x1024xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    %a = math.exp %i : bf16
    %b = math.exp %a : bf16
    %c = math.exp %b : bf16
    %d = math.exp %c : bf16
    linalg.yield %d : bf16
  } -> tensor<256x1024xbf16>
  // expected-remark @+1 {{computed in another kernel that reads it, too: saves 1.05 MB of traffic}}
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<256x1024xbf16>) outs(%e : tensor<256x1024xf32>) {
  ^bb0(%i: bf16, %o: f32):
    %a = arith.extf %i : bf16 to f32
    linalg.yield %a : f32
  } -> tensor<256x1024xf32>
  %rows = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
      ins(%wide : tensor<256x1024xf32>) outs(%f0 : tensor<256xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  %columns = linalg.generic {indexing_maps = [#all, affine_map<(d0, d1) -> (d1)>], iterator_types = ["reduction", "parallel"]}
      ins(%wide : tensor<256x1024xf32>) outs(%f1 : tensor<1024xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<1024xf32>
  return %rows, %columns : tensor<256xf32>, tensor<1024xf32>
}

// -----

// What is less its mean, which a second kernel reads: the mean is stored in its place, and x read again.

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: func.func @centred
// CHECK: "kiln.fusion"
// CHECK: "kiln.yield"(%{{.*}}, %{{.*}}) : (tensor<256xf32>, tensor<256xf32>)
// CHECK: "kiln.fusion"
// CHECK: arith.subf
// CHECK-NOT: "kiln.fusion"
// STORED-LABEL: func.func @centred
// STORED: "kiln.yield"(%{{.*}}, %{{.*}}) : (tensor<256x4096xf32>, tensor<256xf32>)
func.func @centred(%x: tensor<256x4096xf32>) -> (tensor<256xf32>, tensor<1048576xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (256, 4096)>} : () -> tensor<256x4096xf32>
  %e0 = "kiln.empty"() {shape = affine_map<() -> (256)>} : () -> tensor<256xf32>
  %e1 = "kiln.empty"() {shape = affine_map<() -> (1048576)>} : () -> tensor<1048576xf32>
  %f = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e0 : tensor<256xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<256xf32>
  %m = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<256x4096xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %o, %i : f32
    linalg.yield %a : f32
  } -> tensor<256xf32>
  // expected-remark @+1 {{computed in another kernel that reads it, too: saves 4.19 MB of traffic}}
  %d = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<256x4096xf32>, tensor<256xf32>) outs(%e : tensor<256x4096xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %a = arith.subf %i, %j : f32
    linalg.yield %a : f32
  } -> tensor<256x4096xf32>
  %q = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<256x4096xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.mulf %i, %i : f32
    %b = arith.addf %o, %a : f32
    linalg.yield %b : f32
  } -> tensor<256xf32>
  %v = "kiln.view"(%d) {map = affine_map<(d0) -> (d0 floordiv 4096, d0 mod 4096)>, shape = affine_map<() -> (1048576)>} : (tensor<256x4096xf32>) -> tensor<1048576xf32>
  %flat = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%v : tensor<1048576xf32>) outs(%e1 : tensor<1048576xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = math.exp %i : f32
    linalg.yield %a : f32
  } -> tensor<1048576xf32>
  return %q, %flat : tensor<256xf32>, tensor<1048576xf32>
}
