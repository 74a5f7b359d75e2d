// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{target=cuda}" | filecheck %s
// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{target=cuda keep=conv,attention,matmul}" | filecheck %s --check-prefix=KEEP

// Attention with large heads is cuDNN's; its result follows the query. Few tokens with small heads, masks and f32 stay.
// CHECK-LABEL: func.func @attention
// CHECK: "kiln.aten"
// CHECK-SAME: null, 0.0, true]
// CHECK-SAME: follows = 0 : i64
// CHECK-SAME: enable_gqa\22: true, \22scale\22: 0.125
// CHECK-SAME: op = "aten.scaled_dot_product_attention.default"
// CHECK-SAME: reason = "cuDNN: attention with heads of 128 elements is faster there"
// CHECK-COUNT-3: "kiln.attention"
// KEEP-LABEL: func.func @attention
// KEEP-NOT: kiln.aten
func.func @attention(%q: tensor<2x8x512x128xbf16>, %k: tensor<2x4x512x128xbf16>, %v: tensor<2x4x512x128xbf16>,
    %a: tensor<2x8x512x64xbf16>, %m: tensor<512x512xi1>, %f: tensor<2x8x512x128xf32>)
    -> (tensor<2x8x512x128xbf16>, tensor<2x8x512x64xbf16>, tensor<2x8x512x128xbf16>, tensor<2x8x512x128xf32>) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true}
    : (tensor<2x8x512x128xbf16>, tensor<2x4x512x128xbf16>, tensor<2x4x512x128xbf16>) -> tensor<2x8x512x128xbf16>
  %1 = "kiln.attention"(%a, %a, %a) {scale = 1.250000e-01 : f64, causal = true}
    : (tensor<2x8x512x64xbf16>, tensor<2x8x512x64xbf16>, tensor<2x8x512x64xbf16>) -> tensor<2x8x512x64xbf16>
  %2 = "kiln.attention"(%q, %k, %v, %m) {scale = 1.250000e-01 : f64, causal = false}
    : (tensor<2x8x512x128xbf16>, tensor<2x4x512x128xbf16>, tensor<2x4x512x128xbf16>, tensor<512x512xi1>)
    -> tensor<2x8x512x128xbf16>
  %3 = "kiln.attention"(%f, %f, %f) {scale = 1.250000e-01 : f64, causal = false}
    : (tensor<2x8x512x128xf32>, tensor<2x8x512x128xf32>, tensor<2x8x512x128xf32>) -> tensor<2x8x512x128xf32>
  return %0, %1, %2, %3 : tensor<2x8x512x128xbf16>, tensor<2x8x512x64xbf16>, tensor<2x8x512x128xbf16>, tensor<2x8x512x128xf32>
}

// -----

// A product with nothing behind it, or whose rows are no whole lines; not where rows are few.
// CHECK-LABEL: func.func @product
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.linear.default"
// CHECK-SAME: reason = "cuBLAS: a product with nothing behind it is faster there"
// CHECK: reason = "cuBLAS: rows that are no whole lines are loaded faster there"
// CHECK: "kiln.matmul"
// KEEP-LABEL: func.func @product
// KEEP-NOT: kiln.aten
func.func @product(%x: tensor<4096x4104xbf16>, %w: tensor<4096x4104xbf16>, %y: tensor<16x4104xbf16>)
    -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<16x4096xbf16>) {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16>
  %1 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<4096x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 4096)>} : () -> tensor<4096x4096xbf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<4096x4096xbf16>) outs(%e : tensor<4096x4096xbf16>) {
  ^bb0(%c: bf16, %o: bf16):
    %r = arith.addf %c, %c : bf16
    linalg.yield %r : bf16
  } -> tensor<4096x4096xbf16>
  %3 = "kiln.matmul"(%y, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<16x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<16x4096xbf16>
  return %0, %2, %3 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>, tensor<16x4096xbf16>
}

// -----

