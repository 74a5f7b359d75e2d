// RUN: kiln-opt %s --split-input-file --pass-pipeline=fold-matmul-views | filecheck %s

// A linear layer on [B, S, K]: no view is left, and the bias is added on the three dims, still before the rounding.
// CHECK-LABEL: func.func @linear
// CHECK-SAME: %[[X:.*]]: tensor<2x16x64xf32>, %[[W:.*]]: tensor<8x64xf32>, %[[B:.*]]: tensor<8xf32>
// CHECK-NOT: kiln.view
// CHECK: %[[P:.*]] = "kiln.matmul"(%[[X]], %[[W]]) {transpose_lhs = false, transpose_rhs = true}
// CHECK-SAME: -> tensor<2x16x8xf32>
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel"]
// CHECK-SAME: ins(%[[P]], %[[B]] : tensor<2x16x8xf32>, tensor<8xf32>)
// CHECK-SAME: attrs = {{.*}}adds_to_product
// CHECK-NOT: kiln.view
// CHECK: return
func.func @linear(%x: tensor<2x16x64xf32>, %w: tensor<8x64xf32>, %b: tensor<8xf32>) -> tensor<2x16x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 floordiv 16, d0 mod 16, d1)>, shape = affine_map<() -> (32, 64)>} : (tensor<2x16x64xf32>) -> tensor<32x64xf32>
  %1 = "kiln.view"(%w) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (64, 8)>} : (tensor<8x64xf32>) -> tensor<64x8xf32>
  %2 = "kiln.matmul"(%0, %1) {transpose_lhs = false, transpose_rhs = false} : (tensor<32x64xf32>, tensor<64x8xf32>) -> tensor<32x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (32, 8)>} : () -> tensor<32x8xf32>
  %3 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%2, %b : tensor<32x8xf32>, tensor<8xf32>) outs(%e : tensor<32x8xf32>) attrs = {adds_to_product} {
  ^bb0(%p: f32, %c: f32, %o: f32):
    %s = arith.addf %p, %c : f32
    linalg.yield %s : f32
  } -> tensor<32x8xf32>
  %4 = "kiln.view"(%3) {map = affine_map<(d0, d1, d2) -> (d0 * 16 + d1, d2)>, shape = affine_map<() -> (2, 16, 8)>} : (tensor<32x8xf32>) -> tensor<2x16x8xf32>
  return %4 : tensor<2x16x8xf32>
}

// -----

// The same with dynamic leading dims.
// CHECK-LABEL: func.func @dynamic
// CHECK-NOT: kiln.view
// CHECK: "kiln.matmul"
// CHECK-SAME: (tensor<?x?x64xf32>, tensor<8x64xf32>) -> tensor<?x?x8xf32>
// CHECK-NOT: kiln.view
// CHECK: return
func.func @dynamic(%x: tensor<?x?x64xf32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1, 64)>}, %w: tensor<8x64xf32>, %n: index {kiln.symbol = "s0"}, %m: index {kiln.symbol = "s1"}) -> tensor<?x?x8xf32> attributes {kiln.symbols = ["s0", "s1"]} {
  %0 = "kiln.view"(%x, %n, %m) {map = affine_map<(d0, d1)[s0, s1] -> (d0 floordiv s1, d0 mod s1, d1)>, shape = affine_map<()[s0, s1] -> (s0 * s1, 64)>} : (tensor<?x?x64xf32>, index, index) -> tensor<?x64xf32>
  %1 = "kiln.view"(%w) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (64, 8)>} : (tensor<8x64xf32>) -> tensor<64x8xf32>
  %2 = "kiln.matmul"(%0, %1) {transpose_lhs = false, transpose_rhs = false} : (tensor<?x64xf32>, tensor<64x8xf32>) -> tensor<?x8xf32>
  %3 = "kiln.view"(%2, %n, %m) {map = affine_map<(d0, d1, d2)[s0, s1] -> (d0 * s1 + d1, d2)>, shape = affine_map<()[s0, s1] -> (s0, s1, 8)>} : (tensor<?x8xf32>, index, index) -> tensor<?x?x8xf32>
  return %3 : tensor<?x?x8xf32>
}

// -----

