"""Cases of variables of a body: initial values of all types and shapes, addresses among them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

if __package__:
    from tests.emulator.silicon.cases import Case, random_bytes
else:
    from cases import Case, random_bytes  # type: ignore[import-not-found,no-redef]

VALUES = {
    "array": (".b32 v[2][3] = {{1, 2, 3}, {4, 5, 6}}", 24),
    "short lists": (".b32 v[2][3] = {{1}, {4, 5}}", 24),
    "open": (".b32 v[][2] = {{1, 2}, {3}}", 16),
    "cube": (".u16 v[2][2][2] = {{{1, 2}, {3, 4}}, {{5}}}", 16),
    "vector": (".v4 .f32 v = {1.0, 2.5, 0f40400000, -4.0}", 16),
    "vectors": (".v2 .u16 v[] = {{1, 2}, {3, 4}}", 8),
    "integers": (".u32 v[3] = {1+2*3, 4294967296, -1}", 12),
    "bytes": (".s8 v[5] = {1, -2, 255, 256, WARP_SZ}", 5),
    "floats": (".f32 v[4] = {0.1, 16777217.0, 0d3ff0000000000000, 1.0e-50}", 16),
    "doubles": (".f64 v[2] = {0.1, 0f3f800000}", 16),
    "bits": (".b32 v[3] = {1.5, 0f3f800000, 7}", 12),
    "few bits": (".b16 v[2] = {1.5, 7}", 4),
    "none": (".b64 v[2] = {}", 16),
}
MASKED = ", ".join(f"{0xFF << 8 * i:#x}(g+4)" for i in range(8))
ADDRESSES = f""".global .u32 g[4] = {{1, 2, 3, 4}}; .const .u32 c[2] = {{11, 12}};
.global .u64 v[5] = {{g, g+4, generic(g)+8, generic(c)+4, 7}};
.global .u8 part[8] = {{{MASKED}}};"""
FROM_ADDRESSES = (
    "mov.u64 %rd10, v; mov.u64 %rd11, g;\n"
    + "".join(
        f"ld.global.u64 %rd12, [%rd10+{8 * i}]; ld.u32 %r1, [%rd12]; st.global.u32 [%rd1+{4 * i}], %r1;\n"
        for i in range(4)
    )
    + "ld.global.u64 %rd12, [%rd10+32]; st.global.u64 [%rd1+16], %rd12;\nmov.u64 %rd13, part; mov.u64 %rd14, 0;\n"
    + "".join(
        f"ld.global.u8 %rd12, [%rd13+{i}]; shl.b64 %rd12, %rd12, {8 * i}; or.b64 %rd14, %rd14, %rd12;\n"
        for i in range(8)
    )
    + "sub.u64 %rd14, %rd14, %rd11; st.global.u64 [%rd1+24], %rd14;"
)


def cases() -> Iterator[Case]:
    for space in ("global", "const"):
        for name, (declaration, size) in VALUES.items():
            body = "".join(f"ld.{space}.u8 %r1, [v+{i}]; st.global.u8 [%rd1+{i}], %r1;\n" for i in range(size))
            name = f"variable {space} {name}"
            yield Case(
                name,
                body,
                np.zeros(8, np.uint8),
                random_bytes(name, 32),
                threads=1,
                declarations=f".{space} {declaration};",
            )
    name = "variable addresses"
    yield Case(name, FROM_ADDRESSES, np.zeros(8, np.uint8), random_bytes(name, 64), threads=1, declarations=ADDRESSES)
