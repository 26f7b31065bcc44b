"""Tutorials for Blackwell."""

from tests.emulator.public.cases import example

FOLDER = "cute/blackwell/tutorial/tutorial_gemm"

CASES = [
    *(
        example(
            f"tutorial_fp16_gemm_{number}",
            "sm_100a",
            f"{FOLDER}/fp16_gemm_{number}.py",
            "run_dense_gemm",
            mnk=(512, 512, 256),
            tolerance=0.1,
        )
        for number in ("0", "1", "2", "3", "3_1", "4", "5", "6")
    ),
    *(
        example(
            f"tutorial_nvfp4_gemm_{number}",
            "sm_100a",
            f"{FOLDER}/nvfp4_gemm_{number}.py",
            "run_nvfp4_gemm",
            mnkl=(256, 256, 1024, 1),
            tolerance=0.1,
        )
        for number in ("0", "1")
    ),
]
