// A norm of rows whose length is known at run time divides by it: the fusion computes the number once, beside its loops.
// RUN: kiln-opt %s --mlir-print-local-scope --pass-pipeline="expand-named-ops,fuse" --check-stage=fused | filecheck %s

// CHECK-LABEL: func.func @rms_norm
// CHECK:         "kiln.fusion"
// CHECK:         ^bb0({{.*}}, %[[SIZE:[a-z0-9_]+]]: index):
// CHECK:         iterator_types = ["parallel", "reduction"]
// CHECK:         %[[INTEGER:[a-z0-9_]+]] = arith.index_cast %[[SIZE]] : index to i64
// CHECK-NEXT:    %[[COUNT:[a-z0-9_]+]] = arith.sitofp %[[INTEGER]] : i64 to f32
// CHECK:         linalg.generic
// CHECK:         arith.divf %{{[a-z0-9_]+}}, %[[COUNT]] : f32
// CHECK:         "kiln.yield"
func.func @rms_norm(%n: index {kiln.symbol = "n"}, %x: tensor<8x?xf32> {kiln.shape = affine_map<()[s0] -> (8, s0)>, kiln.strides = affine_map<()[s0] -> (s0, 1)>}) -> (tensor<8x?xf32> {kiln.strides = affine_map<()[s0] -> (s0, 1)>}) attributes {kiln.symbols = ["n"]} {
  %0 = "kiln.rms_norm"(%x) {axes = array<i64: 1>, eps = 1.0e-6 : f64} : (tensor<8x?xf32>) -> tensor<8x?xf32>
  return %0 : tensor<8x?xf32>
}