// A bias goes into the call, whose weight is a view of one [K, N].
// CHECK-LABEL: func.func @bias
// CHECK-SAME: %[[X:.*]]: tensor<4096x1024xbf16>, %[[W:.*]]: tensor<1024x1024xbf16>, %[[B:.*]]: tensor<1024xbf16>)
// CHECK: %[[T:.*]] = "kiln.view"(%[[W]])
// CHECK-NEXT: %[[R:.*]] = "kiln.aten"(%[[X]], %[[T]], %[[B]])
// CHECK-SAME: reason = "cuBLAS: a product with nothing but a bias behind it is faster there"
// CHECK-NEXT: return %[[R]]
func.func @bias(%x: tensor<4096x1024xbf16>, %w: tensor<1024x1024xbf16>, %b: tensor<1024xbf16>) -> tensor<4096x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4096x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<4096x1024xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 1024)>} : () -> tensor<4096x1024xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4096x1024xbf16>, tensor<1024xbf16>) outs(%e : tensor<4096x1024xbf16>) {
  ^bb0(%c: bf16, %d: bf16, %o: bf16):
    %f = arith.extf %c : bf16 to f32
    %g = arith.extf %d : bf16 to f32
    %s = arith.addf %f, %g : f32
    %r = arith.truncf %s : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<4096x1024xbf16>
  return %1 : tensor<4096x1024xbf16>
}

// -----

// What is added is no bias: one number per row. It is a kernel's epilogue.
// CHECK-LABEL: func.func @column
// CHECK: "kiln.matmul"
func.func @column(%x: tensor<4096x1024xbf16>, %w: tensor<1024x1024xbf16>, %b: tensor<4096xbf16>) -> tensor<4096x1024xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<4096x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<4096x1024xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (4096, 1024)>} : () -> tensor<4096x1024xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4096x1024xbf16>, tensor<4096xbf16>) outs(%e : tensor<4096x1024xbf16>) {
  ^bb0(%c: bf16, %d: bf16, %o: bf16):
    %f = arith.extf %c : bf16 to f32
    %g = arith.extf %d : bf16 to f32
    %s = arith.addf %f, %g : f32
    %r = arith.truncf %s : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<4096x1024xbf16>
  return %1 : tensor<4096x1024xbf16>
}

// -----

// A gate and what it is multiplied with: both are calls, and their product a kernel.
// CHECK-LABEL: func.func @gate
// CHECK-COUNT-2: reason = "cuBLAS: two sums in one loop have not been measured to be faster"
// CHECK: linalg.generic
func.func @gate(%x: tensor<1024x4096xbf16>, %w: tensor<8192x4096xbf16>, %u: tensor<8192x4096xbf16>) -> tensor<1024x8192xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x4096xbf16>, tensor<8192x4096xbf16>) -> tensor<1024x8192xbf16>
  %1 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1024x4096xbf16>, tensor<8192x4096xbf16>) -> tensor<1024x8192xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (1024, 8192)>} : () -> tensor<1024x8192xbf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%0, %1 : tensor<1024x8192xbf16>, tensor<1024x8192xbf16>) outs(%e : tensor<1024x8192xbf16>) {
  ^bb0(%c: bf16, %d: bf16, %o: bf16):
    %s = arith.mulf %c, %d : bf16
    linalg.yield %s : bf16
  } -> tensor<1024x8192xbf16>
  return %2 : tensor<1024x8192xbf16>
}

// -----

// ATen adds a bias of cuDNN's convolutions in a pass of its own: it stays with what follows. PyTorch's kernels of depthwise
// ones take it.
// CHECK-LABEL: func.func @conv_bias
// CHECK: "kiln.aten"(%arg0, %arg1) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null,
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK: "kiln.aten"(%arg0, %arg2, %arg3) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, {\22operand\22: 2},
// CHECK-NOT: linalg.generic
// CHECK: return
// KEEP-LABEL: func.func @conv_bias
// KEEP-COUNT-2: kiln.conv
func.func @conv_bias(%x: tensor<1x8x8x8xbf16>, %w: tensor<8x8x3x3xbf16>, %d: tensor<8x1x5x5xbf16>, %b: tensor<8xbf16>)
    -> (tensor<1x8x8x8xbf16>, tensor<1x8x8x8xbf16>) {
  %e = "kiln.empty"() {shape = affine_map<() -> (1, 8, 8, 8)>} : () -> tensor<1x8x8x8xbf16>
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<1x8x8x8xbf16>, tensor<8x8x3x3xbf16>) -> tensor<1x8x8x8xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<1x8x8x8xbf16>, tensor<8xbf16>) outs(%e : tensor<1x8x8x8xbf16>) attrs = {conv_bias} {
  ^bb0(%c: bf16, %a: bf16, %o: bf16):
    %r = arith.addf %c, %a : bf16
    linalg.yield %r : bf16
  } -> tensor<1x8x8x8xbf16>
  %2 = "kiln.conv"(%x, %d) {stride = array<i64: 1, 1>, padding = array<i64: 2, 2>, dilation = array<i64: 1, 1>, groups = 8,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<1x8x8x8xbf16>, tensor<8x1x5x5xbf16>) -> tensor<1x8x8x8xbf16>
  %3 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%2, %b : tensor<1x8x8x8xbf16>, tensor<8xbf16>) outs(%e : tensor<1x8x8x8xbf16>) attrs = {conv_bias} {
  ^bb0(%c: bf16, %a: bf16, %o: bf16):
    %r = arith.addf %c, %a : bf16
    linalg.yield %r : bf16
  } -> tensor<1x8x8x8xbf16>
  return %1, %3 : tensor<1x8x8x8xbf16>, tensor<1x8x8x8xbf16>
}

