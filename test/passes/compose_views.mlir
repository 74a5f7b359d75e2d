// RUN: kiln-opt %s --split-input-file --pass-pipeline=compose-views | filecheck %s

// A reshape, then a transpose: one map.
// CHECK: #[[M:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @reshape_transpose
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>
// CHECK: %[[V:.*]] = "kiln.view"(%[[X]]) {map = #[[M]]
// CHECK-NOT: kiln.view
// CHECK: return %[[V]]
func.func @reshape_transpose(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>, shape = affine_map<() -> (32)>} : (tensor<4x8xf32>) -> tensor<32xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0, d1) -> (d1 * 8 + d0)>, shape = affine_map<() -> (8, 4)>} : (tensor<32xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// Two views that undo each other, with a dynamic size, vanish.
// CHECK-LABEL: func.func @undo
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x4x8xf32>
// CHECK-NOT: kiln.view
// CHECK: return %[[X]]
func.func @undo(%x: tensor<?x4x8xf32> {kiln.shape = affine_map<()[s0] -> (s0, 4, 8)>}, %n: index {kiln.symbol = "s0"}) -> tensor<?x4x8xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.view"(%x, %n) {map = affine_map<(d0, d1)[s0] -> (d0 floordiv 4, d0 mod 4, d1)>, shape = affine_map<()[s0] -> (s0 * 4, 8)>} : (tensor<?x4x8xf32>, index) -> tensor<?x8xf32>
  %1 = "kiln.view"(%0, %n) {map = affine_map<(d0, d1, d2)[s0] -> (d0 * 4 + d1, d2)>, shape = affine_map<()[s0] -> (s0, 4, 8)>} : (tensor<?x8xf32>, index) -> tensor<?x4x8xf32>
  return %1 : tensor<?x4x8xf32>
}

// -----

// A slice has the identity map but other sizes: it stays.
// CHECK-LABEL: func.func @slice
// CHECK: "kiln.view"
// CHECK-SAME: -> tensor<2x8xf32>
func.func @slice(%x: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0, d1)>, shape = affine_map<() -> (2, 8)>} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// A slice of a slice adds the offsets; an unused view goes.
// CHECK: #[[M:.*]] = affine_map<(d0) -> (d0 + 3)>
// CHECK-LABEL: func.func @slices
// CHECK-COUNT-1: "kiln.view"(%{{.*}}) {map = #[[M]]
// CHECK-NOT: kiln.view
// CHECK: return
func.func @slices(%x: tensor<8xf32>) -> tensor<2xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (6)>} : (tensor<8xf32>) -> tensor<6xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (2)>} : (tensor<6xf32>) -> tensor<2xf32>
  %2 = "kiln.view"(%0) {map = affine_map<(d0) -> (5 - d0)>, shape = affine_map<() -> (6)>} : (tensor<6xf32>) -> tensor<6xf32>
  return %1 : tensor<2xf32>
}

// -----

