// Named ops to their reference lowerings; all, some, all but some, and in fusion bodies.
// RUN: kiln-opt --pass-pipeline=expand-named-ops %s | filecheck %s --check-prefix=ALL
// RUN: kiln-opt --pass-pipeline='expand-named-ops{ops=softmax}' %s | filecheck %s --check-prefix=SOME
// RUN: kiln-opt --pass-pipeline='expand-named-ops{keep=kiln.softmax}' %s | filecheck %s --check-prefix=KEEP
// RUN: not kiln-opt --pass-pipeline='expand-named-ops{ops=sotfmax}' %s 2>&1 | filecheck %s --check-prefix=ERROR

// ERROR: pass 'expand-named-ops': ops: no named op 'kiln.sotfmax' (near: kiln.softmax

// ALL-LABEL: func.func @main(
// ALL-NOT: "kiln.softmax"
// ALL-NOT: "kiln.matmul"
// ALL: return

// SOME-LABEL: func.func @main(
// SOME: "kiln.matmul"
// SOME: math.exp
// SOME: "kiln.matmul"
// SOME-NOT: "kiln.softmax"

// KEEP-LABEL: func.func @main(
// KEEP-NOT: "kiln.matmul"
// KEEP: "kiln.softmax"

func.func @main(%x: tensor<?x8xf32> {kiln.shape = affine_map<()[s0] -> (s0, 8)>}, %w: tensor<8x4xf32>,
                %n: index {kiln.symbol = "s0"}) -> tensor<?x4xf32> attributes {kiln.symbols = ["s0"]} {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %1 = "kiln.softmax"(%0) {dim = 1, log = false} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %2 = "kiln.fusion"(%1, %n) ({
  ^bb0(%a: tensor<?x4xf32>, %s: index):
    %3 = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = true}
      : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x?xf32>
    %4 = "kiln.softmax"(%a) {dim = 0, log = true} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    "kiln.yield"(%4) : (tensor<?x4xf32>) -> ()
  }) {kind = "reduction", name = "f"} : (tensor<?x4xf32>, index) -> tensor<?x4xf32>
  return %2 : tensor<?x4xf32>
}
