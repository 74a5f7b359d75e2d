// RUN: kiln-opt --load=%S/Inputs/schedule_rules.py --remarks --pass-pipeline="schedule-gpu,apply-schedules{target=cuda arch=sm_90 rules=schedule_rules:wide}" %s 2>&1 | filecheck %s

// A rule replaces the schedule of the fusions that it names one for, and says what it changed. The others keep theirs.

// CHECK: schedule by schedule_rules:wide: nests: {{.*}}[128]{{.*}} -> {{.*}}[1024]
// CHECK-LABEL: func.func @main
// CHECK: num_warps = 8 : i64, tile = [1024]
// CHECK-LABEL: func.func @small
// CHECK: num_warps = 1 : i64, tile = [16]
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4096xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4096)>} : () -> tensor<4096xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a : tensor<4096xf32>) outs(%e : tensor<4096xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.negf %i : f32
      linalg.yield %s : f32
    } -> tensor<4096xf32>
    "kiln.yield"(%r) : (tensor<4096xf32>) -> ()
  }) {kind = "pointwise", name = "neg"} : (tensor<4096xf32>) -> tensor<4096xf32>
  return %0 : tensor<4096xf32>
}

func.func @small(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<16xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (16)>} : () -> tensor<16xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
        iterator_types = ["parallel"]} ins(%a : tensor<16xf32>) outs(%e : tensor<16xf32>) {
    ^bb0(%i: f32, %o: f32):
      %s = arith.negf %i : f32
      linalg.yield %s : f32
    } -> tensor<16xf32>
    "kiln.yield"(%r) : (tensor<16xf32>) -> ()
  }) {kind = "pointwise", name = "neg"} : (tensor<16xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}
