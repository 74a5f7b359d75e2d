// RUN: kiln-opt %s --split-input-file --remarks --pass-pipeline=rewrite-patterns 2> %t.remarks | filecheck %s
// RUN: filecheck %s --check-prefix=WHY --input-file %t.remarks
// With the values of max.
// CHECK-LABEL: func.func @softmax_max(
// CHECK: torch.aten._softmax %arg0
// CHECK-NEXT: return
func.func @softmax_max(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %true = torch.constant.bool true
  %values, %indices = torch.aten.max.dim %arg0, %int-1, %true {kiln.strides = [affine_map<() -> (1, 1)>, affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.int, !torch.bool -> !torch.vtensor<[4,1],f32>, !torch.vtensor<[4,1],si64>
  %int1 = torch.constant.int 1
  %0 = torch.aten.sub.Tensor %arg0, %values, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.exp %0 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %2 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %none = torch.constant.none
  %3 = torch.aten.sum.dim_IntList %1, %2, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %4 = torch.aten.div.Tensor %1, %3 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  return %4 : !torch.vtensor<[4,8],f32>
}

// -----

// With amax.
// CHECK-LABEL: func.func @softmax_amax(
// CHECK: torch.aten._softmax %arg0
// CHECK-NEXT: return
func.func @softmax_amax(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.exp %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %none = torch.constant.none
  %4 = torch.aten.sum.dim_IntList %3, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %5 = torch.aten.div.Tensor %3, %4 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  return %5 : !torch.vtensor<[4,8],f32>
}

// -----

// Log-softmax.
// CHECK-LABEL: func.func @log_softmax(
// CHECK: torch.aten._log_softmax %arg0
// CHECK-NEXT: return
func.func @log_softmax(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.exp %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %none = torch.constant.none
  %4 = torch.aten.sum.dim_IntList %3, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %5 = torch.aten.log %4 {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,1],f32>
  %6 = torch.aten.sub.Tensor %2, %5, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %6 : !torch.vtensor<[4,8],f32>
}

// -----

// Log-softmax by logsumexp.
// CHECK-LABEL: func.func @log_softmax_logsumexp(
// CHECK: torch.aten._log_softmax %arg0
// CHECK-NEXT: return
func.func @log_softmax_logsumexp(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.logsumexp %arg0, %0, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  return %2 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: the patterns are over the last dimension.
// CHECK-LABEL: func.func @other_dim(
// CHECK-NOT: torch.aten._softmax
// CHECK: return
// WHY-DAG: softmax-amax: operand 1 of aten.amax: -1 expected, found 0
func.func @other_dim(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int0 = torch.constant.int 0
  %0 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[1,8],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[1,8],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.exp %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %none = torch.constant.none
  %4 = torch.aten.sum.dim_IntList %3, %0, %true, %none {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[1,8],f32>
  %5 = torch.aten.div.Tensor %3, %4 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[1,8],f32> -> !torch.vtensor<[4,8],f32>
  return %5 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: the maximum over one dimension, the sum over another.
// CHECK-LABEL: func.func @two_dims(
// CHECK-NOT: torch.aten._softmax
// CHECK: return
// WHY-DAG: softmax-amax: operand 1 of aten.sum.dim_IntList: -1 expected, found 0
func.func @two_dims(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.exp %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %int0 = torch.constant.int 0
  %4 = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %none = torch.constant.none
  %5 = torch.aten.sum.dim_IntList %3, %4, %true, %none {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[1,8],f32>
  %6 = torch.aten.div.Tensor %3, %5 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[1,8],f32> -> !torch.vtensor<[4,8],f32>
  return %6 : !torch.vtensor<[4,8],f32>
}

// -----

// Near miss: the exponentials are returned as well.
// CHECK-LABEL: func.func @intermediate_used(
// CHECK-NOT: torch.aten._softmax
// CHECK: return
// WHY-DAG: softmax-amax: aten.exp has another user, func.return
func.func @intermediate_used(%arg0: !torch.vtensor<[4,8],f32> {kiln.shape = affine_map<() -> (4, 8)>, kiln.strides = affine_map<() -> (8, 1)>}) -> (!torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}, !torch.vtensor<[4,8],f32> {kiln.strides = affine_map<() -> (8, 1)>}) {
  %int-1 = torch.constant.int -1
  %0 = torch.prim.ListConstruct %int-1 : (!torch.int) -> !torch.list<int>
  %true = torch.constant.bool true
  %1 = torch.aten.amax %arg0, %0, %true {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool -> !torch.vtensor<[4,1],f32>
  %int1 = torch.constant.int 1
  %2 = torch.aten.sub.Tensor %arg0, %1, %int1 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32>, !torch.int -> !torch.vtensor<[4,8],f32>
  %3 = torch.aten.exp %2 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %none = torch.constant.none
  %4 = torch.aten.sum.dim_IntList %3, %0, %true, %none {kiln.strides = [affine_map<() -> (1, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,1],f32>
  %5 = torch.aten.div.Tensor %3, %4 {kiln.strides = [affine_map<() -> (8, 1)>]} : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,1],f32> -> !torch.vtensor<[4,8],f32>
  return %5, %3 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,8],f32>
}
