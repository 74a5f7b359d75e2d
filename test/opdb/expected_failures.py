# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Entries of PyTorch's operator database that cannot be compiled, by name, with the reason.

All of these fail with the plain ``aot_eager`` backend and ``fullgraph=True`` as well, before any backend sees a graph
(PyTorch 2.13). A test checks that this still holds.
"""

_DATA = "the size of the result, or a Python number, depends on the data (Dynamo breaks the graph)"
_WRAPPED = "the database wraps the op in a helper that Dynamo cannot trace (it saves the random state)"
_SPARSE = "Dynamo does not trace sparse tensors"
_RESIZE = "Dynamo does not trace resizing a tensor in place"
_JITERATOR = "a CUDA-only op, excluded from Dynamo by name"

EXPECTED_FAILURES: dict[str, str] = {
    "allclose": _DATA,
    "bernoulli": _WRAPPED,
    "cauchy": _WRAPPED,
    "corrcoef": _DATA,
    "cov": _DATA,
    "empty_strided": _WRAPPED,
    "equal": _DATA,
    "exponential": _WRAPPED,
    "geometric": _WRAPPED,
    "item": _WRAPPED,
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "linalg.lstsq": _DATA,
    "linalg.lstsq.grad_oriented": _DATA,
    "log_normal": _WRAPPED,
    "multinomial": _WRAPPED,
    "nn.functional.alpha_dropout": _WRAPPED,
    "nn.functional.ctc_loss": _DATA,
    "nn.functional.dropout": _WRAPPED,
    "nn.functional.dropout2d": _WRAPPED,
    "nn.functional.dropout3d": _WRAPPED,
    "nn.functional.feature_alpha_dropout.with_train": _WRAPPED,
    "nn.functional.feature_alpha_dropout.without_train": _WRAPPED,
    "nn.functional.fractional_max_pool2d": _WRAPPED,
    "nn.functional.fractional_max_pool3d": _WRAPPED,
    "nn.functional.gaussian_nll_loss": _DATA,
    "nn.functional.multi_head_attention_forward": _WRAPPED,
    "nn.functional.rrelu": _WRAPPED,
    "nn.functional.scaled_dot_product_attention": _WRAPPED,
    "normal": _WRAPPED,
    "normal.in_place": _WRAPPED,
    "normal.number_mean": _WRAPPED,
    "pca_lowrank": _WRAPPED,
    "rand_like": _WRAPPED,
    "randint": _WRAPPED,
    "randint_like": _WRAPPED,
    "randn": _WRAPPED,
    "randn_like": _WRAPPED,
    "resize_": _RESIZE,
    "resize_as_": _RESIZE,
    "sparse.mm.reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "svd_lowrank": _WRAPPED,
    "to_sparse": _SPARSE,
    "uniform": _WRAPPED,
}

#: Uninitialised results: type, sizes and strides are compared, values are not.
UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "new_empty", "new_empty_strided"})

#: FakeTensors of PyTorch 2.11 have other strides than the results; a compiler allocates by FakeTensors.
STRIDES_NOT_TRACED = frozenset({"fft.fft", "fft.ifft", "fft.ihfft", "fft.rfft"})
