"""Device functions: parameters, results, early ends, calls that only some lanes make, pointers, printf and assert."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, PtxError, UnsupportedPtx, run_ptx
from tests.emulator.programs import kernel, line_of

STORE = "shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0; st.global.b32 [%rd2], %r1;"
ADD = """
.func (.param .b32 sum) add(.param .b32 a, .param .b32 b)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [a];
  ld.param.b32 %r2, [b];
  add.s32 %r3, %r1, %r2;
  st.param.b32 [sum], %r3;
  ret;
}
"""
CALL_ADD = """
{ .param .b32 param0; .param .b32 param1; .param .b32 retval0;
  st.param.b32 [param0], %r0; st.param.b32 [param1], 1000;
  call.uni (retval0), add, (param0, param1);
  ld.param.b32 %r1, [retval0]; }
"""


def launch(declarations: str, body: str, threads: int = 64, **options: object) -> NDArray[np.int32]:
    """What the kernel stores from %r1, a lane an element."""
    out = np.zeros(threads, np.int32)
    text = kernel(body + STORE, declarations=declarations)
    run_ptx(text, "k", 1, threads, [out], **options)  # type: ignore[arg-type]
    return out


def test_parameters_and_result() -> None:
    np.testing.assert_array_equal(launch(ADD, CALL_ADD), np.arange(64) + 1000)


def test_scopes_may_use_the_same_names() -> None:
    twice = CALL_ADD + CALL_ADD.replace("1000", "%r1")
    np.testing.assert_array_equal(launch(ADD, twice), 2 * np.arange(64) + 1000)


def test_declared_before_and_defined_behind_the_kernel() -> None:
    declaration = ADD[: ADD.index("{")] + ";\n"
    out = np.zeros(32, np.int32)
    run_ptx(kernel(CALL_ADD + STORE, declarations=declaration) + ADD, "k", 1, 32, [out])
    np.testing.assert_array_equal(out, np.arange(32) + 1000)


def test_registers_as_parameters() -> None:
    function = ".func (.reg .b32 %out) twice(.reg .b32 %in, .reg .b32 %by) { mul.lo.s32 %out, %in, %by; ret; }\n"
    np.testing.assert_array_equal(launch(function, "call (%r1), twice, (%r0, 3);\n"), 3 * np.arange(64))


def test_some_lanes_call_and_return_early() -> None:
    """Odd lanes call; of these, those below 32 return from within a branch; both ways meet behind the call."""
    function = """
    .func (.reg .b32 %out) pick(.reg .b32 %in)
    { .reg .pred %p<3>;
      setp.lt.u32 %p1, %in, 32;
      @!%p1 bra LARGE;
      mov.b32 %out, 1;
      setp.lt.u32 %p2, %in, 8;
      @%p2 ret;
      mov.b32 %out, 2;
      bra DONE;
    LARGE: add.s32 %out, %in, 100;
    DONE: add.s32 %out, %out, 1000;
      ret; }
    """
    body = """
    mov.b32 %r1, 7; and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 1; add.s32 %r3, %r0, 0;
    @%p1 call (%r1), pick, (%r3);
    bar.warp.sync -1;
    """
    lanes = np.arange(64)
    called = np.where(lanes < 8, 1, np.where(lanes < 32, 1002, lanes + 1100))
    for seed in (None, 1, 2):
        np.testing.assert_array_equal(launch(function, body, seed=seed), np.where(lanes % 2 == 1, called, 7))


def test_functions_in_functions_with_loops_and_local_memory() -> None:
    """Sum of squares below n, over an array of the inner function."""
    functions = """
    .func (.param .b32 out) square(.param .b32 in)
    { .local .align 4 .b8 depot[8]; .reg .b32 %r<4>; .reg .b64 %rd<3>;
      ld.param.b32 %r1, [in]; mov.b64 %rd1, depot; st.local.b32 [%rd1+4], %r1; ld.local.b32 %r2, [%rd1+4];
      mul.lo.s32 %r3, %r1, %r2; st.param.b32 [out], %r3; ret; }
    .func (.param .b32 out) squares(.param .b32 n)
    { .reg .b32 %r<6>; .reg .pred %p<2>;
      ld.param.b32 %r1, [n]; mov.b32 %r2, 0; mov.b32 %r3, 0;
    MORE: setp.ge.s32 %p1, %r2, %r1;
      @%p1 bra END;
      { .param .b32 param0; .param .b32 retval0; st.param.b32 [param0+0], %r2;
        call.uni (retval0), square, (param0); ld.param.b32 %r4, [retval0]; }
      add.s32 %r3, %r3, %r4; add.s32 %r2, %r2, 1;
      bra.uni MORE;
    END: st.param.b32 [out], %r3; }
    """.replace("bra.uni", "bra")
    body = CALL_ADD.replace("add, (param0, param1)", "squares, (param0)").replace("st.param.b32 [param1], 1000;", "")
    expected = [sum(k * k for k in range(n)) for n in range(64)]
    np.testing.assert_array_equal(launch(functions, body), expected)


def test_structures_by_value_keep_what_has_no_value() -> None:
    """16 bytes, of which the second four are padding that nobody writes."""
    function = """
    .func (.param .align 8 .b8 out[16]) pass(.param .align 8 .b8 in[16])
    { .reg .b32 %r1; .reg .b64 %rd1;
      ld.param.b32 %r1, [in]; ld.param.b64 %rd1, [in+8]; st.param.b32 [out], %r1; st.param.b64 [out+8], %rd1; ret; }
    """
    body = """
    { .param .align 8 .b8 param0[16]; .param .align 8 .b8 retval0[16];
      st.param.b32 [param0], %r0; st.param.b64 [param0+8], 70;
      call.uni (retval0), pass, (param0);
      ld.param.b32 %r1, [retval0]; ld.param.b32 %r2, [retval0+8]; }
    add.s32 %r1, %r1, %r2;
    """
    np.testing.assert_array_equal(launch(function, body), np.arange(64) + 70)
    with pytest.raises(EmulatorFault, match="uninitialized local memory"):
        launch(function, body.replace("[retval0+8]", "[retval0+4]"))


def test_pointers_to_functions_that_differ_between_lanes() -> None:
    functions = ADD + ADD.replace(" add(", " subtract(").replace("add.s32", "sub.s32")
    body = CALL_ADD.replace(
        "call.uni (retval0), add, (param0, param1);",
        "and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 1; mov.b64 %rd3, add; mov.b64 %rd4, subtract;"
        "selp.b64 %rd5, %rd3, %rd4, %p1;\n"
        "prototype: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
        "call (retval0), %rd5, (param0, param1), prototype;",
    )
    lanes = np.arange(64)
    np.testing.assert_array_equal(launch(functions, body), np.where(lanes % 2 == 1, lanes + 1000, lanes - 1000))
    with pytest.raises(EmulatorFault, match="no function"):
        launch(functions, body.replace("call (retval0), %rd5", "add.s64 %rd5, %rd5, 99; call (retval0), %rd5"))


def test_barriers_in_functions() -> None:
    """Each thread reads what the other warp stored before the barrier in the function."""
    function = ".func sync() { bar.sync 0; ret; }\n.shared .align 4 .b8 buffer[256];\n"
    body = (
        "shl.b32 %r2, %r0, 2; mov.b32 %r3, buffer; add.s32 %r3, %r3, %r2; st.shared.b32 [%r3], %r0;\ncall.uni sync;\n"
        "xor.b32 %r2, %r2, 128; mov.b32 %r3, buffer; add.s32 %r3, %r3, %r2; ld.shared.b32 %r1, [%r3];"
    )
    np.testing.assert_array_equal(launch(function, body), np.arange(64) ^ 32)
    with pytest.raises(EmulatorFault, match=r"uninitialized shared|race"):
        launch(function, body.replace("call.uni sync;", ""))


@pytest.mark.parametrize(
    "together",
    [
        "bar.sync 0;",
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        ".reg .b32 %x; mov.b32 %x, 1; shfl.sync.idx.b32 %x, %x, 0, 31, -1;",
    ],
)
def test_half_a_warp_calls_what_takes_a_whole_one(together: str) -> None:
    """Although all lanes end soon after: the others wait behind the call. The twin calls with all of them."""
    function = f".func whole() {{ {together} ret; }}\n"
    half = "mov.b32 %r1, 7; and.b32 %r2, %r0, 31; setp.lt.u32 %p1, %r2, 16;\n@!%p1 bra Q;\ncall whole;\nQ:\n"
    for seed in (None, 1, 2):
        np.testing.assert_array_equal(launch(function, half.replace("@!%p1 bra Q;", ""), seed=seed), np.full(64, 7))
        with pytest.raises(EmulatorFault, match=r"divergence: .*line 4 "):
            launch(function, half, seed=seed)


def test_exit_in_a_function_ends_the_thread() -> None:
    function = ".func leave(.reg .b32 %in) { .reg .pred %p1; setp.lt.u32 %p1, %in, 40; @%p1 exit; ret; }\n"
    out = launch(function, "mov.b32 %r1, 5; call leave, (%r0);\n")
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 40, 0, 5))


def test_registers_of_a_function_have_no_value_when_it_is_called_again() -> None:
    function = (
        ".func (.reg .b32 %out) last(.reg .b32 %first) { .reg .b32 %kept; .reg .pred %p1; setp.eq.u32 %p1, %first, 1;\n"
        "@%p1 mov.b32 %kept, 3;\nmov.b32 %out, %kept; ret; }\n"
    )
    once = "mov.b32 %r2, 1; call (%r1), last, (%r2);\n"
    np.testing.assert_array_equal(launch(function, once), np.full(64, 3))
    with pytest.raises(EmulatorFault, match="uninitialized register"):
        launch(function, once + "mov.b32 %r2, 0; call (%r1), last, (%r2);\n")


PRINT = """
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
.global .align 1 .b8 format[32] = {37, 53, 100, 124, 37, 46, 50, 102, 124, 37, 115, 124, 37, 108, 108, 120, 37, 37, 10};
.global .align 1 .b8 word[4] = {97, 98, 99};
"""


def test_printf(capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    mov.b32 %r1, 0;
    setp.ne.u32 %p1, %r0, 3;
    @%p1 bra DONE;
    { .local .align 8 .b8 depot[32];
      .param .b64 param0; .param .b64 param1; .param .b32 retval0;
      mov.b64 %rd3, depot; cvta.local.u64 %rd4, %rd3;
      st.local.b32 [%rd3], -42; mov.b64 %rd5, 0d3FF4000000000000; st.local.b64 [%rd3+8], %rd5;
      mov.b64 %rd6, word; cvta.global.u64 %rd6, %rd6; st.local.b64 [%rd3+16], %rd6;
      mov.b64 %rd7, 0x123456789ab; st.local.b64 [%rd3+24], %rd7;
      mov.b64 %rd8, format; cvta.global.u64 %rd8, %rd8; st.param.b64 [param0], %rd8; st.param.b64 [param1], %rd4;
      call.uni (retval0), vprintf, (param0, param1);
      ld.param.b32 %r1, [retval0]; }
    DONE:
    """
    out = launch(PRINT, body, threads=32)
    assert capfd.readouterr().out == "  -42|1.25|abc|123456789ab%\n"
    np.testing.assert_array_equal(out, np.where(np.arange(32) == 3, 4, 0))


