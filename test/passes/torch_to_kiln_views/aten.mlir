// RUN: kiln-opt %s --split-input-file --pass-pipeline="convert-torch-to-kiln" | filecheck %s

// Arguments are written by the types of PyTorch's schema: 6 is a dtype here, 3 an int.
// CHECK-LABEL: func.func @keywords
// CHECK: "kiln.aten"() {args = "[[2, 3]]"
// CHECK-SAME: dtype
// CHECK-SAME: float32
// CHECK-SAME: op = "aten.randn.default", pure = false
func.func @keywords() -> !torch.vtensor<[2,3],f32> {
  %none = torch.constant.none
  %i2 = torch.constant.int 2
  %i3 = torch.constant.int 3
  %f32 = torch.constant.int 6
  %size = torch.prim.ListConstruct %i2, %i3 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.randn %size, %f32, %none, %none, %none : !torch.list<int>, !torch.int, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}

// -----

// Symbols: one as it is, an expression as text over the call's own operands.
// CHECK-LABEL: func.func @symbols
// CHECK-SAME: %[[A:[a-z0-9]*]]: index
// CHECK-SAME: %[[B:[a-z0-9]*]]: index
// CHECK: "kiln.aten"(%[[B]])
// CHECK-SAME: sym
// CHECK-SAME: expr
// CHECK-SAME: s0 * 2
func.func @symbols(%a: !torch.int {kiln.symbol = "a"}, %b: !torch.int {kiln.symbol = "b"}) -> !torch.vtensor<[?,?],f32> attributes {kiln.symbols = ["a", "b"]} {
  %none = torch.constant.none
  %i2 = torch.constant.int 2
  %twice = torch.aten.mul.int %b, %i2 : !torch.int, !torch.int -> !torch.int
  %size = torch.prim.ListConstruct %b, %twice : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.randn %size, %none, %none, %none, %none {kiln.shapes = [affine_map<()[s0, s1] -> (s1, s1 * 2)>]} : !torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor<[?,?],f32>
  return %0 : !torch.vtensor<[?,?],f32>
}

// -----

// A size that the op itself finds is an index result, and a symbol from then on.
// CHECK-LABEL: func.func @unbacked
// CHECK: %[[N:.*]]:2 = "kiln.aten"(%{{.*}}) {
// CHECK-SAME: op = "aten.nonzero.default"
// CHECK-SAME: unbacked = [array<i64: 0, 0>], unbacked_names = ["u0"]
// CHECK-SAME: -> (tensor<?x1xi64>, index)
// CHECK: "kiln.view"(%[[N]]#0, %[[N]]#1)
func.func @unbacked(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[?],si64> attributes {kiln.symbols = ["u0"]} {
  %i1 = torch.constant.int 1
  %0 = torch.aten.nonzero %x {kiln.shapes = [affine_map<()[s0] -> (s0, 1)>], kiln.unbacked = ["u0"]} : !torch.vtensor<[4],f32> -> !torch.vtensor<[?,1],si64>
  %1 = torch.aten.squeeze.dim %0, %i1 {kiln.shapes = [affine_map<()[s0] -> (s0)>]} : !torch.vtensor<[?,1],si64>, !torch.int -> !torch.vtensor<[?],si64>
  return %1 : !torch.vtensor<[?],si64>
}

// -----

// Integer results that nothing reads need no symbols: sizes that inputs decide are written where they are read.
// CHECK-LABEL: func.func @integers
// CHECK: %[[R:.*]]:5 = "kiln.aten"
// CHECK-SAME: op = "aten._scaled_dot_product_cudnn_attention.default"
// CHECK-SAME: grouped queries with a dynamic number of heads
// CHECK: return %[[R]]#0
func.func @integers(
    %q: !torch.vtensor<[1,?,8,8],bf16> {kiln.shape = affine_map<()[s0, s1] -> (1, s0, 8, 8)>},
    %k: !torch.vtensor<[1,?,8,8],bf16> {kiln.shape = affine_map<()[s0, s1] -> (1, s1, 8, 8)>},
    %a: !torch.int {kiln.symbol = "s0"}, %b: !torch.int {kiln.symbol = "s1"})
    -> !torch.vtensor<[1,?,8,8],bf16> attributes {kiln.symbols = ["s0", "s1"]} {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %true = torch.constant.bool true
  %zero = torch.constant.float 0.0
  %0:9 = torch.operator "torch.aten._scaled_dot_product_cudnn_attention"(%q, %k, %k, %none, %false, %zero, %true, %false, %none)
    {kiln.shapes = [affine_map<()[s0, s1] -> (1, s0, 8, 8)>, affine_map<() -> (0)>, unit, unit, unit, unit, affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> (0)>]}
    : (!torch.vtensor<[1,?,8,8],bf16>, !torch.vtensor<[1,?,8,8],bf16>, !torch.vtensor<[1,?,8,8],bf16>, !torch.none, !torch.bool, !torch.float, !torch.bool, !torch.bool, !torch.none)
    -> (!torch.vtensor<[1,?,8,8],bf16>, !torch.vtensor<[0],f32>, !torch.none, !torch.none, !torch.int, !torch.int, !torch.vtensor<[],ui64>, !torch.vtensor<[],ui64>, !torch.vtensor<[0],bf16>)
  return %0#0 : !torch.vtensor<[1,?,8,8],bf16>
}
