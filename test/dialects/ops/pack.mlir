// The op of dialects/kiln/pack.py: printing gives back what was parsed.
// RUN: kiln-opt %s | filecheck %s
// RUN: kiln-opt %s | kiln-opt | filecheck %s

// CHECK-LABEL: func.func @pack(
// CHECK: "kiln.pack"(%arg0) {elements = 64 : i64, layout = #{{.*}}} : (tensor<5x8xf32>) -> tensor<5x8xf32>
func.func @pack(%w: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %0 = "kiln.pack"(%w) {layout = affine_map<(d0, d1) -> ((d0 floordiv 4) * 32 + d1 * 4 + d0 mod 4)>,
    elements = 64 : i64} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}
