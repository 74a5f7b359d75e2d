// RUN: kiln-opt %s --pipeline=cpu --until=fused | filecheck %s

// A size that is dynamic in one operand and static in another stays what it is: no tensor.cast parts the fusion.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tensor.cast
// CHECK: "kiln.fusion"
// CHECK-NOT: tensor.cast
// CHECK-NOT: "kiln.fusion"
// CHECK: return
module {
  func.func @main(%s: !torch.int {kiln.symbol = "s0"},
                  %x: !torch.vtensor<[4,?],f32> {kiln.shape = affine_map<()[s0] -> (4, s0)>,
                                                 kiln.strides = affine_map<()[s0] -> (s0, 1)>},
                  %y: !torch.vtensor<[4,6],f32> {kiln.shape = affine_map<()[s0] -> (4, 6)>,
                                                 kiln.strides = affine_map<()[s0] -> (6, 1)>})
      -> (!torch.vtensor<[4,?],f32> {kiln.strides = affine_map<()[s0] -> (s0, 1)>})
      attributes {kiln.symbols = ["s0"]} {
    %int1 = torch.constant.int 1
    %0 = torch.aten.exp %x {kiln.shapes = [affine_map<()[s0] -> (4, s0)>]} : !torch.vtensor<[4,?],f32> -> !torch.vtensor<[4,?],f32>
    %1 = torch.aten.mul.Tensor %0, %y {kiln.shapes = [affine_map<()[s0] -> (4, s0)>]} : !torch.vtensor<[4,?],f32>, !torch.vtensor<[4,6],f32> -> !torch.vtensor<[4,?],f32>
    return %1 : !torch.vtensor<[4,?],f32>
  }
}
