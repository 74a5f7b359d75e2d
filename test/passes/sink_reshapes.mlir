// RUN: kiln-opt --split-input-file --verify-numerics --pass-pipeline=sink-reshapes,fuse %s | filecheck %s
// RUN: kiln-opt --split-input-file --pass-pipeline=fuse %s | filecheck %s --check-prefix=WITHOUT
// RUN: kiln-opt --split-input-file --pass-pipeline="sink-reshapes{rows-last=true},fuse" %s | filecheck %s --check-prefix=ROWS

// Two groups of four channels: the weights are behind the reshape that merges the groups.

// CHECK-LABEL: func.func @group_norm
// CHECK-COUNT-1: "kiln.fusion"
// CHECK: kind = "reduction"
// CHECK-NOT: "kiln.fusion"
// CHECK: "kiln.view"(%{{.*}}) {{.*}}tensor<3x2x4x5xf32>) -> tensor<3x8x5xf32>
// WITHOUT-LABEL: func.func @group_norm
// WITHOUT-COUNT-2: "kiln.fusion"
// ROWS-LABEL: func.func @group_norm
// ROWS-COUNT-1: "kiln.fusion"
// ROWS-NOT: "kiln.fusion"
// ROWS: return
func.func @group_norm(%x: tensor<3x2x4x5xf32>, %w: tensor<8xf32>) -> tensor<3x8x5xf32> {
  %c = arith.constant 0.0 : f32
  %e = "kiln.empty"() {shape = affine_map<() -> (3, 2)>} : () -> tensor<3x2xf32>
  %fill = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    outs(%e : tensor<3x2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %c : f32
  } -> tensor<3x2xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x : tensor<3x2x4x5xf32>) outs(%fill : tensor<3x2xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %i, %o : f32
    linalg.yield %a : f32
  } -> tensor<3x2xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (3, 2, 4, 5)>} : () -> tensor<3x2x4x5xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b)>,
      affine_map<(a, b, c, d) -> (a, b, c, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x, %sum : tensor<3x2x4x5xf32>, tensor<3x2xf32>) outs(%f : tensor<3x2x4x5xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.divf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x2x4x5xf32>
  %v = "kiln.view"(%y) {map = affine_map<(a, b, c) -> (a, b floordiv 4, b mod 4, c)>, shape = affine_map<() -> (3, 8, 5)>}
    : (tensor<3x2x4x5xf32>) -> tensor<3x8x5xf32>
  %g = "kiln.empty"() {shape = affine_map<() -> (3, 8, 5)>} : () -> tensor<3x8x5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (b)>,
      affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %w : tensor<3x8x5xf32>, tensor<8xf32>) outs(%g : tensor<3x8x5xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.mulf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x8x5xf32>
  return %r : tensor<3x8x5xf32>
}

// -----

// No reduction above: the reshape stays where it is.

// CHECK-LABEL: func.func @pointwise
// CHECK: tensor<6xf32>) outs
// WITHOUT-LABEL: func.func @pointwise
func.func @pointwise(%x: tensor<2x3xf32>, %w: tensor<6xf32>) -> tensor<6xf32> {
  %e = "kiln.empty"() {shape = affine_map<() -> (2, 3)>} : () -> tensor<2x3xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = math.exp %i : f32
    linalg.yield %a : f32
  } -> tensor<2x3xf32>
  %1 = "kiln.view"(%0) {map = affine_map<(d0) -> (d0 floordiv 3, d0 mod 3)>, shape = affine_map<() -> (6)>}
    : (tensor<2x3xf32>) -> tensor<6xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (6)>} : () -> tensor<6xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%1, %w : tensor<6xf32>, tensor<6xf32>) outs(%f : tensor<6xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.mulf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<6xf32>
  return %2 : tensor<6xf32>
}

// -----

// Groups of 20 elements in a row, which the reshape takes apart into four channels of five.

// CHECK-LABEL: func.func @written_out
// CHECK-COUNT-1: "kiln.fusion"
// CHECK: iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK: kind = "reduction"
// CHECK-NOT: "kiln.fusion"
// CHECK: "kiln.view"(%{{.*}}) {{.*}}tensor<3x2x4x5xf32>) -> tensor<3x8x5xf32>
// WITHOUT-LABEL: func.func @written_out
// WITHOUT-COUNT-2: "kiln.fusion"
func.func @written_out(%x: tensor<3x8x5xf32>, %w: tensor<8xf32>) -> tensor<3x8x5xf32> {
  %c = arith.constant 0.0 : f32
  %rows = "kiln.view"(%x) {map = affine_map<(a, b, c) -> (a, b * 4 + c floordiv 5, c mod 5)>, shape = affine_map<() -> (3, 2, 20)>}
    : (tensor<3x8x5xf32>) -> tensor<3x2x20xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (3, 2)>} : () -> tensor<3x2xf32>
  %fill = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    outs(%e : tensor<3x2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %c : f32
  } -> tensor<3x2xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%rows : tensor<3x2x20xf32>) outs(%fill : tensor<3x2xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %i, %o : f32
    linalg.yield %a : f32
  } -> tensor<3x2xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (3, 2, 20)>} : () -> tensor<3x2x20xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b)>,
      affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%rows, %sum : tensor<3x2x20xf32>, tensor<3x2xf32>) outs(%f : tensor<3x2x20xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.divf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x2x20xf32>
  %v = "kiln.view"(%y) {map = affine_map<(a, b, c) -> (a, b floordiv 4, (b mod 4) * 5 + c)>, shape = affine_map<() -> (3, 8, 5)>}
    : (tensor<3x2x20xf32>) -> tensor<3x8x5xf32>
  %g = "kiln.empty"() {shape = affine_map<() -> (3, 8, 5)>} : () -> tensor<3x8x5xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (b)>,
      affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %w : tensor<3x8x5xf32>, tensor<8xf32>) outs(%g : tensor<3x8x5xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.mulf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x8x5xf32>
  return %r : tensor<3x8x5xf32>
}

