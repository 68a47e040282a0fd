"""Break the shipped rules one line at a time, and see whether their own tests notice.

Run ``python tests/fuzz/mutants.py``, which takes a while, or add names of rules or numbers of mutants. A mutant is a
file, a text that stands in it exactly once, and what takes its place; where the text is gone the run fails, so keep the
list in step with the code. Each runs ``tests/rewrites/test_RULE.py``, up to the first failure, on a copy of the
checkout. Exit code 1 where a mutant survives.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
TIMEOUT = 600
"""Seconds until a mutant counts as caught: it made a rule endless."""


@dataclass(frozen=True)
class Mutant:
    """One way to break a rule. ``tests`` are relative to tests/rewrites; by default those of the rule."""

    rule: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The tests to run."""
        return [f"tests/rewrites/{name}" for name in self.tests or (f"test_{self.rule}.py",)]


INT16_TESTS = tuple(f"test_insert_int16_rescale{part}.py" for part in ("", "_refusals", "_sums"))

MUTANTS = (
    # ---------------------------------------------------------------- split_int48_bias
    Mutant(
        "split_int48_bias",
        "bias floored, not rounded",
        "rewrites/split_int48_bias.py",
        "    short = rounded(values, j)\n",
        "    short = values >> j\n",
    ),
    Mutant(
        "split_int48_bias",
        "first shift one too small",
        "rewrites/split_int48_bias.py",
        "np.full(j.shape, ONE), ONE_SHIFT + j\n",
        "np.full(j.shape, ONE), ONE_SHIFT + j - (j > 0)\n",
    ),
    Mutant(
        "split_int48_bias",
        "bound forgets the accumulator's rounding",
        "rewrites/split_int48_bias.py",
        "    slack = (np.int64(1) << j >> 1) + np.abs((short << j) - values)",
        "    slack = np.abs((short << j) - values)",
    ),
    Mutant(
        "split_int48_bias",
        "bias along the wrong axis",
        "rewrites/split_int48_bias.py",
        "(*(1,) * (len(accumulator.shape) - 1), -1)",
        "(-1, *(1,) * (len(accumulator.shape) - 1))",
    ),
    Mutant(
        "split_int48_bias",
        "40-bit limit off by one",
        "rewrites/_accumulator.py",
        "BIAS_LOW, BIAS_HIGH = -(1 << 39), (1 << 39) - 1\n",
        "BIAS_LOW, BIAS_HIGH = -(1 << 39), 1 << 39\n",
    ),
    Mutant(
        "split_int48_bias",
        "sum not proved to fit",
        "rewrites/_accumulator.py",
        " & fits_int32(a + c) & fits_int32(b + c))",
        ")",
    ),
    Mutant(
        "split_int48_bias",
        "last shift not reduced",
        "rewrites/_accumulator.py",
        "np.broadcast_arrays(reader.multiplier, reader.shift - pre_shift)",
        "np.broadcast_arrays(reader.multiplier, reader.shift)",
    ),
    Mutant(
        "split_int48_bias",
        "readers that are outputs ignored",
        "rewrites/_accumulator.py",
        "            elif isinstance(user.attrs, Exit):\n                return Refusal(",
        "            elif isinstance(user.attrs, Exit):\n                continue\n                return Refusal(",
    ),
    # ---------------------------------------------------------------- fuse_int48_bias
    Mutant(
        "fuse_int48_bias",
        "division that leaves a rest accepted",
        "rewrites/fuse_int48_bias.py",
        "        if rest:\n",
        "        if rest and not m_c:\n",
    ),
    Mutant(
        "fuse_int48_bias",
        "constant of the first channel for all",
        "rewrites/fuse_int48_bias.py",
        "    first: Integers = rows[0]\n",
        "    first: Integers = rows[0, :1]\n",
    ),
    Mutant(
        "fuse_int48_bias",
        "other readers not asked for",
        "rewrites/fuse_int48_bias.py",
        "        if others:\n",
        "        if len(others) > 1:\n",
    ),
    Mutant(
        "fuse_int48_bias",
        "INT48 limit of the accumulator dropped",
        "rewrites/fuse_int48_bias.py",
        "    if not within_int48(low, high):\n",
        "    if low > high:\n",
    ),
    # ---------------------------------------------------------------- single_rescale_per_accumulator
    Mutant(
        "single_rescale_per_accumulator",
        "half unit of the first rounding forgotten",
        "rewrites/_first_rescale.py",
        "worst = max(worst, ratio / 2 + min(value",
        "worst = max(worst, min(value",
    ),
    Mutant(
        "single_rescale_per_accumulator",
        "ratio of the scales upside down",
        "rewrites/_first_rescale.py",
        "Fraction(m << s0, m0 << s)",
        "Fraction(m0 << s, m << s0)",
    ),
    Mutant(
        "single_rescale_per_accumulator",
        "only one end proved to fit INT32",
        "rewrites/_first_rescale.py",
        "(fits_int32(low) & fits_int32(high)).all()",
        "fits_int32(low).all()",
    ),
    # ---------------------------------------------------------------- legalize_int48_rescale
    Mutant(
        "legalize_int48_rescale",
        "last half LSB missing in two steps",
        "rewrites/_legal_rescale.py",
        "    bound = Fraction(last) + (max(scales) / 2 if j else 0)\n",
        "    bound = Fraction(last)\n",
    ),
    Mutant(
        "legalize_int48_rescale",
        "second shift not reduced by j",
        "rewrites/_legal_rescale.py",
        "    shift = meaning.shift - pre_shift\n",
        "    shift = meaning.shift\n",
    ),
    Mutant(
        "legalize_int48_rescale",
        "j = 0 on Ethos-U85",
        "rewrites/_legal_rescale.py",
        "1 if is_ethos_u85(target) else 0)",
        "0)",
    ),
    Mutant(
        "legalize_int48_rescale",
        "output zero point lost",
        "rewrites/legalize_int48_rescale.py",
        "        output_zp=meaning.output_zp,\n",
        "        output_zp=0,\n",
    ),
    Mutant(
        "legalize_int48_rescale",
        "per-channel flag lost",
        "rewrites/legalize_int48_rescale.py",
        "        per_channel=op.attrs.per_channel,\n",
        "        per_channel=False,\n",
    ),
    # ---------------------------------------------------------------- insert_int16_rescale
    Mutant(
        "insert_int16_rescale",
        "SUB adds",
        "rewrites/_int16/elementwise.py",
        "    low, high = (held_b.low, held_b.high) if sign > 0 else (-held_b.high, -held_b.low)\n",
        "    low, high = held_b.low, held_b.high\n",
        INT16_TESTS,
    ),
    Mutant(
        "insert_int16_rescale",
        "MAXIMUM on the larger scale",
        "rewrites/_int16/elementwise.py",
        "    common = min(scale_a, scale_b)\n    wide_a, held_a = _widen(a, scale_a / common, context)\n"
        "    wide_b, held_b = _widen(b, scale_b / common, context)\n    is_maximum",
        "    common = max(scale_a, scale_b)\n    wide_a, held_a = _widen(a, scale_a / common, context)\n"
        "    wide_b, held_b = _widen(b, scale_b / common, context)\n    is_maximum",
        INT16_TESTS,
    ),
    Mutant(
        "insert_int16_rescale",
        "range that RESCALE takes not asked for",
        "rewrites/_int16/scaling.py",
        "        if values.low < first[pair] or values.high > last[pair]:\n",
        "        if values.low < first[pair]:\n",
        INT16_TESTS,
    ),
    Mutant(
        "insert_int16_rescale",
        "error of the multiplier not counted",
        "rewrites/_int16/scaling.py",
        "        error = values.error * scale + saturating * abs(effective - scale)\n",
        "        error = values.error * scale\n",
        INT16_TESTS,
    ),
    # ---------------------------------------------------------------- int16_matmul_as_int8
    Mutant(
        "int16_matmul_as_int8",
        "offset of the low byte",
        "rewrites/int16_matmul_as_int8.py",
        'builder.const(np.full((1,) * len(x.shape), -128), DType.INT32, "offset")',
        'builder.const(np.full((1,) * len(x.shape), -127), DType.INT32, "offset")',
    ),
    Mutant(
        "int16_matmul_as_int8",
        "zero point of the low byte",
        "rewrites/int16_matmul_as_int8.py",
        "    return (high, 0), (low, -128)\n",
        "    return (high, 0), (low, -127)\n",
    ),
    Mutant(
        "int16_matmul_as_int8",
        "one guard bit too many",
        "rewrites/int16_matmul_as_int8.py",
        "worst < 1 << 29:",
        "worst < 1 << 31:",
    ),
    Mutant(
        "int16_matmul_as_int8",
        "terms of a cross product counted once too few",
        "rewrites/int16_matmul_as_int8.py",
        "    if max(products.values()) >= 1 << 31:\n",
        "    if max(products.values()) > 1 << 32:\n",
    ),
    # ---------------------------------------------------------------- convolutions in other forms
    Mutant(
        "transpose_conv2d_as_conv2d",
        "taps not reversed",
        "rewrites/transpose_conv2d_as_conv2d.py",
        "[:, ::-1, :, ::-1]",
        "[:, :, :, ::-1]",
    ),
    Mutant(
        "transpose_conv2d_as_conv2d",
        "missing taps filled with 0",
        "rewrites/transpose_conv2d_as_conv2d.py",
        "depth), zero, weight.dtype)",
        "depth), 0, weight.dtype)",
    ),
    Mutant(
        "transpose_conv2d_as_conv2d",
        "per-channel multipliers not repeated by phase",
        "rewrites/transpose_conv2d_as_conv2d.py",
        'builder.const(np.tile(t.values(), phases), t.dtype, "scale")',
        'builder.const(np.repeat(t.values(), phases), t.dtype, "scale")',
    ),
    Mutant(
        "transpose_conv2d_as_conv2d",
        "rows and columns of a phase exchanged",
        "rewrites/_depth_to_space.py",
        "    sy, sx = block\n",
        "    sx, sy = block\n",
    ),
    Mutant(
        "conv3d_as_conv2d",
        "depth padded with 0",
        "rewrites/conv3d_as_conv2d.py",
        "(0, 0)], zero)\n",
        "(0, 0)], 0)\n",
    ),
    Mutant(
        "conv3d_as_conv2d",
        "dilation along depth ignored",
        "rewrites/conv3d_as_conv2d.py",
        "tap * dilation, stride, out_depth)",
        "tap, stride, out_depth)",
    ),
    Mutant(
        "conv3d_as_conv2d",
        "depth taps behind the channels",
        "rewrites/conv3d_as_conv2d.py",
        "transpose(0, 2, 3, 1, 4))",
        "transpose(0, 2, 3, 4, 1))",
    ),
    Mutant(
        "resize_bilinear_as_conv2d",
        "fraction of a phase without its offset",
        "rewrites/resize_bilinear_as_conv2d.py",
        "divmod(phase * denominator + offset, numerator)",
        "divmod(phase * denominator, numerator)",
    ),
    Mutant(
        "resize_bilinear_as_conv2d",
        "weights exchanged",
        "rewrites/resize_bilinear_as_conv2d.py",
        "        row[index - first] += numerator - fraction\n",
        "        row[index - first] += fraction\n",
    ),
    Mutant(
        "resize_bilinear_as_conv2d",
        "largest weight off by one",
        "rewrites/resize_bilinear_as_conv2d.py",
        "LARGEST_WEIGHT = 127\n",
        "LARGEST_WEIGHT = 128\n",
    ),
    # ---------------------------------------------------------------- bool_as_int32 and the clean-up
    Mutant(
        "remove_identity_rescale",
        "zero points not compared",
        "rewrites/remove_identity_rescale.py",
        "        if input_zp.tolist() != output_zp.tolist():\n            return None\n",
        "",
    ),
    Mutant(
        "remove_identity_rescale",
        "only the upper end tried",
        "rewrites/remove_identity_rescale.py",
        "    return np.stack([low, high]) - zero_point\n",
        "    return np.stack([high, high]) - zero_point\n",
    ),
    Mutant(
        "remove_identity_rescale",
        "zero point added, not taken off",
        "rewrites/remove_identity_rescale.py",
        "    return np.stack([low, high]) - zero_point\n",
        "    return np.stack([low, high]) + zero_point\n",
    ),
    Mutant(
        "deduplicate_constants",
        "shape not compared",
        "rewrites/deduplicate_constants.py",
        "constant.has_shape, constant.shape, constant.table",
        "constant.has_shape, constant.table",
    ),
    # ---------------------------------------------------------------- widen_int8_activations
    Mutant(
        "widen_int8_activations",
        "values at another place of int16",
        "rewrites/_widen/families.py",
        "FACTOR_BITS = 7\n",
        "FACTOR_BITS = 6\n",
        ("test_widen_int8_activations.py", "widen"),
    ),
    Mutant(
        "widen_int8_activations",
        "zero point of narrow results lost",
        "rewrites/_widen/rescale.py",
        "narrow(writer, op, scales, DType.INT8, target.name, output_zp=_output_zero_point(writer, op))",
        "narrow(writer, op, scales, DType.INT8, target.name, output_zp=0)",
        ("test_widen_int8_activations.py", "widen"),
    ),
)