// -----

// One tap over channels that lie together is a product.
// CHECK-LABEL: func.func @conv
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: channels lie too far apart"
// CHECK: "kiln.conv"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuDNN: channels lie too far apart"
// KEEP-LABEL: func.func @conv
// KEEP-COUNT-3: kiln.conv
func.func @conv(%x: tensor<1x64x8x8xbf16>, %w: tensor<32x64x3x3xbf16>, %p: tensor<32x64x1x1xbf16>)
    -> (tensor<1x32x8x8xbf16>, tensor<1x32x8x8xbf16>, tensor<1x32x8x8xbf16>) {
  %0 = "kiln.conv"(%x, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<1x64x8x8xbf16>, tensor<32x64x3x3xbf16>) -> tensor<1x32x8x8xbf16>
  %1 = "kiln.conv"(%x, %p) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (2048, 1, 256, 32)>}
    : (tensor<1x64x8x8xbf16>, tensor<32x64x1x1xbf16>) -> tensor<1x32x8x8xbf16>
  %2 = "kiln.conv"(%x, %p) {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1,
    transposed = false, output_padding = array<i64: 0, 0>}
    : (tensor<1x64x8x8xbf16>, tensor<32x64x1x1xbf16>) -> tensor<1x32x8x8xbf16>
  return %0, %1, %2 : tensor<1x32x8x8xbf16>, tensor<1x32x8x8xbf16>, tensor<1x32x8x8xbf16>
}

// -----

// With 64 rows what follows costs more behind a call than a kernel's loads, through tensor maps or pointers.
// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{target=cuda tensor-maps=true}" | filecheck %s --check-prefix=MAPS
// RUN: kiln-opt %s --split-input-file --pass-pipeline="choose-vendor{target=cuda tensor-maps=true arch=sm_100}" | filecheck %s --check-prefix=BLACKWELL

// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: kiln.aten
// CHECK: "kiln.matmul"
// CHECK: return
// MAPS-LABEL: func.func @few_rows
// MAPS-NOT: kiln.aten
// MAPS: "kiln.matmul"
// MAPS: return
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @few_rows(%x: tensor<64x4096xbf16>, %w: tensor<4096x4096xbf16>) -> tensor<64x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<64x4096xbf16>
  %1 = "kiln.empty"() {shape = affine_map<() -> (64, 4096)>} : () -> tensor<64x4096xbf16>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0 : tensor<64x4096xbf16>) outs(%1 : tensor<64x4096xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %3 = arith.negf %in : bf16
    linalg.yield %3 : bf16
  } -> tensor<64x4096xbf16>
  return %2 : tensor<64x4096xbf16>
}

// -----

// Products of one matrix become one kernel; a single one of these sizes is the library's.
// CHECK-LABEL: func.func @projections
// CHECK-NOT: kiln.aten
// CHECK-COUNT-2: "kiln.matmul"
// CHECK: return
// CHECK-LABEL: func.func @projection(
// CHECK: "kiln.aten"
func.func @projections(%x: tensor<2048x768xbf16>, %k: tensor<768x768xbf16>, %v: tensor<768x768xbf16>)
    -> (tensor<2048x768xbf16>, tensor<2048x768xbf16>) {
  %0 = "kiln.matmul"(%x, %k) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2048x768xbf16>, tensor<768x768xbf16>) -> tensor<2048x768xbf16>
  %1 = "kiln.matmul"(%x, %v) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2048x768xbf16>, tensor<768x768xbf16>) -> tensor<2048x768xbf16>
  return %0, %1 : tensor<2048x768xbf16>, tensor<2048x768xbf16>
}
func.func @projection(%x: tensor<2048x768xbf16>, %k: tensor<768x768xbf16>) -> tensor<2048x768xbf16> {
  %0 = "kiln.matmul"(%x, %k) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<2048x768xbf16>, tensor<768x768xbf16>) -> tensor<2048x768xbf16>
  return %0 : tensor<2048x768xbf16>
}

