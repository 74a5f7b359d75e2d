// RUN: kiln-opt %s --pass-pipeline='convert-torch-to-kiln{aten=torch.aten.relu}' | filecheck %s

// The option sends an op to ATen even though there is a rule for it.
// CHECK-LABEL: func.func @main
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.relu.default"
// CHECK: math.exp
func.func @main(%x: !torch.vtensor<[8],f32>) -> !torch.vtensor<[8],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[8],f32> -> !torch.vtensor<[8],f32>
  return %1 : !torch.vtensor<[8],f32>
}