// Scores of attention written with bmm: batch and heads are two dims, the key is read as it lies.
// CHECK: #[[HEADS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1 * 4 + d3)>
// CHECK-LABEL: func.func @scores
// CHECK-DAG: %[[Q:.*]] = "kiln.view"(%{{.*}}) {map = #[[HEADS]]
// CHECK: "kiln.matmul"(%{{.*}}, %{{.*}}) {transpose_lhs = false, transpose_rhs = true}
// CHECK-SAME: (tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32>) -> tensor<2x3x5x5xf32>
// CHECK-NOT: kiln.view
// CHECK: return
func.func @scores(%q: tensor<2x5x12xf32>, %k: tensor<2x5x12xf32>) -> tensor<2x3x5x5xf32> {
  %0 = "kiln.view"(%q) {map = affine_map<(d0, d1, d2) -> (d0 floordiv 3, d1, (d0 mod 3) * 4 + d2)>, shape = affine_map<() -> (6, 5, 4)>} : (tensor<2x5x12xf32>) -> tensor<6x5x4xf32>
  %1 = "kiln.view"(%k) {map = affine_map<(d0, d1, d2) -> (d0 floordiv 3, d2, (d0 mod 3) * 4 + d1)>, shape = affine_map<() -> (6, 4, 5)>} : (tensor<2x5x12xf32>) -> tensor<6x4x5xf32>
  %2 = "kiln.matmul"(%0, %1) {transpose_lhs = false, transpose_rhs = false} : (tensor<6x5x4xf32>, tensor<6x4x5xf32>) -> tensor<6x5x5xf32>
  %3 = "kiln.view"(%2) {map = affine_map<(d0, d1, d2, d3) -> (d0 * 3 + d1, d2, d3)>, shape = affine_map<() -> (2, 3, 5, 5)>} : (tensor<6x5x5xf32>) -> tensor<2x3x5x5xf32>
  return %3 : tensor<2x3x5x5xf32>
}

// -----

// A flat result that is wanted flat stays flat.
// CHECK-LABEL: func.func @flat
// CHECK: "kiln.view"
// CHECK: "kiln.matmul"
// CHECK-SAME: -> tensor<32x8xf32>
func.func @flat(%x: tensor<2x16x64xf32>, %w: tensor<64x8xf32>) -> tensor<32x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 floordiv 16, d0 mod 16, d1)>, shape = affine_map<() -> (32, 64)>} : (tensor<2x16x64xf32>) -> tensor<32x64xf32>
  %1 = "kiln.matmul"(%0, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<32x64xf32>, tensor<64x8xf32>) -> tensor<32x8xf32>
  return %1 : tensor<32x8xf32>
}

// -----

// What else the elementwise op reads flat is viewed with the split dims: its order in memory is the same.
// CHECK: #[[M:.*]] = affine_map<(d0, d1, d2) -> (d0 * 16 + d1, d2)>
// CHECK-LABEL: func.func @other_flat
// CHECK-SAME: %[[Y:[a-z0-9]+]]: tensor<32x8xf32>)
// CHECK: "kiln.matmul"
// CHECK-SAME: -> tensor<2x16x8xf32>
// CHECK: %[[V:.*]] = "kiln.view"(%[[Y]]) {map = #[[M]]
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[V]] : tensor<2x16x8xf32>, tensor<2x16x8xf32>)
// CHECK-NOT: kiln.view
// CHECK: return
func.func @other_flat(%x: tensor<2x16x64xf32>, %w: tensor<64x8xf32>, %y: tensor<32x8xf32>) -> tensor<2x16x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 floordiv 16, d0 mod 16, d1)>, shape = affine_map<() -> (32, 64)>} : (tensor<2x16x64xf32>) -> tensor<32x64xf32>
  %1 = "kiln.matmul"(%0, %w) {transpose_lhs = false, transpose_rhs = false} : (tensor<32x64xf32>, tensor<64x8xf32>) -> tensor<32x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (32, 8)>} : () -> tensor<32x8xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1, %y : tensor<32x8xf32>, tensor<32x8xf32>) outs(%e : tensor<32x8xf32>) {
  ^bb0(%p: f32, %c: f32, %o: f32):
    %s = arith.addf %p, %c : f32
    linalg.yield %s : f32
  } -> tensor<32x8xf32>
  %3 = "kiln.view"(%2) {map = affine_map<(d0, d1, d2) -> (d0 * 16 + d1, d2)>, shape = affine_map<() -> (2, 16, 8)>} : (tensor<32x8xf32>) -> tensor<2x16x8xf32>
  return %3 : tensor<2x16x8xf32>
}