// -----

// A scale below zero: cuDNN would make inf of what a mask leaves out.
// CHECK-LABEL: func.func @negative_scale
// CHECK-NOT: kiln.aten
// CHECK: return
func.func @negative_scale(%q: tensor<2x8x512x128xbf16>) -> tensor<2x8x512x128xbf16> {
  %0 = "kiln.attention"(%q, %q, %q) {scale = -1.250000e-01 : f64, causal = true}
    : (tensor<2x8x512x128xbf16>, tensor<2x8x512x128xbf16>, tensor<2x8x512x128xbf16>) -> tensor<2x8x512x128xbf16>
  return %0 : tensor<2x8x512x128xbf16>
}

// -----

// Many tokens with small heads: as fast as cuDNN where tensor maps load the keys. With little work, in any case.
// CHECK-LABEL: func.func @small_heads
// CHECK-COUNT-3: "kiln.aten"
// CHECK: "kiln.attention"
// MAPS-LABEL: func.func @small_heads
// MAPS-COUNT-4: "kiln.attention"
!q = tensor<4x8x2048x64xbf16>
!k = tensor<4x8x2000x64xbf16>
!s = tensor<1x16x1024x64xbf16>
func.func @small_heads(%q: !q, %k: !k, %s: !s) -> (!q, !q, !q, !s) {
  %0 = "kiln.attention"(%q, %q, %q) {scale = 1.250000e-01 : f64, causal = false} : (!q, !q, !q) -> !q
  %1 = "kiln.attention"(%q, %k, %k) {scale = 1.250000e-01 : f64, causal = false} : (!q, !k, !k) -> !q
  %2 = "kiln.attention"(%q, %q, %q) {scale = 1.250000e-01 : f64, causal = true} : (!q, !q, !q) -> !q
  %3 = "kiln.attention"(%s, %s, %s) {scale = 1.250000e-01 : f64, causal = true} : (!s, !s, !s) -> !s
  return %0, %1, %2, %3 : !q, !q, !q, !s
}

// -----

// Logits of a vocabulary whose rows are no multiples of 16 bytes: cuBLAS is slow there. Operands with such rows are its.
// CHECK-LABEL: func.func @logits
// CHECK: "kiln.matmul"
// CHECK: "kiln.aten"
// CHECK-SAME: op = "aten.linear.default"
// CHECK: return
func.func @logits(%x: tensor<1x1024x1024xbf16>, %w: tensor<50257x1024xbf16>, %d: tensor<1024x50257xbf16>)
    -> (tensor<1x1024x50257xbf16>, tensor<1024x1024xbf16>) {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<1x1024x1024xbf16>, tensor<50257x1024xbf16>) -> tensor<1x1024x50257xbf16>
  %1 = "kiln.matmul"(%d, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<1024x50257xbf16>, tensor<50257x1024xbf16>) -> tensor<1024x1024xbf16>
  return %0, %1 : tensor<1x1024x50257xbf16>, tensor<1024x1024xbf16>
}

// -----