def test_assert() -> None:
    body = """
    mov.b32 %r1, 0; setp.ne.u32 %p1, %r0, 37;
    @%p1 bra FINE;
    { .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
      mov.b64 %rd6, word; cvta.global.u64 %rd6, %rd6;
      st.param.b64 [p0], %rd6; st.param.b64 [p1], %rd6; st.param.b32 [p2], 12; st.param.b64 [p3], %rd6;
      st.param.b64 [p4], 1;
      call.uni __assertfail, (p0, p1, p2, p3, p4); // here
    }
    FINE:
    """
    with pytest.raises(EmulatorFault, match="assertion: abc:12: assertion `abc` failed") as caught:
        launch(PRINT, body)
    assert (caught.value.warp, caught.value.lane) == (1, 5)
    assert caught.value.line == line_of(kernel(body + STORE, declarations=PRINT), "// here")


@pytest.mark.parametrize(
    ("declarations", "body", "error", "message"),
    [
        (ADD, CALL_ADD.replace("add, (", "other, ("), PtxError, "`other` is no function"),
        (ADD, CALL_ADD.replace(", param1)", ")"), PtxError, "`add` has 1 results and 2 arguments"),
        (ADD + ADD, CALL_ADD, PtxError, "function `add` twice"),
        (
            ADD,
            CALL_ADD.replace(".b32 param1;", ".b64 param1;").replace("[param1], 1000", "[param1], 1000"),
            PtxError,
            "a parameter of another size",
        ),
        (".extern .func strange(.param .b32 a);", "call.uni strange, (%r0);", UnsupportedPtx, "function `strange`"),
        (".func a() { call b; ret; } .func b() { call a; ret; }", "call a;", UnsupportedPtx, "within itself"),
        (ADD, "ld.param.b32 %r1, [sum];", PtxError, "not a parameter"),
    ],
)
def test_refused(declarations: str, body: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        launch(declarations, "mov.b32 %r1, 0;" + body)


def test_counts() -> None:
    out = np.zeros(64, np.int32)
    report = run_ptx(kernel(CALL_ADD + STORE, declarations=ADD), "k", 1, 64, [out])
    counted = report.warp_instructions
    assert (counted["call.uni"], counted["ret"], counted["add.s32"]) == (2, 4, 2)


def test_function_that_calls_itself_through_a_pointer() -> None:
    function = """
.func (.param .b32 sum) f(.param .b64 next, .param .b32 n)
{
  .reg .pred %p; .reg .b32 %s<3>; .reg .b64 %sd<2>;
  ld.param.b64 %sd0, [next];
  ld.param.b32 %s0, [n];
  setp.eq.u32 %p, %s0, 0;
  st.param.b32 [sum], %s0;
  @%p ret;
  sub.u32 %s1, %s0, 1;
  { .param .b64 q0; .param .b32 q1; .param .b32 r0;
    st.param.b64 [q0], %sd0; st.param.b32 [q1], %s1;
    prototype: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b32 _);
    call (r0), %sd0, (q0, q1), prototype; // here
    ld.param.b32 %s2, [r0]; }
  st.param.b32 [sum], %s2;
  ret;
}
"""
    body = """mov.u64 %rd5, f;
{ .param .b64 q0; .param .b32 q1; .param .b32 r0;
  st.param.b64 [q0], %rd5; st.param.b32 [q1], DEPTH;
  call (r0), f, (q0, q1);
  ld.param.b32 %r1, [r0]; }
"""
    np.testing.assert_array_equal(launch(function, body.replace("DEPTH", "0"), 32), np.zeros(32))
    text = kernel(body.replace("DEPTH", "3") + STORE, declarations=function)
    with pytest.raises(UnsupportedPtx, match="a call of `f` within itself") as caught:
        run_ptx(text, "k", 1, 32, [np.zeros(32, np.int32)])
    assert caught.value.line == line_of(text, "// here")
