// RUN: kiln-opt --pass-pipeline="expand-vector-math" %s | filecheck %s

// Each math function of one operand becomes arith; only single instructions of the math dialect stay.

// CHECK-LABEL: @exp
// CHECK-NOT: math.exp 
// CHECK: arith.shrui
// CHECK-NOT: math.exp 
// CHECK: return
func.func @exp(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @exp2
// CHECK-NOT: math.exp2 
// CHECK: arith.shrui
// CHECK-NOT: math.exp2 
// CHECK: return
func.func @exp2(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.exp2 %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @expm1
// CHECK-NOT: math.expm1 
// CHECK: arith.shli
// CHECK-NOT: math.expm1 
// CHECK: return
func.func @expm1(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.expm1 %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @sinh
// CHECK-NOT: math.sinh 
// CHECK: arith.shrui
// CHECK-NOT: math.sinh 
// CHECK: return
func.func @sinh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.sinh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @cosh
// CHECK-NOT: math.cosh 
// CHECK: arith.divf
// CHECK-NOT: math.cosh 
// CHECK: return
func.func @cosh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.cosh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @tanh
// CHECK-NOT: math.tanh 
// CHECK: arith.divf
// CHECK-NOT: math.tanh 
// CHECK: return
func.func @tanh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.tanh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @log
// CHECK-NOT: math.log 
// CHECK: math.fma
// CHECK-NOT: math.log 
// CHECK: return
func.func @log(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.log %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @log2
// CHECK-NOT: math.log2 
// CHECK: math.fma
// CHECK-NOT: math.log2 
// CHECK: return
func.func @log2(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.log2 %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @log10
// CHECK-NOT: math.log10 
// CHECK: math.fma
// CHECK-NOT: math.log10 
// CHECK: return
func.func @log10(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.log10 %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @log1p
// CHECK-NOT: math.log1p 
// CHECK: math.fma
// CHECK-NOT: math.log1p 
// CHECK: return
func.func @log1p(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.log1p %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @asinh
// CHECK-NOT: math.asinh 
// CHECK: math.sqrt
// CHECK-NOT: math.asinh 
// CHECK: return
func.func @asinh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.asinh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @acosh
// CHECK-NOT: math.acosh 
// CHECK: math.sqrt
// CHECK-NOT: math.acosh 
// CHECK: return
func.func @acosh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.acosh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @atanh
// CHECK-NOT: math.atanh 
// CHECK: arith.divf
// CHECK-NOT: math.atanh 
// CHECK: return
func.func @atanh(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.atanh %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @sin
// CHECK-NOT: math.sin 
// CHECK: call @sinf
// CHECK-NOT: math.sin 
// CHECK: return
func.func @sin(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.sin %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @cos
// CHECK-NOT: math.cos 
// CHECK: call @cosf
// CHECK-NOT: math.cos 
// CHECK: return
func.func @cos(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.cos %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @tan
// CHECK-NOT: math.tan 
// CHECK: call @tanf
// CHECK-NOT: math.tan 
// CHECK: return
func.func @tan(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.tan %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @asin
// CHECK-NOT: math.asin 
// CHECK: math.sqrt
// CHECK-NOT: math.asin 
// CHECK: return
func.func @asin(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.asin %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @acos
// CHECK-NOT: math.acos 
// CHECK: math.sqrt
// CHECK-NOT: math.acos 
// CHECK: return
func.func @acos(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.acos %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @atan
// CHECK-NOT: math.atan 
// CHECK: arith.divf
// CHECK-NOT: math.atan 
// CHECK: return
func.func @atan(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.atan %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @erf
// CHECK-NOT: math.erf 
// CHECK: math.fma
// CHECK-NOT: math.erf 
// CHECK: return
func.func @erf(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.erf %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @erfc
// CHECK-NOT: math.erfc 
// CHECK: arith.divf
// CHECK-NOT: math.erfc 
// CHECK: return
func.func @erfc(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.erfc %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @rsqrt
// CHECK-NOT: math.rsqrt 
// CHECK: arith.divf
// CHECK-NOT: math.rsqrt 
// CHECK: return
func.func @rsqrt(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.rsqrt %x : vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: @cbrt
// CHECK-NOT: math.cbrt 
// CHECK: arith.divui
// CHECK-NOT: math.cbrt 
// CHECK: return
func.func @cbrt(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = math.cbrt %x : vector<8xf32>
  return %0 : vector<8xf32>
}
