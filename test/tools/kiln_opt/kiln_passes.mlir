// Kiln's passes with options, mixed with MLIR's.
// RUN: kiln-opt --load=%S/Inputs/sample_passes.py --pass-pipeline='canonicalize,test-tag{start=7 step=2 prefix="a "}' %s | filecheck %s --check-prefix=TAG
// RUN: kiln-opt --load=%S/Inputs/sample_passes.py --pass-pipeline='builtin.module(test-tag{only=arith.addi,arith.muli style=hex},func.func(cse))' %s | filecheck %s --check-prefix=ONLY
// RUN: kiln-opt --load=%S/Inputs/sample_passes.py --pass-pipeline=test-tag --remarks --statistics -o %t %s 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: kiln-opt --load=%S/Inputs/sample_passes.py --list-passes | filecheck %s --check-prefix=LIST

// TAG: arith.constant {test.tag = "a 7"}
// TAG: arith.addi {{.*}} {test.tag = "a 9"}

// ONLY: arith.constant 1
// ONLY: arith.addi {{.*}} {test.tag = "op0x0"}

// REMARK: test-tag: matched=2
// REMARK: kiln_passes.mlir:{{[0-9]+}}:3: remark: func.return: returns are not tagged [test-tag]
// REMARK-NOT: remark

// LIST: test-tag {{.*}}Tag each op of a function with its position.
// LIST-NOT: second paragraph
// LIST: prefix=<str> (default: op) written before the number
// LIST: start=<int> (default: 0)
// LIST: step=<float> (default: 1.0)
// LIST: only=<list[str]> (default: '') names of the ops to tag; all when empty
// LIST: style=<plain|hex> (default: plain)
// LIST: returns=<bool> (default: false)
func.func @f(%a: i32) -> i32 {
  %c1 = arith.constant 1 : i32
  %0 = arith.addi %a, %c1 : i32
  return %0 : i32
}
