// RUN: kiln-opt --pass-pipeline=drop-roundings --split-input-file %s | filecheck %s
// RUN: kiln-opt --pass-pipeline="drop-roundings{sums-only=true}" --split-input-file %s | filecheck %s --check-prefix=BIAS

// A chain: one rounding, where the result is stored. Sums of a product come as they are.

// CHECK-LABEL: func.func @product
// CHECK: %[[SUMS:[a-z0-9]+]] = "kiln.matmul"{{.*}} -> tensor<8x8xf32>
// CHECK: linalg.generic {{.*}} ins(%[[SUMS]] : tensor<8x8xf32>) outs(%{{.*}} : tensor<8x8xf32>)
// CHECK-NEXT: ^bb0(%[[IN:[a-z0-9_]+]]: f32, %{{.*}}: f32):
// CHECK-NEXT: %[[EXP:[a-z0-9]+]] = math.exp %[[IN]] : f32
// CHECK-NEXT: linalg.yield %[[EXP]] : f32
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<8x8xbf16>)
// CHECK-NOT: arith.extf
// CHECK: arith.subf
// CHECK-NEXT: arith.truncf {{.*}} fastmath<contract> : f32 to bf16
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @product(%x: tensor<8x8xbf16>, %y: tensor<8x8xbf16>) -> tensor<8x8xbf16> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<8x8xbf16>, %b: tensor<8x8xbf16>):
    %one = arith.constant 1.0 : f32
    %e = "kiln.empty"() {shape = affine_map<() -> (8, 8)>} : () -> tensor<8x8xbf16>
    %p = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<8x8xbf16>) outs(%e : tensor<8x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8x8xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<8x8xbf16>) outs(%e : tensor<8x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.subf %3, %one : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8x8xbf16>
    "kiln.yield"(%2) : (tensor<8x8xbf16>) -> ()
  }) {kind = "matmul", name = "exp_sub"} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  return %0 : tensor<8x8xbf16>
}

// -----

// What is stored is rounded for its readers in the fusion as well, also through a view.

// CHECK-LABEL: func.func @stored
// CHECK: math.exp
// CHECK-NEXT: arith.truncf {{.*}} : f32 to f16
// CHECK: "kiln.view"{{.*}} (tensor<8xf16>) -> tensor<8xf16>
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-NEXT: math.sin
#id = affine_map<(d0) -> (d0)>
func.func @stored(%x: tensor<8xf16>) -> (tensor<8xf16>, tensor<8xf16>) {
  %0:2 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf16>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf16>) outs(%e : tensor<8xf16>) {
    ^bb0(%in: f16, %out: f16):
      %3 = arith.extf %in : f16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to f16
      linalg.yield %5 : f16
    } -> tensor<8xf16>
    %v = "kiln.view"(%1) {map = affine_map<(d0) -> (7 - d0)>, shape = affine_map<() -> (8)>} : (tensor<8xf16>) -> tensor<8xf16>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%v : tensor<8xf16>) outs(%e : tensor<8xf16>) {
    ^bb0(%in: f16, %out: f16):
      %3 = arith.extf %in : f16 to f32
      %4 = math.sin %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to f16
      linalg.yield %5 : f16
    } -> tensor<8xf16>
    "kiln.yield"(%1, %2) : (tensor<8xf16>, tensor<8xf16>) -> ()
  }) {kind = "pointwise", name = "exp_sin"} : (tensor<8xf16>) -> (tensor<8xf16>, tensor<8xf16>)
  return %0#0, %0#1 : tensor<8xf16>, tensor<8xf16>
}

// -----

// A cast that the program asks for stays. An op on bf16 itself computes in f32, and needs no rounding.