// GELU through tanh behind a bias goes into the call, whose leading dims are views; through erf it is a kernel's.
// CHECK-LABEL: func.func @gelu
// CHECK-SAME: %[[X:.*]]: tensor<2x1024x1024xbf16>, %[[W:.*]]: tensor<1024x4096xbf16>, %[[B:.*]]: tensor<4096xbf16>)
// CHECK: %[[T:.*]] = "kiln.view"(%[[X]])
// CHECK-NEXT: %[[R:.*]] = "kiln.aten"(%[[B]], %[[T]], %[[W]])
// CHECK-SAME: use_gelu
// CHECK-SAME: op = "aten._addmm_activation.default"
// CHECK-SAME: reason = "cuBLAS: GELU through tanh is part of its products"
// CHECK-NEXT: %[[V:.*]] = "kiln.view"(%[[R]])
// CHECK-NEXT: return %[[V]]
func.func @gelu(%x: tensor<2x1024x1024xbf16>, %w: tensor<1024x4096xbf16>, %b: tensor<4096xbf16>) -> tensor<2x1024x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<2x1024x1024xbf16>, tensor<1024x4096xbf16>) -> tensor<2x1024x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 1024, 4096)>} : () -> tensor<2x1024x4096xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%0, %b : tensor<2x1024x4096xbf16>, tensor<4096xbf16>) outs(%e : tensor<2x1024x4096xbf16>) {
  ^bb0(%c: bf16, %d: bf16, %o: bf16):
    %f = arith.extf %c : bf16 to f32
    %g = arith.extf %d : bf16 to f32
    %s = arith.addf %f, %g : f32
    %r = arith.truncf %s : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<2x1024x4096xbf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%1 : tensor<2x1024x4096xbf16>) outs(%e : tensor<2x1024x4096xbf16>) {
  ^bb0(%c: bf16, %o: bf16):
    %k0 = arith.constant 4.471500e-02 : f32
    %k1 = arith.constant 0.797884583 : f32
    %k2 = arith.constant 5.000000e-01 : f32
    %k3 = arith.constant 1.000000e+00 : f32
    %x0 = arith.extf %c : bf16 to f32
    %x2 = arith.mulf %x0, %x0 : f32
    %x3 = arith.mulf %x0, %x2 : f32
    %t0 = arith.mulf %k0, %x3 : f32
    %t1 = arith.addf %t0, %x0 : f32
    %t2 = arith.mulf %t1, %k1 : f32
    %t3 = math.tanh %t2 : f32
    %t4 = arith.addf %k3, %t3 : f32
    %t5 = arith.mulf %t4, %k2 : f32
    %t6 = arith.mulf %t5, %x0 : f32
    %r = arith.truncf %t6 : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<2x1024x4096xbf16>
  return %2 : tensor<2x1024x4096xbf16>
}

// -----

// The library's tanh is less exact than f32: GELU stays a kernel's.
// CHECK-LABEL: func.func @gelu_of_f32
// CHECK: op = "aten.{{(addmm|linear)}}.default"
// CHECK-NOT: use_gelu
// CHECK: math.tanh
func.func @gelu_of_f32(%x: tensor<2048x1024xf32>, %w: tensor<1024x4096xf32>, %b: tensor<4096xf32>) -> tensor<2048x4096xf32> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<2048x1024xf32>, tensor<1024x4096xf32>) -> tensor<2048x4096xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (2048, 4096)>} : () -> tensor<2048x4096xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<2048x4096xf32>, tensor<4096xf32>) outs(%e : tensor<2048x4096xf32>) {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %s = arith.addf %c, %d : f32
    linalg.yield %s : f32
  } -> tensor<2048x4096xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<2048x4096xf32>) outs(%e : tensor<2048x4096xf32>) {
  ^bb0(%x0: f32, %o: f32):
    %k0 = arith.constant 4.471500e-02 : f32
    %k1 = arith.constant 0.797884583 : f32
    %k2 = arith.constant 5.000000e-01 : f32
    %k3 = arith.constant 1.000000e+00 : f32
    %x2 = arith.mulf %x0, %x0 : f32
    %x3 = arith.mulf %x0, %x2 : f32
    %t0 = arith.mulf %k0, %x3 : f32
    %t1 = arith.addf %t0, %x0 : f32
    %t2 = arith.mulf %t1, %k1 : f32
    %t3 = math.tanh %t2 : f32
    %t4 = arith.addf %t3, %k3 : f32
    %h = arith.mulf %x0, %k2 : f32
    %y = arith.mulf %h, %t4 : f32
    linalg.yield %y : f32
  } -> tensor<2048x4096xf32>
  return %2 : tensor<2048x4096xf32>
}

// -----

