// The ops of dialects/kiln/index.py: printing gives back what was parsed, and each has a reference lowering.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=REF

// CHECK-LABEL: func.func @gather(
// CHECK: "kiln.gather"(
// REF-LABEL: func.func @gather(
// REF-NOT: "kiln.gather"
// REF: arith.index_cast
// REF: tensor.extract
func.func @gather(%x: tensor<8x?xf32>, %i: tensor<8x4xi64>) -> tensor<8x4xf32> {
  %0 = "kiln.gather"(%x, %i) {dim = 1} : (tensor<8x?xf32>, tensor<8x4xi64>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @index_select(
// CHECK: "kiln.index_select"(
// REF-LABEL: func.func @index_select(
// REF-NOT: "kiln.index_select"
// REF: arith.index_cast
// REF: tensor.extract
func.func @index_select(%x: tensor<8x?xf32>, %i: tensor<3xi64>) -> tensor<3x?xf32> {
  %0 = "kiln.index_select"(%x, %i) {dim = 0} : (tensor<8x?xf32>, tensor<3xi64>) -> tensor<3x?xf32>
  return %0 : tensor<3x?xf32>
}

// CHECK-LABEL: func.func @embedding(
// CHECK: "kiln.embedding"(
// REF-LABEL: func.func @embedding(
// REF-NOT: "kiln.embedding"
// REF: arith.index_cast
// REF: tensor.extract
func.func @embedding(%w: tensor<100x16xf32>, %i: tensor<2x?xi64>) -> tensor<2x?x16xf32> {
  %0 = "kiln.embedding"(%w, %i) : (tensor<100x16xf32>, tensor<2x?xi64>) -> tensor<2x?x16xf32>
  return %0 : tensor<2x?x16xf32>
}

// CHECK-LABEL: func.func @index(
// CHECK: "kiln.index"(
// REF-LABEL: func.func @index(
// REF-NOT: "kiln.index"
// REF: arith.cmpi slt
// REF: tensor.extract
func.func @index(%x: tensor<4x8x?xf32>, %i: tensor<3x1xi64>, %j: tensor<5xi64>) -> tensor<3x5x?xf32> {
  %0 = "kiln.index"(%x, %i, %j) {dims = array<i64: 0, 1>}
    : (tensor<4x8x?xf32>, tensor<3x1xi64>, tensor<5xi64>) -> tensor<3x5x?xf32>
  return %0 : tensor<3x5x?xf32>
}

// CHECK-LABEL: func.func @rows(
// CHECK: "kiln.scatter_nd"(
// REF-LABEL: func.func @rows(
// REF-NOT: "kiln.scatter_nd"
// REF-COUNT-2: arith.cmpi eq
// REF: arith.andi
// REF: arith.addf
// REF: arith.select
func.func @rows(%x: tensor<50x16xf32>, %s: tensor<4x7x16xf32>, %i: tensor<4x7x16xi64>) -> tensor<50x16xf32> {
  %0 = "kiln.scatter_nd"(%x, %s, %i) {dims = array<i64: 0>, loops = array<i64: 2>, reduce = "sum", from_zero = false}
    : (tensor<50x16xf32>, tensor<4x7x16xf32>, tensor<4x7x16xi64>) -> tensor<50x16xf32>
  return %0 : tensor<50x16xf32>
}

// CHECK-LABEL: func.func @scatter_add(
// CHECK: "kiln.scatter"(
// REF-LABEL: func.func @scatter_add(
// REF-NOT: "kiln.scatter"
// REF: arith.cmpi eq
// REF: arith.addf
// REF: arith.select
func.func @scatter_add(%x: tensor<8x4xf32>, %i: tensor<8x2xi64>, %s: tensor<8x2xf32>) -> tensor<8x4xf32> {
  %0 = "kiln.scatter"(%x, %i, %s) {dim = 1, reduce = "sum"}
    : (tensor<8x4xf32>, tensor<8x2xi64>, tensor<8x2xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
