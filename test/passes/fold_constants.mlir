// RUN: kiln-opt %s --split-input-file --pass-pipeline=fold-constants | filecheck %s
// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline='fold-constants{max-elements=4}' 2>&1 | filecheck %s --check-prefix=SMALL

// 2 * 3, in the tensors' dtype; what depends on x stays.
// CHECK-LABEL: func.func @scale
// CHECK: %[[L:.*]] = torch.vtensor.literal(dense<6.000000e+00> : tensor<f32>)
// CHECK-NEXT: %[[R:.*]] = torch.aten.mul.Tensor %arg0, %[[L]]
// CHECK-NEXT: return %[[R]]
func.func @scale(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.vtensor.literal(dense<2.0> : tensor<f32>) : !torch.vtensor<[],f32>
  %1 = torch.vtensor.literal(dense<3.0> : tensor<f32>) : !torch.vtensor<[],f32>
  %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
  %3 = torch.aten.mul.Tensor %x, %2 : !torch.vtensor<[4],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[4],f32>
  return %3 : !torch.vtensor<[4],f32>
}

// -----

// A constant of the graph, by its value.
// CHECK-LABEL: func.func @argument
// CHECK: torch.vtensor.literal(dense<[2, -4]> : tensor<2xsi64>)
func.func @argument(%c: !torch.vtensor<[2],si64> {kiln.constant = "c", kiln.value = dense<[-2, 4]> : tensor<2xsi64>}) -> !torch.vtensor<[2],si64> {
  %0 = torch.aten.neg %c : !torch.vtensor<[2],si64> -> !torch.vtensor<[2],si64>
  return %0 : !torch.vtensor<[2],si64>
}

// -----

// arange * 2 + 1 with five elements is folded; under a limit of 4 it is not. arange alone is no work to save.
// CHECK-LABEL: func.func @ramp
// CHECK-DAG: torch.vtensor.literal(dense<[1.000000e+00, 3.000000e+00, 5.000000e+00, 7.000000e+00, 9.000000e+00]> : tensor<5xf32>)
// CHECK-DAG: torch.aten.arange
// CHECK-NOT: torch.aten.mul
// SMALL-LABEL: func.func @ramp
// SMALL: torch.aten.mul
func.func @ramp() -> (!torch.vtensor<[5],f32>, !torch.vtensor<[5],f32>) {
  %n = torch.constant.none
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %i5 = torch.constant.int 5
  %i6 = torch.constant.int 6
  %a = torch.aten.arange %i5, %i6, %n, %n, %n : !torch.int, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[5],f32>
  %0 = torch.aten.mul.Scalar %a, %i2 : !torch.vtensor<[5],f32>, !torch.int -> !torch.vtensor<[5],f32>
  %1 = torch.aten.add.Scalar %0, %i1, %i1 : !torch.vtensor<[5],f32>, !torch.int, !torch.int -> !torch.vtensor<[5],f32>
  return %1, %a : !torch.vtensor<[5],f32>, !torch.vtensor<[5],f32>
}

// -----

// Shape arithmetic of static sizes; a dynamic size stays.
// CHECK-LABEL: func.func @sizes
// CHECK-DAG: %[[S:.*]] = torch.aten.size.int %arg0, %int0
// CHECK-DAG: %int48 = torch.constant.int 48
// CHECK: torch.prim.ListConstruct %[[S]], %int48
func.func @sizes(%x: !torch.vtensor<[?,6,8],f32> {kiln.shape = affine_map<()[s0] -> (s0, 6, 8)>}, %n: !torch.int {kiln.symbol = "s0"}) -> !torch.vtensor<[?,48],f32> attributes {kiln.symbols = ["s0"]} {
  %i0 = torch.constant.int 0
  %i1 = torch.constant.int 1
  %i2 = torch.constant.int 2
  %0 = torch.aten.size.int %x, %i0 : !torch.vtensor<[?,6,8],f32>, !torch.int -> !torch.int
  %1 = torch.aten.size.int %x, %i1 : !torch.vtensor<[?,6,8],f32>, !torch.int -> !torch.int
  %2 = torch.aten.size.int %x, %i2 : !torch.vtensor<[?,6,8],f32>, !torch.int -> !torch.int
  %3 = torch.aten.mul.int %1, %2 : !torch.int, !torch.int -> !torch.int
  %l = torch.prim.ListConstruct %0, %3 : (!torch.int, !torch.int) -> !torch.list<int>
  %v = torch.aten.view %x, %l {kiln.shapes = [affine_map<()[s0] -> (s0, 48)>]} : !torch.vtensor<[?,6,8],f32>, !torch.list<int> -> !torch.vtensor<[?,48],f32>
  return %v : !torch.vtensor<[?,48],f32>
}

