// RUN: kiln-opt %s --split-input-file --pass-pipeline='convert-torch-to-kiln{torch-mlir=false}' | filecheck %s

// An integer division that may be by zero raises in PyTorch: the call to ATen keeps that, and says why it is there.
// CHECK-LABEL: func.func @division
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.div.Tensor_mode"
// CHECK-SAME: may be zero
func.func @division(%x: !torch.vtensor<[8],si64>, %y: !torch.vtensor<[8],si64>) -> !torch.vtensor<[8],si64> {
  %str = torch.constant.str "floor"
  %0 = torch.aten.div.Tensor_mode %x, %y, %str : !torch.vtensor<[8],si64>, !torch.vtensor<[8],si64>, !torch.str -> !torch.vtensor<[8],si64>
  return %0 : !torch.vtensor<[8],si64>
}

// -----

// Complex numbers are carried, not computed.
// CHECK-LABEL: func.func @complex
// CHECK-SAME: tensor<8xcomplex<f32>>
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.exp.default"
func.func @complex(%x: !torch.vtensor<[8],complex<f32>>) -> !torch.vtensor<[8],complex<f32>> {
  %0 = torch.aten.exp %x : !torch.vtensor<[8],complex<f32>> -> !torch.vtensor<[8],complex<f32>>
  return %0 : !torch.vtensor<[8],complex<f32>>
}

// -----

// Ops without uses vanish; what draws random numbers stays, also when its result is not used.
// CHECK-LABEL: func.func @dead
// CHECK-NOT: math.exp
// CHECK: "kiln.aten"
// CHECK-SAME: pure = false
// CHECK: return
func.func @dead(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %none = torch.constant.none
  %0 = torch.aten.exp %x : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  %1 = torch.aten.bernoulli %x, %none : !torch.vtensor<[8],f32>, !torch.none -> !torch.vtensor<[8],f32>
  return %x : !torch.vtensor<[8],f32>
}
