// A rule that is named is left out, and no other.
// RUN: kiln-opt --pass-pipeline=simplify-algebra{disable=relu-relu} %s | filecheck %s
// RUN: not kiln-opt --pass-pipeline=simplify-algebra{disable=relu-rel} %s 2>&1 | filecheck %s --check-prefix=NEAR

// CHECK-COUNT-2: torch.aten.relu
// CHECK-NOT: torch.aten.t
// NEAR: there is no rule 'relu-rel'; did you mean 'relu-relu'
func.func @main(%x: !torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,4],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %2 = torch.aten.t %1 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  %3 = torch.aten.t %2 : !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,4],f32>
  return %3 : !torch.vtensor<[4,4],f32>
}