// Almost: another factor inside of tanh.
// CHECK-LABEL: func.func @almost
// CHECK: "kiln.matmul"
func.func @almost(%x: tensor<2048x1024xbf16>, %w: tensor<1024x4096xbf16>, %b: tensor<4096xbf16>) -> tensor<2048x4096xbf16> {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = false}
    : (tensor<2048x1024xbf16>, tensor<1024x4096xbf16>) -> tensor<2048x4096xbf16>
  %e = "kiln.empty"() {shape = affine_map<() -> (2048, 4096)>} : () -> tensor<2048x4096xbf16>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<2048x4096xbf16>, tensor<4096xbf16>) outs(%e : tensor<2048x4096xbf16>) {
  ^bb0(%c: bf16, %d: bf16, %o: bf16):
    %s = arith.addf %c, %d : bf16
    linalg.yield %s : bf16
  } -> tensor<2048x4096xbf16>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<2048x4096xbf16>) outs(%e : tensor<2048x4096xbf16>) {
  ^bb0(%c: bf16, %o: bf16):
    %k0 = arith.constant 4.471500e-02 : f32
    %k1 = arith.constant 0.897884583 : f32
    %k2 = arith.constant 5.000000e-01 : f32
    %x0 = arith.extf %c : bf16 to f32
    %x2 = arith.mulf %x0, %x0 : f32
    %x3 = arith.mulf %x0, %x2 : f32
    %t0 = arith.mulf %k0, %x3 : f32
    %t1 = arith.addf %t0, %x0 : f32
    %t2 = arith.mulf %t1, %k1 : f32
    %t3 = math.tanh %t2 : f32
    %t5 = arith.mulf %t3, %k2 : f32
    %t6 = arith.addf %t5, %k2 : f32
    %t7 = arith.mulf %t6, %x0 : f32
    %r = arith.truncf %t7 : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<2048x4096xbf16>
  return %2 : tensor<2048x4096xbf16>
}

// -----

// A number of rows known at run time only: the library chooses then; not where weights are few.
// CHECK-LABEL: func.func @any_rows
// CHECK-SAME: %[[N:.*]]: index
// CHECK: "kiln.aten"(%{{.*}}, %{{.*}}, %[[N]])
// CHECK-SAME: reason = "cuBLAS: it chooses when the number of rows is known"
// CHECK-SAME: shapes = [#[[M:map.*]]], strides = [unit]
// CHECK: "kiln.matmul"
func.func @any_rows(%n: index {kiln.symbol = "n"}, %x: tensor<?x1024xbf16> {kiln.shape = affine_map<()[s0] -> (s0, 1024)>},
    %w: tensor<4096x1024xbf16>, %u: tensor<512x1024xbf16>) -> (tensor<?x4096xbf16>, tensor<?x512xbf16>)
    attributes {kiln.symbols = ["n"]} {
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<?x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<?x4096xbf16>
  %1 = "kiln.matmul"(%x, %u) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<?x1024xbf16>, tensor<512x1024xbf16>) -> tensor<?x512xbf16>
  return %0, %1 : tensor<?x4096xbf16>, tensor<?x512xbf16>
}

// -----

// Batches: a call, with operands either way round; heads of 16 bits, whose dims may not be one, are not.
// CHECK-LABEL: func.func @batch
// CHECK-SAME: %[[X:.*]]: tensor<64x512x256xbf16>, %[[Y:.*]]: tensor<64x512x256xbf16>,
// CHECK: %[[T:.*]] = "kiln.view"(%[[X]])
// CHECK: "kiln.aten"(%[[T]], %[[Y]])
// CHECK-SAME: op = "aten.bmm.default"
// CHECK-SAME: reason = "cuBLAS: batches of matrices are loaded faster there"
// CHECK: "kiln.matmul"
// CHECK: op = "aten.bmm.default"
// CHECK-SAME: reason = "cuBLAS: products of wide floats are faster there"
// CHECK: %[[R:.*]] = "kiln.view"
// CHECK-NEXT: return %{{.*}}, %{{.*}}, %[[R]]
func.func @batch(%x: tensor<64x512x256xbf16>, %y: tensor<64x512x256xbf16>, %h: tensor<8x16x512x64xbf16>,
    %f: tensor<8x16x512x64xf32>) -> (tensor<64x256x256xbf16>, tensor<8x16x512x512xbf16>, tensor<8x16x512x512xf32>) {
  %0 = "kiln.matmul"(%x, %y) {transpose_lhs = true, transpose_rhs = false}
    : (tensor<64x512x256xbf16>, tensor<64x512x256xbf16>) -> tensor<64x256x256xbf16>
  %1 = "kiln.matmul"(%h, %h) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<8x16x512x64xbf16>, tensor<8x16x512x64xbf16>) -> tensor<8x16x512x512xbf16>
  %2 = "kiln.matmul"(%f, %f) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<8x16x512x64xf32>, tensor<8x16x512x64xf32>) -> tensor<8x16x512x512xf32>
  return %0, %1, %2 : tensor<64x256x256xbf16>, tensor<8x16x512x512xbf16>, tensor<8x16x512x512xf32>
}

// -----