// CHECK-LABEL: func.func @asked
// CHECK: arith.truncf %{{[a-z0-9_]+}} : f32 to bf16
// CHECK: %[[LEFT:[a-z0-9]+]] = arith.extf %{{.*}} : bf16 to f32
// CHECK-NEXT: %[[RIGHT:[a-z0-9]+]] = arith.extf %{{.*}} : bf16 to f32
// CHECK-NEXT: %[[SUM:[a-z0-9]+]] = arith.addf %[[LEFT]], %[[RIGHT]] : f32
// CHECK-NEXT: arith.subf %{{.*}}, %[[SUM]] : f32
#id = affine_map<(d0) -> (d0)>
func.func @asked(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %3 = arith.truncf %in : f32 to bf16
      linalg.yield %3 : bf16
    } -> tensor<8xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%a, %1 : tensor<8xf32>, tensor<8xbf16>) outs(%f : tensor<8xf32>) {
    ^bb0(%in: f32, %rounded: bf16, %out: f32):
      %3 = arith.addf %rounded, %rounded : bf16
      %4 = arith.extf %3 : bf16 to f32
      %5 = arith.subf %in, %4 : f32
      linalg.yield %5 : f32
    } -> tensor<8xf32>
    "kiln.yield"(%2) : (tensor<8xf32>) -> ()
  }) {kind = "pointwise", name = "asked"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// What is compared with another value is what eager compares, from the first op on; a clamp is none of that.

// CHECK-LABEL: func.func @decides
// CHECK: math.exp
// CHECK-NEXT: arith.truncf
// CHECK: math.sin
// CHECK-NEXT: arith.truncf
// CHECK: arith.cmpf ogt, %{{.*}}, %{{.*}} : f32
// CHECK-LABEL: func.func @clamps
// CHECK: math.exp
// CHECK-NOT: arith.truncf
// CHECK: arith.cmpf ogt, %{{.*}}, %{{.*}} : f32
// CHECK: arith.select %{{.*}} : f32
// CHECK: arith.truncf
#id = affine_map<(d0) -> (d0)>
func.func @decides(%x: tensor<8xbf16>, %y: tensor<8xbf16>) -> tensor<8xi1> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<8xbf16>, %b: tensor<8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xi1>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      %6 = arith.extf %5 : bf16 to f32
      %7 = math.sin %6 : f32
      %8 = arith.truncf %7 fastmath<contract> : f32 to bf16
      linalg.yield %8 : bf16
    } -> tensor<8xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%1, %b : tensor<8xbf16>, tensor<8xbf16>) outs(%f : tensor<8xi1>) {
    ^bb0(%in: bf16, %other: bf16, %out: i1):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.extf %other : bf16 to f32
      %5 = arith.cmpf ogt, %3, %4 : f32
      linalg.yield %5 : i1
    } -> tensor<8xi1>
    "kiln.yield"(%2) : (tensor<8xi1>) -> ()
  }) {kind = "pointwise", name = "decides"} : (tensor<8xbf16>, tensor<8xbf16>) -> tensor<8xi1>
  return %0 : tensor<8xi1>
}

func.func @clamps(%x: tensor<8xbf16>) -> tensor<8xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%1 : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %most = arith.constant 6.0 : bf16
      %3 = arith.cmpf ogt, %in, %most : bf16
      %4 = arith.select %3, %most, %in : bf16
      linalg.yield %4 : bf16
    } -> tensor<8xbf16>
    "kiln.yield"(%2) : (tensor<8xbf16>) -> ()
  }) {kind = "pointwise", name = "clamps"} : (tensor<8xbf16>) -> tensor<8xbf16>
  return %0 : tensor<8xbf16>
}

// -----

// The largest element, stored: another kernel may look for it. A maximum that is only subtracted is nobody's business.