// A broadcast of a row read at one row: back at the source.
// CHECK-LABEL: func.func @broadcast_row
// CHECK-SAME: %[[X:.*]]: tensor<8xf32>
// CHECK-NOT: kiln.view
// CHECK: return %[[X]]
func.func @broadcast_row(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1)>, shape = affine_map<() -> (4, 8)>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0) -> (2, d0)>, shape = affine_map<() -> (8)>} : (tensor<4x8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// Slices of a concatenation that lie in one of its operands are slices of that; what holds two of them stays.

// CHECK-LABEL: func.func @split_of_cat
// CHECK-NOT: kiln.cat
// CHECK: "kiln.view"(%arg0) {map = #[[MAP:.*]], shape = {{.*}}} : (tensor<4x6xf32>) -> tensor<6x4xf32>
// CHECK-NOT: kiln.cat
// CHECK: call @use(%{{.*}}, %arg1)
func.func private @use(tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<4xf32>
func.func @split_of_cat(%x: tensor<4x6xf32>, %y: tensor<4x5xf32>) -> tensor<4xf32> {
  %c = "kiln.cat"(%x, %y) {dim = 1, shape = affine_map<() -> (4, 11)>}
    : (tensor<4x6xf32>, tensor<4x5xf32>) -> tensor<4x11xf32>
  %a = "kiln.view"(%c) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (6, 4)>}
    : (tensor<4x11xf32>) -> tensor<6x4xf32>
  %b = "kiln.view"(%c) {map = affine_map<(d0, d1) -> (d0, d1 + 6)>, shape = affine_map<() -> (4, 5)>}
    : (tensor<4x11xf32>) -> tensor<4x5xf32>
  %r = func.call @use(%a, %b) : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @dynamic
// CHECK-NOT: kiln.cat
// CHECK: call @use(%arg1)
func.func private @use(tensor<?x5xf32>) -> tensor<4xf32>
func.func @dynamic(%x: tensor<?x6xf32> {kiln.shape = affine_map<()[n] -> (n, 6)>}, %y: tensor<?x5xf32> {kiln.shape = affine_map<()[n] -> (n, 5)>}, %n: index {kiln.symbol = "n"}) -> tensor<4xf32>
    attributes {kiln.symbols = ["n"]} {
  %c = "kiln.cat"(%x, %y, %n) {dim = 1, shape = affine_map<()[n] -> (n, 11)>}
    : (tensor<?x6xf32>, tensor<?x5xf32>, index) -> tensor<?x11xf32>
  %b = "kiln.view"(%c, %n) {map = affine_map<(d0, d1)[n] -> (d0, d1 + 6)>, shape = affine_map<()[n] -> (n, 5)>}
    : (tensor<?x11xf32>, index) -> tensor<?x5xf32>
  %r = func.call @use(%b) : (tensor<?x5xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// One slice holds parts of both operands; the other is returned, and must not be the operand's memory.

// CHECK-LABEL: func.func @stays
// CHECK: %[[C:.*]] = "kiln.cat
// CHECK: "kiln.view"(%[[C]])
// CHECK: "kiln.view"(%[[C]])
func.func @stays(%x: tensor<4x6xf32>, %y: tensor<4x5xf32>) -> (tensor<4x2xf32>, tensor<4x5xf32>) {
  %c = "kiln.cat"(%x, %y) {dim = 1, shape = affine_map<() -> (4, 11)>}
    : (tensor<4x6xf32>, tensor<4x5xf32>) -> tensor<4x11xf32>
  %a = "kiln.view"(%c) {map = affine_map<(d0, d1) -> (d0, d1 + 5)>, shape = affine_map<() -> (4, 2)>}
    : (tensor<4x11xf32>) -> tensor<4x2xf32>
  %b = "kiln.view"(%c) {map = affine_map<(d0, d1) -> (d0, d1 + 6)>, shape = affine_map<() -> (4, 5)>}
    : (tensor<4x11xf32>) -> tensor<4x5xf32>
  return %a, %b : tensor<4x2xf32>, tensor<4x5xf32>
}

// -----

// A copy that knows that there are 4 rows copies a view that does, so that it may be erased: MLIR would leave a cast, which
// does not say what sizes depend on.

// CHECK-LABEL: func.func @known_rows
// CHECK-SAME: %[[X:.*]]: tensor<?x6xf32>
// CHECK: %[[V:.*]] = "kiln.view"(%[[X]]) {{.*}} -> tensor<4x6xf32>
// CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[V]] : tensor<4x6xf32>)
// CHECK: return %[[C]]
func.func @known_rows(%x: tensor<?x6xf32> {kiln.shape = affine_map<()[n] -> (n floordiv 2, 6)>}, %n: index {kiln.symbol = "n"}) -> tensor<4x6xf32> attributes {kiln.symbols = ["n"]} {
  %e = "kiln.empty"() {shape = affine_map<() -> (4, 6)>} : () -> tensor<4x6xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x6xf32>
  return %c : tensor<4x6xf32>
}
