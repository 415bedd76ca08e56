"""A kernel's parameters as its source declares them, and the arguments for them."""

import struct

import pytest

from gpubench.model import Problem
from gpubench.model.signature import (
    array_index,
    number,
    packed,
    parameters,
    why_incomplete,
    why_other_element,
    why_unknown,
)

LADDER = (
    "(int M, int N, int K, float alpha=1, const float *A, const float *B, float beta=0, float *C)"
)
PROBLEM = Problem(op="gemm", m=3, n=5, k=7, dtype="float32")


def values(signature: str, problem: Problem = PROBLEM) -> list[float | str]:
    """Return arguments as texts: an array by its index, such as `@0`, and a number as itself."""
    return [
        f"@{array_index(parameter, problem.op)}"
        if parameter.is_pointer
        else number(parameter, problem)
        for parameter in parameters(signature)
    ]


def test_the_order_of_the_source_is_kept_and_constants_have_their_values() -> None:
    assert values(LADDER) == [3, 5, 7, 1, "@0", "@1", 0, "@2"]
    assert [parameter.cpp for parameter in parameters(LADDER)] == (
        ["int"] * 3 + ["float", "const float*", "const float*", "float", "float*"]
    )


def test_a_parameter_is_read_however_it_is_written() -> None:
    for text in (
        "const float* __restrict__ A",
        "const float*A",
        "const float * const A",
        "const float A[]",
        "const  float\n *__restrict__  A",
    ):
        (parameter,) = parameters(text)
        assert (parameter.cpp, parameter.name, parameter.value) == ("const float*", "A", "A"), text


def test_names_are_read_in_any_case_and_other_names_state_their_meaning() -> None:
    assert values(
        "int m, int rows = M, size_t area=M*N, const T* left=A, T* c, void* workspace"
    ) == ([3, 3, 15, "@0", "@2", "@3"])


def test_leading_dimensions_follow_the_layout() -> None:
    text = "int lda, int ldb, int ldc"
    assert values(text) == [7, 5, 5]
    by_columns = Problem(op="gemm", m=3, n=5, k=7, dtype="float32", column_major=("A", "B", "C"))
    assert values(text, by_columns) == [3, 7, 3]
    assert by_columns.layout == "column-major A B C"


def test_leading_dimensions_of_a_batch_are_those_of_its_matrices() -> None:
    for dtype, leading in (("float32", [7, 5, 5]), ("int8", [7, 7, 5])):  # int8: B by columns
        batch = Problem(op="gemm_batched", m=3, n=5, k=7, further=(2,), dtype=dtype)
        assert values("int lda, int ldb, int ldc", batch) == leading


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int stride", "write stride=1, or one of M, N, K, lda, ldb, ldc in place of 1"),
        ("float* D", "write D=A, or one of A, B, C, workspace, null in place of A"),
        ("dim3 M", "dim3 M: a dim3 cannot be passed by value; describe a kernel of pointers"),
        ("torch::Tensor a", "torch::Tensor a: a torch::Tensor cannot be passed by value"),
        ("int M=rows", "write M=1"),
        ("unsigned x=-1", "the type cannot hold -1"),
        ("half alpha=70000", "the type cannot hold 70000"),
    ],
)
def test_a_parameter_without_a_known_meaning_is_marked(text: str, reason: str) -> None:
    (parameter,) = parameters(text)
    assert reason in (why_unknown(parameter, "gemm") or "")


@pytest.mark.parametrize(
    ("op", "signature", "lack"),
    [
        ("gemm", "float* A, float* B, float* C, int N", ""),
        ("gemm", "float* A, float* B, float* C, int n=launch", ""),
        ("gemm", "CUtensorMap A, CUtensorMap B, float* C", ""),
        ("gemm", "", ""),
        ("gemm_bias", "float* A, float* B, float* bias, float* C, int n=N", ""),
        ("gemm_bias", "float* A, float* B, float* C, int N", "gemm_bias has the array bias, which"),
        ("gemm", "float* A, float* A2=A, float* C, int N", "gemm has the array B, which no param"),
        ("gemm", "float* A, float* B, float* C", "its parameters have no extents"),
    ],
)
def test_a_signature_that_cannot_compute_its_operation_is_noticed(
    op: str, signature: str, lack: str
) -> None:
    assert why_incomplete(signature, op).startswith(lack)
    assert bool(why_incomplete(signature, op)) == bool(lack)


def test_operations_on_vectors_have_their_own_names() -> None:
    y = Problem(op="gemv", m=3, n=5, dtype="float32")
    assert values("const float* A, const float* x, float* y, int M, int N, int lda", y) == (
        ["@0", "@1", "@2", 3, 5, 5]
    )
    reason = why_unknown(parameters("int K")[0], "gemv")
    assert reason == (
        "int K: gemv has no K: use another --op, or write K=1, or one of M, N, lda in place of 1"
    )


def test_numbers_are_packed_as_their_types() -> None:
    for text, scalar, expected in (
        ("float alpha=1", "float", struct.pack("f", 1)),
        ("Scalar alpha=2.5f", "double", struct.pack("d", 2.5)),
        ("__half alpha=1", "__half", b"\x00\x3c"),
        ("Scalar alpha=1", "__nv_bfloat16", b"\x80\x3f"),
        ("long long M", "float", struct.pack("q", 3)),
        ("const unsigned int M", "float", struct.pack("I", 3)),
    ):
        (parameter,) = parameters(text)
        assert packed(parameter, number(parameter, PROBLEM), scalar) == expected, text


def test_a_pointer_to_elements_of_another_size_than_the_array_is_refused() -> None:
    source = "const float* A, const float* B, float* C, int M, int N, int K"
    for dtype, refused in (("float32", 0), ("tf32", 0), ("float16", 3), ("float64", 3)):
        problem = Problem(op="gemm", m=8, n=8, k=8, dtype=dtype)
        reasons = [why_other_element(each, problem) for each in parameters(source)]
        assert sum(map(bool, reasons)) == refused, dtype
    half = Problem(op="gemm", m=8, n=8, k=8, dtype="float16")
    right = "const __half* A, const half* B, Scalar* C, const int* workspace, int K"
    assert not any(why_other_element(each, half) for each in parameters(right))
    (mixed,) = parameters("float* d=C")
    assert why_other_element(mixed, half) == (
        "float* d has elements of 4 bytes, but its array in float16 has elements of type float16"
    )