// CHECK-LABEL: func.func @stored_maximum
// CHECK: math.exp
// CHECK-NEXT: arith.truncf
// CHECK: arith.maximumf
// CHECK-LABEL: func.func @subtracted_maximum
// CHECK: math.exp
// CHECK-NEXT: linalg.yield
// CHECK: arith.maximumf
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#each = affine_map<(d0) -> (d0)>
func.func @stored_maximum(%x: tensor<8x8xbf16>) -> tensor<8xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8x8xbf16>):
    %low = arith.constant 0xFF800000 : f32
    %e = "kiln.empty"() {shape = affine_map<() -> (8, 8)>} : () -> tensor<8x8xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %g = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x8xbf16>) outs(%e : tensor<8x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8x8xbf16>
    %fill = linalg.generic {indexing_maps = [#each], iterator_types = ["parallel"]} outs(%f : tensor<8xf32>) {
    ^bb0(%out: f32):
      linalg.yield %low : f32
    } -> tensor<8xf32>
    %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<8x8xbf16>) outs(%fill : tensor<8xf32>) {
    ^bb0(%in: bf16, %most: f32):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.maximumf %most, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel"]} ins(%2 : tensor<8xf32>) outs(%g : tensor<8xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %3 = arith.truncf %in fastmath<contract> : f32 to bf16
      linalg.yield %3 : bf16
    } -> tensor<8xbf16>
    "kiln.yield"(%r) : (tensor<8xbf16>) -> ()
  }) {kind = "reduction", name = "amax"} : (tensor<8x8xbf16>) -> tensor<8xbf16>
  return %0 : tensor<8xbf16>
}

func.func @subtracted_maximum(%x: tensor<8x8xbf16>) -> tensor<8x8xbf16> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8x8xbf16>):
    %low = arith.constant 0xFF800000 : f32
    %e = "kiln.empty"() {shape = affine_map<() -> (8, 8)>} : () -> tensor<8x8xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xf32>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x8xbf16>) outs(%e : tensor<8x8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8x8xbf16>
    %fill = linalg.generic {indexing_maps = [#each], iterator_types = ["parallel"]} outs(%f : tensor<8xf32>) {
    ^bb0(%out: f32):
      linalg.yield %low : f32
    } -> tensor<8xf32>
    %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<8x8xbf16>) outs(%fill : tensor<8xf32>) {
    ^bb0(%in: bf16, %most: f32):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.maximumf %most, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %2 : tensor<8x8xbf16>, tensor<8xf32>) outs(%e : tensor<8x8xbf16>) {
    ^bb0(%in: bf16, %most: f32, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.subf %3, %most : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8x8xbf16>
    "kiln.yield"(%r) : (tensor<8x8xbf16>) -> ()
  }) {kind = "reduction", name = "shifted"} : (tensor<8x8xbf16>) -> tensor<8x8xbf16>
  return %0 : tensor<8x8xbf16>
}

// -----

// A concatenation of what is computed with what is not: the latter is extended.

// CHECK-LABEL: func.func @cat
// CHECK: math.exp
// CHECK-NEXT: linalg.yield
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK-NEXT: linalg.yield
// CHECK: "kiln.cat"{{.*}} (tensor<?xf32>, tensor<?xf32>{{.*}} -> tensor<?xf32>
// CHECK: arith.negf %{{.*}} : f32
// CHECK-NEXT: arith.truncf %{{.*}} fastmath<contract> : f32 to bf16
#id = affine_map<(d0) -> (d0)>
func.func @cat(%x: tensor<?xbf16> {kiln.shape = affine_map<()[s0] -> (s0)>}, %n: index {kiln.symbol = 0 : i64}) -> tensor<?xbf16> {
  %0 = "kiln.fusion"(%x, %n) ({
  ^bb0(%a: tensor<?xbf16>, %s: index):
    %e = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0)>} : (index) -> tensor<?xbf16>
    %f = "kiln.empty"(%s) {shape = affine_map<()[s0] -> (s0 * 2)>} : (index) -> tensor<?xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<?xbf16>) outs(%e : tensor<?xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<?xbf16>
    %c = "kiln.cat"(%1, %a, %s) {dim = 0 : i64, shape = affine_map<()[s0] -> (s0 * 2)>} : (tensor<?xbf16>, tensor<?xbf16>, index) -> tensor<?xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%c : tensor<?xbf16>) outs(%f : tensor<?xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.negf %in : bf16
      linalg.yield %3 : bf16
    } -> tensor<?xbf16>
    "kiln.yield"(%2) : (tensor<?xbf16>) -> ()
  }) {kind = "pointwise", name = "cat", shapes = [affine_map<()[s0] -> (s0 * 2)>]} : (tensor<?xbf16>, index) -> tensor<?xbf16>
  return %0 : tensor<?xbf16>
}