// -----

// A weight that was repeated over the batch is read once.
// CHECK-LABEL: func.func @shared
// CHECK-SAME: %[[X:.*]]: tensor<2x16x64xf32>, %[[W:.*]]: tensor<8x64xf32>
// CHECK: "kiln.matmul"(%[[X]], %[[W]]) {transpose_lhs = false, transpose_rhs = true}
// CHECK-SAME: (tensor<2x16x64xf32>, tensor<8x64xf32>) -> tensor<2x16x8xf32>
func.func @shared(%x: tensor<2x16x64xf32>, %w: tensor<8x64xf32>) -> tensor<2x16x8xf32> {
  %0 = "kiln.view"(%w) {map = affine_map<(d0, d1, d2) -> (d2, d1)>, shape = affine_map<() -> (2, 64, 8)>} : (tensor<8x64xf32>) -> tensor<2x64x8xf32>
  %1 = "kiln.matmul"(%x, %0) {transpose_lhs = false, transpose_rhs = false} : (tensor<2x16x64xf32>, tensor<2x64x8xf32>) -> tensor<2x16x8xf32>
  return %1 : tensor<2x16x8xf32>
}

// -----

// Rows [T, B] of a batch-first tensor: the product and its bias take the rows as they lie, what is behind a view.
// CHECK: #[[BACK:.*]] = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
// CHECK-LABEL: func.func @reordered_rows
// CHECK-SAME: %[[X:.*]]: tensor<2x16x64xf32>, %[[W:.*]]: tensor<8x64xf32>, %[[B:.*]]: tensor<8xf32>
// CHECK: %[[P:.*]] = "kiln.matmul"(%[[X]], %[[W]])
// CHECK-SAME: -> tensor<2x16x8xf32>
// CHECK: %[[S:.*]] = linalg.generic
// CHECK-SAME: ins(%[[P]], %[[B]] : tensor<2x16x8xf32>, tensor<8xf32>)
// CHECK: %[[R:.*]] = "kiln.view"(%[[S]]) {map = #[[BACK]]
// CHECK: return %[[R]]
func.func @reordered_rows(%x: tensor<2x16x64xf32>, %w: tensor<8x64xf32>, %b: tensor<8xf32>) -> tensor<16x2x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1, d2) -> (d1, d0, d2)>, shape = affine_map<() -> (16, 2, 64)>} : (tensor<2x16x64xf32>) -> tensor<16x2x64xf32>
  %1 = "kiln.matmul"(%0, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<16x2x64xf32>, tensor<8x64xf32>) -> tensor<16x2x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 2, 8)>} : () -> tensor<16x2x8xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %b : tensor<16x2x8xf32>, tensor<8xf32>) outs(%e : tensor<16x2x8xf32>) {
  ^bb0(%p: f32, %c: f32, %o: f32):
    %s = arith.addf %p, %c : f32
    linalg.yield %s : f32
  } -> tensor<16x2x8xf32>
  return %2 : tensor<16x2x8xf32>
}

// -----

// What a kernel of the product holds and is in the other order keeps the product's: it would be a kernel of its own.
// CHECK-LABEL: func.func @residual
// CHECK: "kiln.matmul"
// CHECK-SAME: -> tensor<16x2x8xf32>
// CHECK: return
func.func @residual(%x: tensor<2x16x64xf32>, %w: tensor<8x64xf32>, %c: tensor<16x2x8xf32>) -> tensor<16x2x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1, d2) -> (d1, d0, d2)>, shape = affine_map<() -> (16, 2, 64)>} : (tensor<2x16x64xf32>) -> tensor<16x2x64xf32>
  %1 = "kiln.matmul"(%0, %w) {transpose_lhs = false, transpose_rhs = true} : (tensor<16x2x64xf32>, tensor<8x64xf32>) -> tensor<16x2x8xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (16, 2, 8)>} : () -> tensor<16x2x8xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %c : tensor<16x2x8xf32>, tensor<16x2x8xf32>) outs(%e : tensor<16x2x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<16x2x8xf32>
  return %2 : tensor<16x2x8xf32>
}
