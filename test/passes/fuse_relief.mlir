// RUN: kiln-opt --pass-pipeline=fuse %s | filecheck %s
// RUN: kiln-opt --pass-pipeline=fuse --remarks %s 2>&1 >/dev/null | filecheck %s --check-prefix=WHY

// What the last part of a concatenation is made of is dead before the whole result is there: by itself it frees it.
#whole = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @last_part
// CHECK: "kiln.fusion
// CHECK: linalg.generic
// CHECK: -> tensor<8192xf32>
// CHECK: "kiln.fusion
// CHECK: kiln.cat
// CHECK: -> tensor<32768xf32>
// WHY: a kernel of its own: 98.3 kB less are alive at once than with a larger result's kernel
func.func @last_part(%x: tensor<40960xf32>, %a: tensor<8192xf32>, %b: tensor<8192xf32>, %c: tensor<8192xf32>)
    -> tensor<32768xf32> {
  %gates = "kiln.aten"(%x) {op = "aten.flip.default", args = "[{\22operand\22: 0}, [0]]", kwargs = "{}", shapes = [affine_map<() -> (40960)>], strides = [affine_map<() -> (1)>], pure = true} : (tensor<40960xf32>) -> tensor<40960xf32>
  %low = "kiln.view"(%gates) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (8192)>}
    : (tensor<40960xf32>) -> tensor<8192xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (8192)>} : () -> tensor<8192xf32>
  %last = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel"]}
      ins(%low : tensor<8192xf32>) outs(%e : tensor<8192xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = math.exp %i : f32
    linalg.yield %r : f32
  } -> tensor<8192xf32>
  %all = "kiln.cat"(%a, %b, %c, %last) {dim = 0 : i64, shape = affine_map<() -> (32768)>}
    : (tensor<8192xf32>, tensor<8192xf32>, tensor<8192xf32>, tensor<8192xf32>) -> tensor<32768xf32>
  return %all : tensor<32768xf32>
}

// What is computed from an argument frees nothing: one kernel.
// CHECK-LABEL: func.func @argument
// CHECK-COUNT-1: "kiln.fusion
// CHECK-NOT: "kiln.fusion
// CHECK: return
func.func @argument(%x: tensor<8192xf32>, %a: tensor<8192xf32>) -> tensor<16384xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (8192)>} : () -> tensor<8192xf32>
  %last = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel"]}
      ins(%x : tensor<8192xf32>) outs(%e : tensor<8192xf32>) {
  ^bb0(%i: f32, %o: f32):
    %r = math.exp %i : f32
    linalg.yield %r : f32
  } -> tensor<8192xf32>
  %all = "kiln.cat"(%a, %last) {dim = 0 : i64, shape = affine_map<() -> (16384)>} : (tensor<8192xf32>, tensor<8192xf32>) -> tensor<16384xf32>
  return %all : tensor<16384xf32>
}
