// RUN: kiln-opt --pipeline=gpu --from=kiln --until=fused %s | filecheck %s

// A softmax of columns, whose sums are split into parts. The cast to f32 and the exponential are computed in each kernel
// that reads them, the cast in a second round: only its exponential read it, until several kernels compute that. What is
// held grows by the row of maxima, which is no reason to store 64 MiB.

// CHECK-LABEL: func.func @main
// CHECK-COUNT-5: "kiln.fusion"
// CHECK-NOT: "kiln.fusion"
// CHECK: return
func.func @main(%x: tensor<8192x2048xbf16> {kiln.shape = affine_map<() -> (8192, 2048)>, kiln.strides = affine_map<() -> (2048, 1)>}) -> (tensor<8192x2048xbf16> {kiln.strides = affine_map<() -> (2048, 1)>}) {
  %0 = "kiln.softmax"(%x) {dim = 0 : i64, log = false} : (tensor<8192x2048xbf16>) -> tensor<8192x2048xbf16>
  return %0 : tensor<8192x2048xbf16>
}