// One tile with a long sum leaves most of the GPU idle; with a short one it is soon done, and split-products has one whose
// sums have equal parts (512 of 32 terms; 16448 is 64 * 257).
// CHECK-LABEL: func.func @few_tiles
// CHECK: "kiln.matmul"
// CHECK: "kiln.aten"
// CHECK-SAME: reason = "cuBLAS: so few tiles leave most of the GPU idle, and it splits the sums"
// CHECK: "kiln.matmul"
func.func @few_tiles(%x: tensor<64x16448xbf16>, %w: tensor<64x16448xbf16>, %y: tensor<64x512xbf16>, %v: tensor<64x512xbf16>,
    %z: tensor<64x16384xbf16>) -> (tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>) {
  %2 = "kiln.matmul"(%z, %z) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x16384xbf16>, tensor<64x16384xbf16>) -> tensor<64x64xbf16>
  %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x16448xbf16>, tensor<64x16448xbf16>) -> tensor<64x64xbf16>
  %1 = "kiln.matmul"(%y, %v) {transpose_lhs = false, transpose_rhs = true}
    : (tensor<64x512xbf16>, tensor<64x512xbf16>) -> tensor<64x64xbf16>
  return %0, %1, %2 : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>
}

// -----

// Heads of 128 on Hopper, through tensor maps: with many tokens, and with few; something behind becomes a kernel behind it.
// Not with one tensor as key and value, many keys for few queries. Other chips have no such kernel.
// CHECK-LABEL: func.func @large_heads
// CHECK-COUNT-5: "kiln.aten"
// MAPS-LABEL: func.func @large_heads
// MAPS-COUNT-2: "kiln.attention"(%{{.*}}) {causal
// MAPS: "kiln.attention"(%{{.*}}) {alone, causal
// MAPS-COUNT-2: "kiln.aten"
// BLACKWELL-LABEL: func.func @large_heads
// BLACKWELL-COUNT-5: "kiln.aten"
!large = tensor<4x8x2048x128xbf16>
!few = tensor<1x8x512x128xbf16>
!many = tensor<1x8x4096x128xbf16>
func.func @large_heads(%q: !large, %k: !large, %v: !large, %s: !few, %t: !few, %u: !few, %m: !many, %n: !many)
    -> (!large, !few, !large, !large, !few) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true} : (!large, !large, !large) -> !large
  %1 = "kiln.attention"(%s, %t, %u) {scale = 1.250000e-01 : f64, causal = false} : (!few, !few, !few) -> !few
  %2 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = false} : (!large, !large, !large) -> !large
  %e = "kiln.empty"() {shape = affine_map<() -> (4, 8, 2048, 128)>} : () -> !large
  %3 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%2 : !large) outs(%e : !large) {
  ^bb0(%c: bf16, %o: bf16):
    %r = arith.addf %c, %c : bf16
    linalg.yield %r : bf16
  } -> !large
  %4 = "kiln.attention"(%q, %k, %k) {scale = 1.250000e-01 : f64, causal = false} : (!large, !large, !large) -> !large
  %5 = "kiln.attention"(%s, %m, %n) {scale = 1.250000e-01 : f64, causal = false} : (!few, !many, !many) -> !few
  return %0, %1, %3, %4, %5 : !large, !few, !large, !large, !few
}

// -----

// Heads of 65 to 127, which tensor maps pad: where their rows are multiples of 16 bytes.
// CHECK-LABEL: func.func @padded_heads
// CHECK-COUNT-3: "kiln.aten"
// MAPS-LABEL: func.func @padded_heads
// MAPS-COUNT-2: "kiln.attention"
// MAPS: "kiln.aten"
!eighty = tensor<4x8x2048x80xbf16>
!most = tensor<4x8x512x120xbf16>
!odd = tensor<4x8x2048x84xbf16>
func.func @padded_heads(%q: !eighty, %k: !eighty, %v: !eighty, %r: !most, %l: !most, %w: !most, %s: !odd, %m: !odd,
    %x: !odd) -> (!eighty, !most, !odd) {
  %0 = "kiln.attention"(%q, %k, %v) {scale = 1.250000e-01 : f64, causal = true} : (!eighty, !eighty, !eighty) -> !eighty
  %1 = "kiln.attention"(%r, %l, %w) {scale = 1.250000e-01 : f64, causal = false} : (!most, !most, !most) -> !most
  %2 = "kiln.attention"(%s, %m, %x) {scale = 1.250000e-01 : f64, causal = false} : (!odd, !odd, !odd) -> !odd
  return %0, %1, %2 : !eighty, !most, !odd
}

