// A failing pass names itself, its place, and leaves the IR before it with the command to run it again.
// RUN: rm -rf %t && mkdir -p %t
// RUN: not kiln-opt --load=%S/Inputs/sample_passes.py --reproducer-dir=%t --pass-pipeline='canonicalize,test-tag{start=3},test-reject{op=arith.addi}' %s 2>&1 | filecheck %s
// RUN: cat %t/test-reject-*.mlir | filecheck %s --check-prefix=FILE
// RUN: not kiln-opt --load=%S/Inputs/sample_passes.py --pass-pipeline=test-break %s 2>&1 | filecheck %s --check-prefix=BREAK
// RUN: not kiln-opt --load=%S/Inputs/sample_passes.py --pass-pipeline=test-raise %s 2>&1 | filecheck %s --check-prefix=RAISE

// CHECK: reproducer.mlir:[[L:[0-9]+]]:8: error: arith.addi is not supported: rejected by option
// CHECK: note: in pass 'test-reject'
// CHECK: note: to reproduce: kiln-opt --load={{.*}}sample_passes.py '--pass-pipeline=test-reject{op=arith.addi}' {{.*}}test-reject-{{[0-9a-f]+}}.mlir

// FILE: // {{RUN}}: kiln-opt --load={{.*}}sample_passes.py '--pass-pipeline=test-reject{op=arith.addi}' %s
// FILE: arith.addi {{.*}}test.tag = "op3"

// BREAK: error: 'func.func' op type of entry block argument #0('i32') must match
// BREAK: note: in pass 'test-break'

// RAISE: error: ZeroDivisionError: a bug (raised in run, {{.*}}sample_passes.py:77)
// RAISE: note: in pass 'test-raise'
func.func @f(%a: i32) -> i32 {
  %0 = arith.addi %a, %a : i32
  return %0 : i32
}
