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

// -----

// No multiprocessor holds a tile of such heads.

// CHECK-LABEL: func.func @large_heads
// CHECK: "kiln.attention"
// CHECK: "kiln.aten"{{.*}}op = "aten.scaled_dot_product_attention.default"
// CHECK-SAME: reason = "{{.*}}attention over heads of more than 1,024 elements
func.func @large_heads(%x: !torch.vtensor<[1,2,16,1024],f32>, %y: !torch.vtensor<[1,2,16,1025],f32>)
    -> (!torch.vtensor<[1,2,16,1024],f32>, !torch.vtensor<[1,2,16,1025],f32>) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %zero = torch.constant.float 0.000000e+00
  %0 = torch.aten.scaled_dot_product_attention %x, %x, %x, %none, %zero, %false, %none, %false : !torch.vtensor<[1,2,16,1024],f32>, !torch.vtensor<[1,2,16,1024],f32>, !torch.vtensor<[1,2,16,1024],f32>, !torch.none, !torch.float, !torch.bool, !torch.none, !torch.bool -> !torch.vtensor<[1,2,16,1024],f32>
  %1 = torch.aten.scaled_dot_product_attention %y, %y, %y, %none, %zero, %false, %none, %false : !torch.vtensor<[1,2,16,1025],f32>, !torch.vtensor<[1,2,16,1025],f32>, !torch.vtensor<[1,2,16,1025],f32>, !torch.none, !torch.float, !torch.bool, !torch.none, !torch.bool -> !torch.vtensor<[1,2,16,1025],f32>
  return %0, %1 : !torch.vtensor<[1,2,16,1024],f32>, !torch.vtensor<[1,2,16,1025],f32>
}
