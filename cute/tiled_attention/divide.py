"""Division of many numbers by one that is known only when a kernel runs, as products."""

from cutlass import Int32, Int64, Uint32


def reciprocal(divisor: Int32) -> Int64:
    """2^32 / divisor, rounded up; divisor is positive."""
    return Int64(Uint32(0xFFFFFFFF) // Uint32(divisor)) + Int64(1)


def quotient(number: Int32, of_divisor: Int64) -> Int32:
    """number // divisor, exactly, for 0 <= number < 2^32 / divisor.

    The reciprocal is less than 1 too large, so the product is less than number too large, of 2^32; what is to be lost
    in rounding down lets it grow by 2^32 / divisor.
    """
    return Int32((Int64(number) * of_divisor) >> Int64(32))
