// Assembly is that of the object: the entry that the host calls, and the vectors that the schedule chose.
// REQUIRES: objdump
// RUN: kiln-opt %s --pipeline=cpu --cpu=x86-64-v3 --emit=asm | filecheck %s

// CHECK: // kernel [[NAME:.*]]
// CHECK: <[[NAME]]>:
// CHECK: ymm
// CHECK: <[[NAME]]_entry>:
func.func @main(%a: !torch.vtensor<[32,16],f32>) -> !torch.vtensor<[32,16],f32> {
  %0 = torch.aten.relu %a : !torch.vtensor<[32,16],f32> -> !torch.vtensor<[32,16],f32>
  return %0 : !torch.vtensor<[32,16],f32>
}