def run(mutant: Mutant, checkout: Path) -> tuple[bool, float]:
    """Whether the tests notice, and the seconds they took."""
    path = checkout / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.file} has {text.count(mutant.old)} times, not once: {mutant.old!r}")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.paths]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        code = done.returncode
    except subprocess.TimeoutExpired:
        code = 1
    finally:
        path.write_text(text, encoding="utf-8")
    if code not in (0, 1):
        sys.exit(f"the tests of {mutant.rule} did not run:\n{done.stdout}{done.stderr}")
    return code == 1, time.monotonic() - start


def main(chosen: list[str]) -> int:
    """Run the chosen mutants, all without any; 1 where one survives."""
    wanted = [
        (number, mutant)
        for number, mutant in enumerate(MUTANTS, start=1)
        if not chosen or mutant.rule in chosen or str(number) in chosen
    ]
    survivors = 0
    with TemporaryDirectory() as scratch:
        checkout = Path(scratch, "checkout")
        leave = shutil.ignore_patterns(".git", "*.pyc", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
        shutil.copytree(ROOT, checkout, ignore=leave)
        for number, mutant in wanted:
            caught, seconds = run(mutant, checkout)
            survivors += not caught
            verdict = "caught" if caught else "SURVIVES"
            print(f"{number:>3}  {mutant.rule:32}{mutant.what:50}{verdict:10}{seconds:6.1f} s", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