// -----

// Windows are cuDNN's, but for images of few channels, windows of single channels that move by one position, and little work.
// CHECK-LABEL: func.func @windows
// CHECK: "kiln.conv"(%arg0, %arg4)
// CHECK: "kiln.conv"(%arg0, %arg5)
// CHECK: "kiln.aten"(%arg0, %arg6) {{.*}}reason = "cuDNN: faster for windows of many channels and much work"
// CHECK: "kiln.conv"(%arg1, %arg7)
// CHECK: "kiln.conv"(%arg1, %arg8)
// CHECK: "kiln.aten"(%arg1, %arg9) {{.*}}reason = "cuDNN: faster for windows of many channels and much work"
// CHECK: "kiln.conv"(%arg2, %arg9)
// CHECK: "kiln.aten"(%arg3, %arg10) {{.*}}reason = "cuDNN: windows have been measured to be faster in a kernel of their own in 16 bits only"
// KEEP-LABEL: func.func @windows
// KEEP-COUNT-8: kiln.conv
func.func @windows(%x: tensor<64x3x32x32xbf16>, %y: tensor<64x64x28x28xbf16>, %one: tensor<1x64x28x28xbf16>,
    %z: tensor<64x64x28x28xf32>, %stem: tensor<32x3x3x3xbf16>, %patch: tensor<64x3x8x8xbf16>, %wide: tensor<64x3x7x7xbf16>,
    %d3: tensor<64x1x3x3xbf16>, %d7: tensor<64x1x7x7xbf16>, %w: tensor<64x64x3x3xbf16>, %f: tensor<64x1x3x3xf32>)
    -> (tensor<64x32x16x16xbf16>, tensor<64x64x4x4xbf16>, tensor<64x64x16x16xbf16>, tensor<64x64x28x28xbf16>,
        tensor<64x64x28x28xbf16>, tensor<64x64x28x28xbf16>, tensor<1x64x28x28xbf16>, tensor<64x64x28x28xf32>) {
  %0 = "kiln.conv"(%x, %stem) {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (8192, 1, 512, 32)>}
    : (tensor<64x3x32x32xbf16>, tensor<32x3x3x3xbf16>) -> tensor<64x32x16x16xbf16>
  %1 = "kiln.conv"(%x, %patch) {stride = array<i64: 8, 8>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (1024, 1, 256, 64)>}
    : (tensor<64x3x32x32xbf16>, tensor<64x3x8x8xbf16>) -> tensor<64x64x4x4xbf16>
  %2 = "kiln.conv"(%x, %wide) {stride = array<i64: 2, 2>, padding = array<i64: 3, 3>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (16384, 1, 1024, 64)>}
    : (tensor<64x3x32x32xbf16>, tensor<64x3x7x7xbf16>) -> tensor<64x64x16x16xbf16>
  %3 = "kiln.conv"(%y, %d3) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 64, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (50176, 1, 1792, 64)>}
    : (tensor<64x64x28x28xbf16>, tensor<64x1x3x3xbf16>) -> tensor<64x64x28x28xbf16>
  %4 = "kiln.conv"(%y, %d7) {stride = array<i64: 1, 1>, padding = array<i64: 3, 3>, dilation = array<i64: 1, 1>,
    groups = 64, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (50176, 1, 1792, 64)>}
    : (tensor<64x64x28x28xbf16>, tensor<64x1x7x7xbf16>) -> tensor<64x64x28x28xbf16>
  %5 = "kiln.conv"(%y, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (50176, 1, 1792, 64)>}
    : (tensor<64x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<64x64x28x28xbf16>
  %6 = "kiln.conv"(%one, %w) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 1, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (50176, 1, 1792, 64)>}
    : (tensor<1x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<1x64x28x28xbf16>
  %7 = "kiln.conv"(%z, %f) {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
    groups = 64, transposed = false, output_padding = array<i64: 0, 0>, strides = affine_map<() -> (50176, 1, 1792, 64)>}
    : (tensor<64x64x28x28xf32>, tensor<64x1x3x3xf32>) -> tensor<64x64x28x28xf32>
  return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<64x32x16x16xbf16>, tensor<64x64x4x4xbf16>, tensor<64x64x16x16xbf16>, tensor<64x64x28x28xbf16>, tensor<64x64x28x28xbf16>, tensor<64x64x28x28xbf16>, tensor<1x64x28x28xbf16>, tensor<64x64x28x28xf32>
}
