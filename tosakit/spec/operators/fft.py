"""FFT2D and RFFT2D: sizes that are powers of two."""

from tosakit.spec.call import AnyCall, Codes

FFT2D = Codes(
    sizes={"input_imag": "FFTInputShapeMismatch"},
    result="FFTOutputShapeMismatch",
    result_sizes={"N": "BatchMismatch"},
)


def fft2d(call: AnyCall) -> None:
    """FFT2D and RFFT2D; RFFT2D gives the non-redundant half of every row."""
    for axis in "HW":
        size = call.size(axis)
        if size is not None and size & (size - 1):
            call.error("KernelNotPowerOfTwo", f"{axis} is {size}, it must be a power of two", *call.operands)
    width = call.size("W")
    call.bind("W/2+1", None if width is None else width // 2 + 1)
