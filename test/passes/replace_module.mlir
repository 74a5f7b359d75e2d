// RUN: kiln-opt --pass-pipeline='replace-module{file=%S/Inputs/replaced.mlir stage=kiln}' --remarks %s 2>&1 | filecheck %s
// RUN: not kiln-opt --pass-pipeline='replace-module{file=%S/Inputs/replaced.mlir stage=torch}' %s 2>&1 | filecheck %s --check-prefix=STAGE
// RUN: not kiln-opt --pass-pipeline='replace-module{file=%s.none}' %s 2>&1 | filecheck %s --check-prefix=NONE

// What follows in the pipeline sees the file, and a remark says so.
// CHECK: remark: func.func: replaced by {{.*}}Inputs/replaced.mlir [replace-module]
// CHECK: arith.constant dense<2.000000e+00>
// CHECK-NOT: arith.constant dense<1.000000e+00>

// The place is that in the file, not that in the model.
// STAGE: {{.*}}replaced.mlir:3:8: stage 'torch': arith.constant is not allowed in a function

// NONE: cannot read {{.*}}.none
func.func @main() -> tensor<4xf32> {
  %0 = arith.constant dense<1.0> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
