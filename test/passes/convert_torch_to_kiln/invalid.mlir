// RUN: kiln-opt %s --split-input-file --verify-diagnostics --pass-pipeline=convert-torch-to-kiln

// expected-error @+1 {{has dynamic sizes but no kiln.shape}}
func.func @no_shape(%x: !torch.vtensor<[?],f32>) -> !torch.vtensor<[?],f32> {
  return %x : !torch.vtensor<[?],f32>
}

// -----

// expected-error @+1 {{kiln.shape has 1 sizes, expected 2}}
func.func @wrong_rank(%x: !torch.vtensor<[?,4],f32> {kiln.shape = affine_map<()[s0] -> (s0)>}) -> !torch.vtensor<[?,4],f32> {
  return %x : !torch.vtensor<[?,4],f32>
}

// -----

// expected-error @+1 {{expected a tensor of known rank and element type, or !torch.int}}
func.func @unranked(%x: !torch.vtensor<*,f32>) -> !torch.vtensor<*,f32> {
  return %x : !torch.vtensor<*,f32>
}

// -----

func.func @no_shapes(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[?],f32> {
  // expected-error @+1 {{a result has dynamic sizes but there is no kiln.shapes}}
  %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[?],f32>
  return %0 : !torch.vtensor<[?],f32>
}
