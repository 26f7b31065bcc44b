"""Lengths of a launcher's arguments, from the header that CuTe-DSL writes beside the object."""

from __future__ import annotations

import pytest

from msa_ops.emulator.object_header import LauncherArguments, launcher_arguments

HEADER = """
typedef struct {
    void *data;
    int32_t dynamic_shapes[3];
    int64_t dynamic_strides[2];
} k_Tensor_a_t;


typedef struct {
    void *data;
} k_Tensor_b_t;

void _mlir_k__mlir_ciface_f(void **args, int32_t num_args);

static inline int32_t cute_dsl_k_wrapper(k_Kernel_Module_t *module, k_Tensor_a_t *a, k_Tensor_b_t *b, float v,
                                         uint8_t n, int32_t *sh, void *p, cudaStream_t stream) {
    int32_t ret = 0;
    void *args[9] = {
        a, b, &v, &n, &sh[0], &sh[1], &p, &stream,
        &ret
    };
    _mlir_k__mlir_ciface_f(args, 9);
    return ret;
}
"""

TYPES = ["", "", ".f32", ".u8", ".s32", ".s32", ".u64"]


def test_sizes() -> None:
    assert launcher_arguments(HEADER) == LauncherArguments([40, 8, 4, 1, 4, 4, 8], TYPES, [7])


def test_a_launcher_without_a_stream() -> None:
    header = HEADER.replace("void *p, cudaStream_t stream", "void *p").replace("&p, &stream", "&p")
    assert launcher_arguments(header) == LauncherArguments([40, 8, 4, 1, 4, 4, 8], TYPES, [])


def test_a_stream_between_other_arguments() -> None:
    header = HEADER.replace("void *p, cudaStream_t stream", "cudaStream_t s, void *p").replace("&p, &stream", "&s, &p")
    assert launcher_arguments(header) == LauncherArguments([40, 8, 4, 1, 4, 4, 8], TYPES, [6])


def test_a_member_that_is_not_known() -> None:
    header = HEADER.replace("int64_t dynamic_strides", "cudaStream_t dynamic_strides")
    assert launcher_arguments(header).sizes[0] is None


def test_no_header() -> None:
    with pytest.raises(ValueError, match="no launcher of CuTe-DSL"):
        launcher_arguments("int main() {}")
