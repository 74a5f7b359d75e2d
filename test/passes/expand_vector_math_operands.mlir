// RUN: kiln-opt --pass-pipeline="expand-vector-math" %s | filecheck %s

// Functions of two and more operands.

// f32 powers are computed in f64 lanes.
// CHECK-LABEL: @powf
// CHECK: arith.extf {{.*}} : vector<8xf32> to vector<8xf64>
// CHECK-NOT: math.powf
// CHECK: arith.truncf {{.*}} : vector<8xf64> to vector<8xf32>
// CHECK: return
func.func @powf(%x: vector<8xf32>, %y: vector<8xf32>) -> vector<8xf32> {
  %0 = math.powf %x, %y : vector<8xf32>
  return %0 : vector<8xf32>
}

// f64 powers carry the logarithm as a sum of two doubles.
// CHECK-LABEL: @powf_f64
// CHECK-NOT: math.powf
// CHECK-NOT: call
// CHECK: math.fma {{.*}} : vector<4xf64>
// CHECK: return
func.func @powf_f64(%x: vector<4xf64>, %y: vector<4xf64>) -> vector<4xf64> {
  %0 = math.powf %x, %y : vector<4xf64>
  return %0 : vector<4xf64>
}

// CHECK-LABEL: @fpowi
// CHECK: arith.sitofp {{.*}} : vector<8xi32> to vector<8xf64>
// CHECK-NOT: math.fpowi
// CHECK: return
func.func @fpowi(%x: vector<8xf32>, %n: vector<8xi32>) -> vector<8xf32> {
  %0 = math.fpowi %x, %n : vector<8xf32>, vector<8xi32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @ipowi
// CHECK: scf.while
// CHECK: vector.reduction <or>
// CHECK: arith.muli
// CHECK: return
func.func @ipowi(%x: vector<4xi64>, %n: vector<4xi64>) -> vector<4xi64> {
  %0 = math.ipowi %x, %n : vector<4xi64>
  return %0 : vector<4xi64>
}

// CHECK-LABEL: @atan2
// CHECK: arith.divf
// CHECK-NOT: math.atan2
// CHECK: return
func.func @atan2(%y: vector<8xf32>, %x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.atan2 %y, %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @sincos
// CHECK: call @sinf
// CHECK: call @cosf
// CHECK-NOT: math.sincos
// CHECK: return
func.func @sincos(%x: vector<8xf32>) -> (vector<8xf32>, vector<8xf32>) {
  %0, %1 = math.sincos %x : vector<8xf32>
  return %0, %1 : vector<8xf32>, vector<8xf32>
}

// Exact for quotients that fit the mantissa; fmodf for the lanes beyond.
// CHECK-LABEL: @remf
// CHECK: arith.divf
// CHECK: math.trunc
// CHECK: %[[ANY:.*]] = vector.reduction <or>
// CHECK: scf.if %[[ANY]]
// CHECK: func.call @fmodf
// CHECK-NOT: arith.remf
// CHECK: return
func.func @remf(%x: vector<8xf32>, %y: vector<8xf32>) -> vector<8xf32> {
  %0 = arith.remf %x, %y : vector<8xf32>
  return %0 : vector<8xf32>
}

// Against a constant: one comparison and one select, which is one maxps.
// CHECK-LABEL: @relu
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.0
// CHECK-NEXT: %[[LESS:.*]] = arith.cmpf olt, %[[X:.*]], %[[ZERO]]
// CHECK-NEXT: %[[R:.*]] = arith.select %[[LESS]], %[[ZERO]], %[[X]]
// CHECK-NEXT: return %[[R]]
func.func @relu(%x: vector<8xf32>) -> vector<8xf32> {
  %zero = arith.constant dense<0.0> : vector<8xf32>
  %0 = arith.maximumf %x, %zero : vector<8xf32>
  return %0 : vector<8xf32>
}

// Against anything: a NaN of the first operand needs a select of its own.
// CHECK-LABEL: @minimum
// CHECK-NEXT: arith.cmpf olt
// CHECK-NEXT: %[[M:.*]] = arith.select
// CHECK-NEXT: %[[NAN:.*]] = arith.cmpf uno, %[[A:.*]], %[[A]]
// CHECK-NEXT: arith.select %[[NAN]], %[[A]], %[[M]]
// CHECK-NEXT: return
func.func @minimum(%a: vector<8xf32>, %b: vector<8xf32>) -> vector<8xf32> {
  %0 = arith.minimumf %a, %b : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @clampf
// CHECK-NOT: math.clampf
// CHECK: return
func.func @clampf(%x: vector<8xf32>, %a: vector<8xf32>, %b: vector<8xf32>) -> vector<8xf32> {
  %0 = math.clampf %x to [%a, %b] : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @classes
// CHECK: arith.cmpf uno
// CHECK: arith.cmpf oeq
// CHECK: arith.cmpf olt
// CHECK-NOT: math.is
// CHECK: return
func.func @classes(%x: vector<8xf32>) -> (vector<8xi1>, vector<8xi1>, vector<8xi1>) {
  %0 = math.isnan %x : vector<8xf32>
  %1 = math.isinf %x : vector<8xf32>
  %2 = math.isfinite %x : vector<8xf32>
  return %0, %1, %2 : vector<8xi1>, vector<8xi1>, vector<8xi1>
}