// -----

// A group of an image with channels last is in pieces: no rows for a GPU.

// CHECK-LABEL: func.func @channels_last
// CHECK-COUNT-1: "kiln.fusion"
// CHECK-NOT: "kiln.fusion"
// ROWS-LABEL: func.func @channels_last
// ROWS-COUNT-2: "kiln.fusion"
// ROWS: return %{{.*}} : tensor<3x8x5x6xf32>
func.func @channels_last(%x: tensor<3x8x5x6xf32> {kiln.shape = affine_map<() -> (3, 8, 5, 6)>, kiln.strides = affine_map<() -> (240, 1, 48, 8)>}, %w: tensor<8xf32>) -> tensor<3x8x5x6xf32> {
  %c = arith.constant 0.0 : f32
  %u = "kiln.view"(%x) {map = affine_map<(a, b, c, d, e) -> (a, b * 4 + c, d, e)>, shape = affine_map<() -> (3, 2, 4, 5, 6)>}
    : (tensor<3x8x5x6xf32>) -> tensor<3x2x4x5x6xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (3, 2)>} : () -> tensor<3x2xf32>
  %fill = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    outs(%e : tensor<3x2xf32>) {
  ^bb0(%o: f32):
    linalg.yield %c : f32
  } -> tensor<3x2xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>, affine_map<(a, b, c, d, e) -> (a, b)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%u : tensor<3x2x4x5x6xf32>) outs(%fill : tensor<3x2xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %i, %o : f32
    linalg.yield %a : f32
  } -> tensor<3x2xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (3, 2, 4, 5, 6)>} : () -> tensor<3x2x4x5x6xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>, affine_map<(a, b, c, d, e) -> (a, b)>,
      affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%u, %sum : tensor<3x2x4x5x6xf32>, tensor<3x2xf32>) outs(%f : tensor<3x2x4x5x6xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.divf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x2x4x5x6xf32>
  %v = "kiln.view"(%y) {map = affine_map<(a, b, c, d) -> (a, b floordiv 4, b mod 4, c, d)>, shape = affine_map<() -> (3, 8, 5, 6)>}
    : (tensor<3x2x4x5x6xf32>) -> tensor<3x8x5x6xf32>
  %g = "kiln.empty"() {shape = affine_map<() -> (3, 8, 5, 6)>} : () -> tensor<3x8x5x6xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (b)>,
      affine_map<(a, b, c, d) -> (a, b, c, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v, %w : tensor<3x8x5x6xf32>, tensor<8xf32>) outs(%g : tensor<3x8x5x6xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.mulf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<3x8x5x6xf32>
  return %r : tensor<3x8x5x6xf32>
}

// -----

// An instance norm over samples times channels, of an image with channels last: samples are far apart, and channels
// neighbours, so that one loop over both is two. What is read of the sums along the image follows.

// CHECK-LABEL: func.func @merged
// CHECK: linalg.generic {{.*}}["parallel", "parallel", "reduction", "reduction"]{{.*}} outs(%{{.*}} : tensor<3x8xf32>)
// CHECK-NOT: tensor<24x5x6xf32>
// WITHOUT-LABEL: func.func @merged
// WITHOUT: tensor<24x5x6xf32>
func.func @merged(%x: tensor<3x8x5x6xf32> {kiln.shape = affine_map<() -> (3, 8, 5, 6)>, kiln.strides = affine_map<() -> (240, 1, 48, 8)>}) -> (tensor<3x8x5x6xf32>, tensor<24xf32>) {
  %zero = arith.constant 0.0 : f32
  %u = "kiln.view"(%x) {map = affine_map<(a, b, c) -> (a floordiv 8, a mod 8, b, c)>, shape = affine_map<() -> (24, 5, 6)>}
    : (tensor<3x8x5x6xf32>) -> tensor<24x5x6xf32>
  %e = "kiln.empty"() {shape = affine_map<() -> (24)>} : () -> tensor<24xf32>
  %fill = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]} outs(%e : tensor<24xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<24xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a)>],
      iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%u : tensor<24x5x6xf32>) outs(%fill : tensor<24xf32>) {
  ^bb0(%i: f32, %o: f32):
    %a = arith.addf %i, %o : f32
    linalg.yield %a : f32
  } -> tensor<24xf32>
  %along = "kiln.view"(%sum) {map = affine_map<(a, b, c) -> (a)>, shape = affine_map<() -> (24, 1, 1)>} : (tensor<24xf32>) -> tensor<24x1x1xf32>
  %f = "kiln.empty"() {shape = affine_map<() -> (24, 5, 6)>} : () -> tensor<24x5x6xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, 0, 0)>,
      affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%u, %along : tensor<24x5x6xf32>, tensor<24x1x1xf32>) outs(%f : tensor<24x5x6xf32>) {
  ^bb0(%i: f32, %s: f32, %o: f32):
    %a = arith.divf %i, %s : f32
    linalg.yield %a : f32
  } -> tensor<24x5x6xf32>
  %v = "kiln.view"(%y) {map = affine_map<(a, b, c, d) -> (a * 8 + b, c, d)>, shape = affine_map<() -> (3, 8, 5, 6)>}
    : (tensor<24x5x6xf32>) -> tensor<3x8x5x6xf32>
  return %v, %sum : tensor<3x8x5x6xf32>, tensor<24xf32>
}