// -----

// What the program's op adds to a product is added to its sums, also before something that decides, and where eager's
// roundings are asked for. A product of its own has eager's rounding there.

// CHECK-LABEL: func.func @added
// CHECK: "kiln.matmul"{{.*}} -> tensor<4x4xf32>
// CHECK: "kiln.matmul"{{.*}} -> tensor<4x4xbf16>
// CHECK: arith.addf %{{.*}} : f32
// CHECK-NEXT: arith.truncf %{{.*}} fastmath<contract> : f32 to bf16
// CHECK: arith.cmpf oge
// BIAS-LABEL: func.func @added
// BIAS: "kiln.matmul"{{.*}} -> tensor<4x4xf32>
// BIAS: "kiln.matmul"{{.*}} -> tensor<4x4xbf16>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @added(%x: tensor<4x4xbf16>, %y: tensor<4x4xbf16>) -> tensor<4x4xi1> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<4x4xbf16>, %b: tensor<4x4xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xi1>
    %p = "kiln.matmul"(%a, %b) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
    %q = "kiln.matmul"(%a, %a) {transpose_lhs = false, transpose_rhs = false} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %b : tensor<4x4xbf16>, tensor<4x4xbf16>) outs(%e : tensor<4x4xbf16>) attrs = {adds_to_product} {
    ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.extf %in_0 : bf16 to f32
      %5 = arith.addf %3, %4 : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<4x4xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %q : tensor<4x4xbf16>, tensor<4x4xbf16>) outs(%f : tensor<4x4xi1>) {
    ^bb0(%in: bf16, %in_0: bf16, %out: i1):
      %3 = arith.cmpf oge, %in, %in_0 : bf16
      linalg.yield %3 : i1
    } -> tensor<4x4xi1>
    "kiln.yield"(%2) : (tensor<4x4xi1>) -> ()
  }) {kind = "matmul", name = "added"} : (tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xi1>
  return %0 : tensor<4x4xi1>
}

// -----

// A product that is added up from parts rounds once, too: behind what the program's op adds, also before a decision.

// CHECK-LABEL: func.func @added_to_parts
// CHECK-NOT: truncf
// CHECK: attrs = {rounds_sums}
// CHECK-NOT: truncf
// CHECK: attrs = {adds_to_product}
// CHECK: arith.truncf %{{.*}} fastmath<contract> : f32 to bf16
// CHECK: arith.cmpf oge
// BIAS-LABEL: func.func @added_to_parts
// BIAS-NOT: truncf
// BIAS: attrs = {adds_to_product}
// BIAS: arith.truncf
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @added_to_parts(%x: tensor<4x4xf32>, %y: tensor<4x4xbf16>) -> tensor<4x4xi1> {
  %0 = "kiln.fusion"(%x, %y) ({
  ^bb0(%a: tensor<4x4xf32>, %b: tensor<4x4xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xbf16>
    %f = "kiln.empty"() {shape = affine_map<() -> (4, 4)>} : () -> tensor<4x4xi1>
    %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x4xf32>) outs(%e : tensor<4x4xbf16>) attrs = {rounds_sums} {
    ^bb0(%in: f32, %out: bf16):
      %3 = arith.truncf %in fastmath<contract> : f32 to bf16
      linalg.yield %3 : bf16
    } -> tensor<4x4xbf16>
    %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%p, %b : tensor<4x4xbf16>, tensor<4x4xbf16>) outs(%e : tensor<4x4xbf16>) attrs = {adds_to_product} {
    ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = arith.extf %in_0 : bf16 to f32
      %5 = arith.addf %3, %4 : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<4x4xbf16>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%1, %b : tensor<4x4xbf16>, tensor<4x4xbf16>) outs(%f : tensor<4x4xi1>) {
    ^bb0(%in: bf16, %in_0: bf16, %out: i1):
      %3 = arith.cmpf oge, %in, %in_0 : bf16
      linalg.yield %3 : i1
    } -> tensor<4x4xi1>
    "kiln.yield"(%2) : (tensor<4x4xi1>) -> ()
  }) {kind = "pointwise", name = "added_to_parts"} : (tensor<4x4xf32>, tensor<4x4xbf16>) -> tensor<4x4xi1>
  return %0 : tensor<4x4xi1>
}

