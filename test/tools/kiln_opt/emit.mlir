// The code of kernels by --emit: as it runs, without a pipeline that has to be known.
// RUN: kiln-opt %s --pipeline=cpu --emit=obj -o %t | filecheck %s --check-prefix=OBJ
// RUN: kiln-opt %s --pipeline=gpu --emit=ptx | filecheck %s --check-prefix=PTX
// RUN: kiln-opt %s --pipeline=tt-cpu --emit=ttir | filecheck %s --check-prefix=TTIR
// RUN: kiln-opt %s --pipeline=gpu --emit=sass | filecheck %s --check-prefix=SASS
// RUN: not kiln-opt %s --pipeline=cpu --emit=ptx 2>&1 | filecheck %s --check-prefix=WRONG
// RUN: not kiln-opt %s --pipeline=cpu --emit=obj 2>&1 | filecheck %s --check-prefix=WHERE

// OBJ: generic_{{[0-9a-f]+}}.o
// PTX: // kernel [[NAME:.*]]: {{.*}} warps
// PTX: .entry [[NAME]]
// PTX: st.global
// TTIR: // kernel generic_
// TTIR: "tt.func"
// TTIR: "tt.store"
// SASS: /*0000*/
// SASS: STG.E{{.*}} // ptx:{{[0-9]+}}
// WRONG: error: --emit=ptx: these kernels are for a CPU
// WHERE: error: --emit=obj needs a folder for the files: -o DIR
func.func @main(%a: !torch.vtensor<[32,16],f32>) -> !torch.vtensor<[32,16],f32> {
  %0 = torch.aten.relu %a : !torch.vtensor<[32,16],f32> -> !torch.vtensor<[32,16],f32>
  return %0 : !torch.vtensor<[32,16],f32>
}
