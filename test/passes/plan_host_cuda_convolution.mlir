// RUN: kiln-opt %s --pass-pipeline="plan-host{device=cuda:0}" | filecheck %s
// RUN: kiln-opt %s --pass-pipeline="plan-host" | filecheck %s --check-prefix=CPU

// A convolution without a bias whose tensors lie alike is a launch, on the workspace. One whose weight ATen would copy
// first stays a call, and so do a transposed one and one whose padding is known only at run time.
// CHECK-DAG: #[[IMAGE:.*]] = affine_map<() -> (2, 16, 9, 9)>
// CHECK-DAG: #[[WEIGHT:.*]] = affine_map<() -> (16, 16, 3, 3)>
// CHECK: kind = "workspace"
// CHECK: "kiln.launch"
// CHECK-SAME: convolution = {channels_last = true, dilation = array<i64: 1, 1>, groups = 1 : i64, image = #[[IMAGE]],
// CHECK-SAME: padding = array<i64: 1, 1>, result = #[[IMAGE]], stride = array<i64: 1, 1>, weight = #[[WEIGHT]]}
// CHECK-SAME: kernel = "cudnnBackendExecute"
// CHECK-SAME: reason = "cuDNN: faster"
// CHECK: "kiln.launch"
// CHECK-SAME: kernel = "cudnnBackendExecute"
// CHECK: "kiln.call"
// CHECK-SAME: false, [0, 0], 1]
// CHECK: "kiln.call"
// CHECK-SAME: true, [0, 0], 1]
// CHECK: "kiln.call"
// CHECK-SAME: sym
// CPU-COUNT-5: "kiln.call"
func.func @main(%x: tensor<2x16x9x9xbf16> {kiln.strides = affine_map<() -> (1296, 1, 144, 16)>},
    %w: tensor<16x16x3x3xbf16> {kiln.strides = affine_map<() -> (144, 1, 48, 16)>}, %p: tensor<16x16x3x3xbf16>)
    -> tensor<2x16x9x9xbf16> {
  %0 = "kiln.aten"(%x, %w) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]",
    kwargs = "{}", op = "aten.convolution.default", pure = true, reason = "cuDNN: faster",
    shapes = [affine_map<() -> (2, 16, 9, 9)>], strides = [affine_map<() -> (1296, 1, 144, 16)>]}
    : (tensor<2x16x9x9xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x9x9xbf16>
  %1 = "kiln.aten"(%0, %w) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]",
    kwargs = "{}", op = "aten.convolution.default", pure = true,
    shapes = [affine_map<() -> (2, 16, 9, 9)>], strides = [affine_map<() -> (1296, 1, 144, 16)>]}
    : (tensor<2x16x9x9xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x9x9xbf16>
  %2 = "kiln.aten"(%1, %p) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null, [1, 1], [1, 1], [1, 1], false, [0, 0], 1]",
    kwargs = "{}", op = "aten.convolution.default", pure = true,
    shapes = [affine_map<() -> (2, 16, 9, 9)>], strides = [affine_map<() -> (1296, 1, 144, 16)>]}
    : (tensor<2x16x9x9xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x9x9xbf16>
  %3 = "kiln.aten"(%2, %w) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null, [1, 1], [1, 1], [1, 1], true, [0, 0], 1]",
    kwargs = "{}", op = "aten.convolution.default", pure = true,
    shapes = [affine_map<() -> (2, 16, 9, 9)>], strides = [affine_map<() -> (1296, 1, 144, 16)>]}
    : (tensor<2x16x9x9xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x9x9xbf16>
  %4 = "kiln.aten"(%3, %w) {args = "[{\22operand\22: 0}, {\22operand\22: 1}, null, [1, 1], [{\22sym\22: 0}, 1], [1, 1], false, [0, 0], 1]",
    kwargs = "{}", op = "aten.convolution.default", pure = true,
    shapes = [affine_map<() -> (2, 16, 9, 9)>], strides = [affine_map<() -> (1296, 1, 144, 16)>]}
    : (tensor<2x16x9x9xbf16>, tensor<16x16x3x3xbf16>) -> tensor<2x16x9x9xbf16>
  return %4 : tensor<2x16x9x9xbf16>
}