// -----

// A quotient that becomes an integer is asked for as eager rounds it; one that is only stored is not.

// CHECK-LABEL: func.func @quotients
// CHECK: arith.divf %{{.*}}, %{{.*}} {kiln.exact} : f32
// CHECK: arith.fptosi
// CHECK: arith.divf %{{.*}}, %{{.*}} : f32
#id = affine_map<(d0) -> (d0)>
func.func @quotients(%x: tensor<4xf32>) -> (tensor<4xi64>, tensor<4xf32>) {
  %0:2 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xi64>
    %f = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
    %c = arith.constant 3.0 : f32
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<4xf32>) outs(%e : tensor<4xi64>) {
    ^bb0(%in: f32, %out: i64):
      %3 = arith.divf %in, %c : f32
      %4 = arith.fptosi %3 : f32 to i64
      linalg.yield %4 : i64
    } -> tensor<4xi64>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<4xf32>) outs(%f : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %3 = arith.divf %in, %c : f32
      linalg.yield %3 : f32
    } -> tensor<4xf32>
    "kiln.yield"(%1, %2) : (tensor<4xi64>, tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "quotients"} : (tensor<4xf32>) -> (tensor<4xi64>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xi64>, tensor<4xf32>
}

// -----

// What one kernel stores, another computes again, in groups: both round it.

// CHECK-LABEL: func.func @in_groups
// CHECK: math.exp
// CHECK-NEXT: arith.truncf
// CHECK: "kiln.fusion"
// CHECK: math.exp
// CHECK-NEXT: arith.truncf
// CHECK: math.sin
#each = affine_map<(d0) -> (d0)>
#group = affine_map<(d0, d1) -> (d0, d1)>
func.func @in_groups(%x: tensor<8xbf16>) -> (tensor<8xbf16>, tensor<2x4xbf16>) {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xbf16>):
    %e = "kiln.empty"() {shape = affine_map<() -> (8)>} : () -> tensor<8xbf16>
    %1 = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel"]} ins(%a : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<8xbf16>
    "kiln.yield"(%1) : (tensor<8xbf16>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<8xbf16>) -> tensor<8xbf16>
  %1 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<8xbf16>):
    %v = "kiln.view"(%a) {map = affine_map<(d0, d1) -> (d0 * 4 + d1)>, shape = affine_map<() -> (2, 4)>} : (tensor<8xbf16>) -> tensor<2x4xbf16>
    %e = "kiln.empty"() {shape = affine_map<() -> (2, 4)>} : () -> tensor<2x4xbf16>
    %2 = linalg.generic {indexing_maps = [#group, #group], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<2x4xbf16>) outs(%e : tensor<2x4xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %3 = arith.extf %in : bf16 to f32
      %4 = math.exp %3 : f32
      %5 = arith.truncf %4 fastmath<contract> : f32 to bf16
      linalg.yield %5 : bf16
    } -> tensor<2x4xbf16>
    %3 = linalg.generic {indexing_maps = [#group, #group], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<2x4xbf16>) outs(%e : tensor<2x4xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %4 = arith.extf %in : bf16 to f32
      %5 = math.sin %4 : f32
      %6 = arith.truncf %5 fastmath<contract> : f32 to bf16
      linalg.yield %6 : bf16
    } -> tensor<2x4xbf16>
    "kiln.yield"(%3) : (tensor<2x4xbf16>) -> ()
  }) {kind = "pointwise", name = "sin"} : (tensor<8xbf16>) -> tensor<2x4xbf16>
  return %0, %1 : tensor<8xbf16>, tensor<2x4xbf16>
}
