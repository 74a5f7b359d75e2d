// RUN: kiln-opt %s --split-input-file --pass-pipeline=convert-torch-to-kiln | filecheck %s

// Sizes are index arguments; ops that make tensors take them and carry maps over them.
// CHECK-LABEL: func.func @dynamic
// CHECK-SAME: (%{{.*}}: tensor<?x8xf32> {kiln.shape = {{.*}}}, %[[S:.*]]: index {kiln.symbol = "s27"}) -> tensor<?x8xf32>
// CHECK: "kiln.empty"(%[[S]])
// CHECK: math.tanh
func.func @dynamic(%x: !torch.vtensor<[?,8],f32> {kiln.shape = affine_map<()[s0] -> (s0, 8)>}, %s: !torch.int {kiln.symbol = "s27"}) -> !torch.vtensor<[?,8],f32> attributes {kiln.symbols = ["s27"]} {
  %0 = torch.aten.tanh %x {kiln.shapes = [affine_map<()[s0] -> (s0, 8)>]} : !torch.vtensor<[?,8],f32> -> !torch.vtensor<[?,8],f32>
  return %0 : !torch.vtensor<[?,8],f32>
}

// -----

// A number made of sizes is computed in the body from the index values.
// CHECK-LABEL: func.func @size_number
// CHECK-SAME: %[[S:[a-z0-9]+]]: index
// CHECK: linalg.generic
// CHECK: arith.muli %[[S]], %{{.*}} : index
// CHECK: arith.index_cast
// CHECK: arith.sitofp
// CHECK: arith.divf
func.func @size_number(%x: !torch.vtensor<[?],f32> {kiln.shape = affine_map<()[s0] -> (s0)>}, %s: !torch.int {kiln.symbol = "s27"}) -> !torch.vtensor<[?],f32> attributes {kiln.symbols = ["s27"]} {
  %int2 = torch.constant.int 2
  %n = torch.aten.mul.int %s, %int2 : !torch.int, !torch.int -> !torch.int
  %0 = torch.aten.div.Scalar %x, %n {kiln.shapes = [affine_map<()[s0] -> (s0)>]} : !torch.vtensor<[?],f32>, !torch.int -> !torch.vtensor<[?],f32>
  return %0 : !torch.vtensor<[?],f32>
}

// -----

// It is exact where arithmetic is, and not rounded to 16 bits, of which it may be out of reach.
// CHECK-LABEL: func.func @size_number_of_halves
// CHECK: %[[X:.*]] = arith.extf %{{.*}} : f16 to f32
// CHECK: %[[N:.*]] = arith.sitofp %{{.*}} : i64 to f32
// CHECK-NEXT: arith.divf %[[X]], %[[N]] : f32
func.func @size_number_of_halves(%x: !torch.vtensor<[?],f16> {kiln.shape = affine_map<()[s0] -> (s0)>}, %s: !torch.int {kiln.symbol = "s27"}) -> !torch.vtensor<[?],f16> attributes {kiln.symbols = ["s27"]} {
  %0 = torch.aten.div.Scalar %x, %s {kiln.shapes = [affine_map<()[s0] -> (s0)>]} : !torch.vtensor<[?],f16>, !torch.int -> !torch.vtensor<[?],f16>
  return %0 : !torch.vtensor<[?],f16>
}

// -----

// Symbols are numbered as their values appear, whatever order the torch dialect lists them in.
// CHECK-LABEL: func.func @order
// CHECK-SAME: kiln.shape = affine_map<()[s0, s1] -> (s1, s0)>
// CHECK-SAME: {kiln.symbol = "s77"}
// CHECK-SAME: %[[S27:[a-z0-9]+]]: index {kiln.symbol = "s27"}
// CHECK-SAME: kiln.symbols = ["s77", "s27"]
// CHECK: "kiln.empty"(%[[S27]])
func.func @order(%x: !torch.vtensor<[?,?],f32> {kiln.shape = affine_map<()[s0, s1] -> (s0, s1)>}, %a: !torch.int {kiln.symbol = "s77"}, %b: !torch.int {kiln.symbol = "s27"}) -> !torch.vtensor<[?],f32> attributes {kiln.symbols = ["s27", "s77"]} {
  %int1 = torch.constant.int 1
  %dims = torch.prim.ListConstruct %int1 : (!torch.int) -> !torch.list<int>
  %false = torch.constant.bool false
  %0 = torch.aten.amax %x, %dims, %false {kiln.shapes = [affine_map<()[s0, s1] -> (s0)>]} : !torch.vtensor<[?,?],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[?],f32>
  return %0 : !torch.vtensor<[?],f32>
}
