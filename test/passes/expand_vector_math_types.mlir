// RUN: kiln-opt --pass-pipeline="expand-vector-math" %s | filecheck %s

// Any width, scalars, and 16-bit floats.

// The cheaper formula: no denormal results, so that one multiplication scales.
// CHECK-LABEL: @approximate
// CHECK-COUNT-6: math.fma
// CHECK-NEXT: arith.bitcast
// CHECK-NEXT: arith.shli
// CHECK-NEXT: arith.bitcast
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: return
func.func @approximate(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp2 %x fastmath<afn> : vector<8xf32>
  return %0 : vector<8xf32>
}

// 18 steps instead of 30, in f32; there is none for f64.
// CHECK-LABEL: @short
// CHECK-COUNT-12: math.fma {{.*}} : vector<8xf32>
// CHECK-NOT: math.fma {{.*}} : vector<8xf32>
// CHECK-COUNT-20: math.fma {{.*}} : vector<8xf64>
func.func @short(%x: vector<8xf32>, %y: vector<8xf64>) -> (vector<8xf32>, vector<8xf64>) {
  %0 = math.erf %x fastmath<afn> : vector<8xf32>
  %1 = math.erf %y fastmath<afn> : vector<8xf64>
  return %0, %1 : vector<8xf32>, vector<8xf64>
}

// CHECK-LABEL: @four
// CHECK: math.fma {{.*}} : vector<4xf32>
// CHECK: arith.shrui {{.*}} : vector<4xi32>
func.func @four(%x: vector<4xf32>) -> vector<4xf32> {
  %0 = math.exp %x : vector<4xf32>
  return %0 : vector<4xf32>
}

// CHECK-LABEL: @sixteen
// CHECK: math.fma {{.*}} : vector<16xf32>
// CHECK: arith.shrui {{.*}} : vector<16xi32>
func.func @sixteen(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: @scalar
// CHECK: math.fma {{.*}} : f32
// CHECK: arith.shrui {{.*}} : i32
func.func @scalar(%x: f32) -> f32 {
  %0 = math.exp %x : f32
  return %0 : f32
}

// CHECK-LABEL: @double
// CHECK: math.fma {{.*}} : vector<4xf64>
// CHECK: arith.shrui {{.*}} : vector<4xi64>
func.func @double(%x: vector<4xf64>) -> vector<4xf64> {
  %0 = math.exp %x : vector<4xf64>
  return %0 : vector<4xf64>
}

// A scalar beyond the range of the reduction calls libm itself.
// CHECK-LABEL: @scalar_fallback
// CHECK: scf.if %{{.*}} -> (f64)
// CHECK-NEXT: func.call @sin(%{{.*}}) : (f64) -> f64
func.func @scalar_fallback(%x: f64) -> f64 {
  %0 = math.sin %x : f64
  return %0 : f64
}

// CHECK-LABEL: @integer_to_bf16
// CHECK: arith.sitofp {{.*}} : vector<8xi64> to vector<8xf32>
// CHECK: arith.bitcast {{.*}} : vector<8xi16> to vector<8xbf16>
func.func @integer_to_bf16(%x: vector<8xi64>) -> vector<8xbf16> {
  %0 = arith.sitofp %x : vector<8xi64> to vector<8xbf16>
  return %0 : vector<8xbf16>
}

// CHECK-LABEL: @half
// CHECK: arith.extf {{.*}} : vector<8xf16> to vector<8xf32>
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xf16>
// CHECK-NEXT: return
func.func @half(%x: vector<8xf16>) -> vector<8xf16> {
  %0 = math.tanh %x : vector<8xf16>
  return %0 : vector<8xf16>
}

// bf16 conversions are integer ops.
// CHECK-LABEL: @brain
// CHECK-NOT: arith.extf
// CHECK: arith.extui {{.*}} : vector<8xi16> to vector<8xi32>
// CHECK: math.sqrt {{.*}} : vector<8xf32>
// CHECK-NOT: arith.truncf
// CHECK: arith.trunci {{.*}} : vector<8xi32> to vector<8xi16>
// CHECK-NEXT: arith.bitcast {{.*}} : vector<8xi16> to vector<8xbf16>
// CHECK-NEXT: return
func.func @brain(%x: vector<8xbf16>) -> vector<8xbf16> {
  %0 = math.sqrt %x : vector<8xbf16>
  return %0 : vector<8xbf16>
}

// CHECK-LABEL: @conversions
// CHECK-NOT: arith.truncf
// CHECK-NOT: arith.extf {{.*}} : vector<8xbf16>
// CHECK: arith.extf {{.*}} : vector<8xf32> to vector<8xf64>
// CHECK: arith.truncf {{.*}} : vector<8xf64> to vector<8xf32>
// CHECK: return
func.func @conversions(%x: vector<8xbf16>) -> vector<8xbf16> {
  %0 = arith.extf %x : vector<8xbf16> to vector<8xf64>
  %1 = arith.truncf %0 : vector<8xf64> to vector<8xbf16>
  return %1 : vector<8xbf16>
}

// Single instructions, and f16 through F16C.
// CHECK-LABEL: @native
// CHECK-NEXT: math.absf
// CHECK-NEXT: math.sqrt
// CHECK-NEXT: math.floor
// CHECK-NEXT: math.ceil
// CHECK-NEXT: math.trunc
// CHECK-NEXT: math.round
// CHECK-NEXT: math.roundeven
// CHECK-NEXT: math.copysign
// CHECK-NEXT: math.fma
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: return
func.func @native(%x: vector<8xf32>) -> vector<8xf16> {
  %0 = math.absf %x : vector<8xf32>
  %1 = math.sqrt %0 : vector<8xf32>
  %2 = math.floor %1 : vector<8xf32>
  %3 = math.ceil %2 : vector<8xf32>
  %4 = math.trunc %3 : vector<8xf32>
  %5 = math.round %4 : vector<8xf32>
  %6 = math.roundeven %5 : vector<8xf32>
  %7 = math.copysign %6, %x : vector<8xf32>
  %8 = math.fma %7, %x, %x : vector<8xf32>
  %9 = arith.truncf %8 : vector<8xf32> to vector<8xf16>
  return %9 : vector<8xf16>
}

// Integers are left alone.
// CHECK-LABEL: @integers
// CHECK-NEXT: math.ctlz
// CHECK-NEXT: math.cttz
// CHECK-NEXT: math.ctpop
// CHECK-NEXT: math.absi
// CHECK-NEXT: return
func.func @integers(%x: vector<8xi32>) -> vector<8xi32> {
  %0 = math.ctlz %x : vector<8xi32>
  %1 = math.cttz %0 : vector<8xi32>
  %2 = math.ctpop %1 : vector<8xi32>
  %3 = math.absi %2 : vector<8xi32>
  return %3 : vector<8xi32>
}

// Two uses share their constants.
// CHECK-LABEL: @shared
// CHECK-COUNT-1: arith.constant dense<23> : vector<8xi32>
// CHECK-NOT: arith.constant dense<23> : vector<8xi32>
// CHECK: return
func.func @shared(%x: vector<8xf32>, %y: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp %x : vector<8xf32>
  %1 = math.exp %y : vector<8xf32>
  %2 = arith.addf %0, %1 : vector<8xf32>
  return %2 : vector<8xf32>
}