// -----

// Random numbers are drawn at run time.
// CHECK-LABEL: func.func @random
// CHECK: torch.aten.rand_like
func.func @random() -> !torch.vtensor<[2],f32> {
  %n = torch.constant.none
  %0 = torch.vtensor.literal(dense<2.0> : tensor<2xf32>) : !torch.vtensor<[2],f32>
  %1 = torch.aten.rand_like %0, %n, %n, %n, %n, %n : !torch.vtensor<[2],f32>, !torch.none, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2],f32>
  return %1 : !torch.vtensor<[2],f32>
}

// -----

// Arithmetic on numbers; what eager raises for stays.
// CHECK-LABEL: func.func @numbers
// CHECK-DAG: %[[Z:.*]] = torch.constant.int 0
// CHECK-DAG: %[[A:.*]] = torch.constant.float 2.500000e-01
// CHECK: torch.aten.mul.Scalar %arg0, %[[A]]
// CHECK: %[[D:.*]] = torch.aten.floordiv.int %{{.*}}, %[[Z]]
// CHECK: torch.aten.add.Scalar %{{.*}}, %[[D]]
func.func @numbers(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %i16 = torch.constant.int 16
  %i1 = torch.constant.int 1
  %i0 = torch.constant.int 0
  %f1 = torch.constant.float 1.0
  %0 = torch.aten.sqrt.int %i16 : !torch.int -> !torch.float
  %1 = torch.aten.div.float %f1, %0 : !torch.float, !torch.float -> !torch.float
  %2 = torch.aten.mul.Scalar %x, %1 : !torch.vtensor<[4],f32>, !torch.float -> !torch.vtensor<[4],f32>
  %3 = torch.aten.floordiv.int %i16, %i0 : !torch.int, !torch.int -> !torch.int
  %4 = torch.aten.add.Scalar %2, %3, %i1 : !torch.vtensor<[4],f32>, !torch.int, !torch.int -> !torch.vtensor<[4],f32>
  return %4 : !torch.vtensor<[4],f32>
}

// -----

// NaN, infinities and -0.0 keep their bits; integers wrap around as eager's do.
// CHECK-LABEL: func.func @bits
// CHECK-DAG: dense<[0xFFC00000, 0xFF800000, -0.000000e+00]> : tensor<3xf32>
// CHECK-DAG: dense<-128> : tensor<si8>
func.func @bits() -> (!torch.vtensor<[3],f32>, !torch.vtensor<[],si8>) {
  %i1 = torch.constant.int 1
  %0 = torch.vtensor.literal(dense<[0x7FC00000, 0x7F800000, 0.0]> : tensor<3xf32>) : !torch.vtensor<[3],f32>
  %1 = torch.aten.neg %0 : !torch.vtensor<[3],f32> -> !torch.vtensor<[3],f32>
  %2 = torch.vtensor.literal(dense<127> : tensor<si8>) : !torch.vtensor<[],si8>
  %3 = torch.aten.add.Scalar %2, %i1, %i1 : !torch.vtensor<[],si8>, !torch.int, !torch.int -> !torch.vtensor<[],si8>
  return %1, %3 : !torch.vtensor<[3],f32>, !torch.vtensor<[],si8>
}

// -----

// Elements of two bytes, one by one and as a splat.
// CHECK-LABEL: func.func @halves
// CHECK-DAG: dense<[2.500000e+00, -5.000000e-01, 0x7C00]> : tensor<3xf16>
// CHECK-DAG: dense<3.000000e+00> : tensor<f16>
func.func @halves() -> (!torch.vtensor<[3],f16>, !torch.vtensor<[],f16>) {
  %i1 = torch.constant.int 1
  %0 = torch.vtensor.literal(dense<[1.5, -1.5, 0x7C00]> : tensor<3xf16>) : !torch.vtensor<[3],f16>
  %1 = torch.aten.add.Scalar %0, %i1, %i1 : !torch.vtensor<[3],f16>, !torch.int, !torch.int -> !torch.vtensor<[3],f16>
  %2 = torch.vtensor.literal(dense<2.0> : tensor<f16>) : !torch.vtensor<[],f16>
  %3 = torch.aten.add.Scalar %2, %i1, %i1 : !torch.vtensor<[],f16>, !torch.int, !torch.int -> !torch.vtensor<[],f16>
  return %1, %3 : !torch.vtensor<[3],f16>, !torch.vtensor<[],f16>
}
