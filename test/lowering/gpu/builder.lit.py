# RUN: %python %s | filecheck %s
# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the builder of Triton IR makes of a function's body: a kernel of (pointer to f32, i32)."""

from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt
from kiln.lowering.gpu.builder import kernel


def show(body):
    with create_context(), ir.Location.unknown():
        module = ir.Module.create()
        types = [tt.ptr(ir.F32Type.get()), ir.IntegerType.get_signless(32)]
        with ir.InsertionPoint(module.body):
            kernel(body.__name__, types, body)
        assert module.operation.verify()
        print(f"// {body.__name__}\n{kiln.to_text(module)}")


# Rows [16, 1] and columns [1, 32] broadcast to [16, 32], and so do a pointer, a number and the mask.
# CHECK-LABEL: // shapes
# CHECK:       %[[MASK:.*]] = arith.cmpi slt, {{.*}} : tensor<16x32xi32>
# CHECK:       "tt.store"({{.*}}, %[[MASK]]) : (tensor<16x32x!tt.ptr<f32>>, tensor<16x32xf32>, tensor<16x32xi1>)
@show
def shapes(b, x, n):
    at = b.addi(b.muli(b.lanes(16, 0, 2), 32), b.lanes(32, 1, 2))
    b.store(b.addptr(x, at), b.constant(0.0, b.f32), b.cmpi("slt", at, n))


# One constant and one range a kernel, however often they are asked for.
# CHECK-LABEL: // constants
# CHECK-DAG:   dense<1.500000e+00>
# CHECK-DAG:   "tt.make_range"
# CHECK-NOT:   dense<1.500000e+00>
# CHECK-NOT:   "tt.make_range"
# CHECK:       "tt.return"
@show
def constants(b, x, n):
    for _ in range(2):
        b.store(b.addptr(x, b.arange(16)), b.splat(b.constant(1.5, b.f32), [16]))


# A mask that always holds is none.
# CHECK-LABEL: // masks
# CHECK-NOT:   i1
# CHECK:       "tt.store"
# CHECK-NOT:   i1
# CHECK:       "tt.return"
@show
def masks(b, x, n):
    b.store(x, b.load(x, True, 0.0), b.cmpi("slt", 3, 4))


# A loop of one step is inlined; another has the attributes that it is given.
# CHECK-LABEL: // loops
# CHECK-NOT:   scf.for
# CHECK:       arith.addf
# CHECK:       scf.for %{{.*}} = %{{.*}} to %arg1
# CHECK:       } {tt.num_stages = 2 : i32}
# CHECK-NOT:   scf.for
# CHECK:       "tt.return"
@show
def loops(b, x, n):
    (once,) = b.for_(0, 4, 8, lambda i, carried: [b.addf(carried[0], 1.0)], [b.load(x)])
    (total,) = b.for_(0, n, 8, lambda i, carried: [b.addf(carried[0], 1.0)], [once], {"tt.num_stages": "2 : i32"})
    b.store(x, total)


# Floats of 8 bits convert through an op of their own, which rounds to nearest where it narrows.
# CHECK-LABEL: // small_floats
# CHECK:       "tt.fp_to_fp"({{.*}}) {{.*}}rounding = 1 : i32{{.*}} -> f8E4M3FN
# CHECK:       arith.truncf {{.*}} : f32 to f16
# CHECK:       "tt.fp_to_fp"({{.*}}) {{.*}}: (f8E4M3FN) -> f32
# CHECK-NOT:   tt.fp_to_fp
# CHECK:       "tt.return"
@show
def small_floats(b, x, n):
    small = b.cast_float(b.load(x), ir.Float8E4M3FNType.get())
    half = b.cast_float(b.cast_float(b.load(x), b.f16), b.bf16)
    b.store(x, b.addf(b.cast_float(small, b.f32), b.cast_float(half, b.f32)))
