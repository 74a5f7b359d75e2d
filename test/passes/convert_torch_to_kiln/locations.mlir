// RUN: kiln-opt %s --pass-pipeline=convert-torch-to-kiln --mlir-print-debuginfo | filecheck %s

// Every op made from a torch op has its location.
// CHECK: #[[L:loc[0-9]+]] = loc("model.py":12:5)
// CHECK: "kiln.empty"() {{.*}} loc(#[[L]])
// CHECK: arith.addf %{{.*}} loc(#[[L]])
// CHECK: } -> tensor<8xf32> loc(#[[L]])
func.func @main(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.add.Tensor %x, %x, %int1 : !torch.vtensor<[8],f32>, !torch.vtensor<[8],f32>, !torch.int -> !torch.vtensor<[8],f32> loc("model.py":12:5)
  return %0 : !torch.vtensor<[8],f32>
}
