"""Shapes, attributes and constants that a compiler may draw a line at: variations of the forms of one operator."""

import inspect
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from tests.support.single_operators import FORMS, MAP, Types, build, rows
from tosakit.ir.enums import DType, ResizeMode, RoundingMode
from tosakit.ir.program import Program

INTEGERS = (DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.BOOL)

SHAPES = (
    *(
        (),
        (7,),
        (3, 7),
        (2, 3, 7),
        (3, 4, 5, 8),
        (2, 1, 4, 5, 8),
        (2, 3, 4, 5, 8),
        (2, 3, 2, 4, 5, 8),
        (1, 1, 1, 4, 5, 8),
    ),
    *(
        (2, 1, 3, 2, 4, 5, 8),
        (1, 2, 1, 3, 2, 4, 5, 8),
        (70000,),
        (2, 70000),
        (70000, 2),
        (1, 70000, 2, 2),
        (1, 2, 70000, 2),
    ),
    (70000, 1, 2, 2),
)
"""Ranks, batches and long axes."""

PAIRS = (
    *((MAP, (1, 1, 1, 8)), (MAP, (1, 1, 1, 1)), ((1, 4, 1, 8), (1, 1, 5, 8)), ((2, 4, 5, 8), (1, 4, 5, 8))),
    *(((2, 3, 4, 5, 8), (2, 1, 4, 1, 8)), ((2, 1, 4, 5, 8), (1, 3, 4, 5, 1)), ((1, 1, 1, 8), MAP)),
)
"""Shapes of two operands that broadcast."""

WINDOWS: dict[str, list[dict[str, Any]]] = {
    "CONV2D": [
        *(
            {"kernel": k}
            for k in ((1, 1), (1, 7), (64, 1), (64, 64), (65, 64), (1, 65), (65, 1), (128, 3), (3, 128), (1, 4000))
        ),
        *({"stride": s} for s in ((2, 2), (3, 3), (4, 4), (1, 5), (7, 2), (40, 1), (300, 300))),
        *({"dilation": d} for d in ((2, 2), (3, 1), (4, 4), (1, 7), (40, 40))),
        *({"stride": s, "dilation": d} for s, d in product(((2, 2), (4, 4)), ((2, 2), (4, 4)))),
        *({"pad": p} for p in ((1, 1, 1, 1), (2, 0, 0, 2), (0, 2, 2, 0), (2, 2, 2, 2), (5, 0, 0, 0))),
        *({"kernel": (1, 1), "pad": p} for p in ((1, 1, 1, 1), (0, 0, 0, 3))),
        *({"kernel": (1, 1), "stride": s} for s in ((2, 2), (5, 5))),
        *({"n": 2}, {"n": 5, "kernel": (1, 1)}, {"zeros": (3, 0)}, {"zeros": (0, 2)}, {"zeros": (-128, -7)}),
        *({"biases": 1}, {"dynamic": ("weight",)}, {"dynamic": ("bias",)}, {"dynamic": ("weight", "bias")}),
        *({"dynamic": ("input_zp",)}, {"dynamic": ("weight_zp",)}, {"dynamic": ("weight",), "kernel": (1, 1)}),
        *(
            {"ic": 70000, "kernel": (1, 1)},
            {"oc": 70000, "ic": 1, "kernel": (1, 1)},
            {"out": (1, 70000), "kernel": (1, 1)},
        ),
        *(
            {"out": (70000, 1), "kernel": (1, 1), "ic": 2},
            {"ic": 1},
            {"oc": 1},
            {"ic": 1, "oc": 1},
            {"oc": 17},
            {"ic": 33},
        ),
    ],
    "MAX_POOL2D": [
        *(
            {"kernel": k, "stride": (1, 1)}
            for k in ((1, 1), (8, 8), (9, 9), (256, 1), (256, 256), (257, 1), (1, 257), (1, 600))
        ),
        *({"stride": s} for s in ((1, 1), (1, 2), (3, 3), (4, 4), (5, 1), (1, 5), (40, 40))),
        *(
            {"kernel": k, "stride": (1, 1), "pad": p}
            for k in ((3, 3), (9, 9))
            for p in ((1, 1, 1, 1), (2, 0, 0, 2), (2, 2, 2, 2))
        ),
        *(
            {"n": 2},
            {"n": 3, "c": 70000, "out": (1, 1)},
            {"out": (1, 70000), "c": 2},
            {"out": (70000, 1), "c": 2},
            {"c": 1},
        ),
    ],
}
WINDOWS["AVG_POOL2D"] = [
    *WINDOWS["MAX_POOL2D"],
    *({"kernel": k, "stride": k} for k in ((8, 8), (9, 9), (64, 64), (300, 300))),
    *({"dynamic": (name,)} for name in ("input_zp", "output_zp")),
]
WINDOWS["DEPTHWISE_CONV2D"] = [{"oc": 1, **v} for v in WINDOWS["CONV2D"] if v.get("oc", 1) < 100] + [
    {"oc": 3},
    {"ic": 1, "oc": 8},
]
WINDOWS["TRANSPOSE_CONV2D"] = [
    *(
        {"kernel": k, "stride": s}
        for k in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 3))
        for s in ((1, 1), (2, 2), (3, 3), (1, 2), (2, 1))
    ),
    *(
        {"pad": p, "stride": s}
        for p in ((1, 1, 1, 1), (-1, -1, -1, -1), (-1, 0, 0, -1), (2, 0, 0, 0))
        for s in ((1, 1), (2, 2))
    ),
    *({"out": (1, 4), "kernel": (1, k), "stride": (1, s)} for k, s in ((2, 2), (3, 2), (3, 3), (4, 4))),
    *({"out": (4, 1), "kernel": (k, 1), "stride": (s, 1)} for k, s in ((2, 2), (3, 2), (3, 3))),
    *(
        {"n": 2},
        {"n": 2, "stride": (2, 2)},
        {"zeros": (3, 2)},
        {"biases": 1},
        {"dynamic": ("weight",)},
        {"dynamic": ("bias",)},
    ),
    *({"ic": 1}, {"oc": 1}, {"kernel": (64, 64)}, {"kernel": (65, 65)}, {"dynamic": ("input_zp",)}),
]
ONES = (1, 1, 1)
WINDOWS["CONV3D"] = [
    *(
        {"kernel": k, "out": (2, 4, 4), "stride": ONES, "dilation": ONES, "pad": (0,) * 6}
        for k in ((1, 1, 1), (1, 3, 3), (2, 1, 1), (2, 3, 3), (3, 3, 3))
    ),
    *(
        {"kernel": (1, 3, 3), "out": (d, 4, 4), "stride": s, "dilation": ONES, "pad": (0,) * 6, "n": n}
        for d, n in ((1, 1), (1, 2), (3, 2))
        for s in (ONES, (2, 1, 1), (1, 2, 2))
    ),
    {"kernel": (1, 1, 1), "out": (2, 4, 4), "stride": ONES, "dilation": (2, 2, 2), "pad": (0,) * 6},
    {"kernel": (1, 3, 3), "out": (2, 4, 4), "stride": ONES, "dilation": (1, 2, 2), "pad": (0, 0, 1, 1, 1, 1)},
    {"kernel": (1, 3, 3), "out": (4, 4, 4), "stride": ONES, "dilation": ONES, "pad": (1, 1, 1, 1, 1, 1)},
    {"kernel": (2, 3, 3), "out": (1, 4, 4), "stride": ONES, "dilation": ONES, "pad": (0, 0, 1, 1, 1, 1)},
    *(
        {"dynamic": ("weight",)},
        {"dynamic": ("bias",)},
        {"zeros": (3, 2)},
        {"biases": 1},
        {"n": 2},
        {"dynamic": ("input_zp",)},
    ),
]

OTHERS: dict[str, list[dict[str, Any]]] = {
    "ARGMAX": [
        *(
            {"shape": s, "axis": a}
            for s in ((7,), (3, 7), (2, 3, 7), (2, 3, 4, 7), (1, 3, 4, 7), (2, 1, 3, 4, 7))
            for a in range(len(s))
        ),
        *({"shape": (1, 3, 4, c), "axis": 3} for c in (126, 127, 128, 300, 40000)),
        *({"shape": (1, c, 4, 3), "axis": 1} for c in (127, 128, 40000, 70000)),
    ],
    "CONCAT": [
        {"shape": s, "axis": a, "count": n}
        for s in ((7,), (2, 3, 7), MAP, (2, 3, 4, 5, 8), (2, 1, 3, 2, 4, 5, 8))
        for a in range(len(s))
        for n in (1, 2, 5)
    ],
    "GATHER": [
        {"n": 3},
        {"w": 1},
        {"c": 1},
        {"k": 70000, "c": 2},
        {"w": 70000, "c": 2},
        {"n": 70000, "k": 1, "w": 1, "c": 1},
        {"c": 70000, "k": 2},
    ],
    "MATMUL": [
        *(
            {"n": 3},
            {"h": 1},
            {"w": 1},
            {"c": 1},
            {"zeros": (3, 5)},
            {"c": 70000, "h": 1, "w": 1},
            {"h": 70000, "c": 1, "w": 1},
        ),
        *(
            {"w": 70000, "c": 1, "h": 1},
            {"n": 70000, "h": 1, "w": 1, "c": 1},
            {"c": 65536, "h": 1, "w": 1},
            {"dynamic": ("A_zp",)},
        ),
    ],
    "MUL": [{"shift": 5}, {"shift": 31}, {"shift": 1}, {"dynamic": ("shift",)}],
    "NEGATE": [{"zero": 3}, {"zero": -128}, {"dynamic": ("input1_zp",)}, {"dynamic": ("output_zp",)}],
    "PAD": [
        *(
            {"value": 1},
            {"before": 0, "after": 0},
            {"before": 0},
            {"dynamic": ("padding",)},
            {"dynamic": ("pad_const",)},
        ),
    ],
    "RESHAPE": [
        {"shape": s, "result": r}
        for s, r in (((8,), (1, 2, 1, 2, 2)), (MAP, (4, 5, 8)), ((1,), ()), ((), (1, 1)), ((2, 3, 4, 5, 8), (40, 24)))
    ],
    "RESCALE": [
        *({"zeros": z} for z in ((3, 0), (0, 5), (-128, -128), (127, 127))),
        *({"per_channel": True, "shape": s} for s in (MAP, (8,), (3, 8), (2, 3, 4, 5, 8), (2, 4, 5, 8))),
        *(
            {"multiplier": m, "shift": s}
            for m, s in (
                (0, 14),
                (1, 2),
                (20000, 2),
                (20000, 14),
                (20000, 31),
                (20000, 40),
                (32767, 46),
                (1, 46),
                (1 << 14, 10),
            )
        ),
        *({"rounding": r} for r in (RoundingMode.INEXACT_ROUND, RoundingMode.DOUBLE_ROUND)),
        *({"unsigned": u} for u in ((True, False), (False, True))),
        *({"dynamic": (name,)} for name in ("multiplier", "shift", "input_zp", "output_zp")),
    ],
    "RESIZE": [
        *(
            {"mode": mode, "scale": (sy, dy, sx, dx), "offset": offset, "border": border, "size": (5, 5)}
            for mode in (ResizeMode.NEAREST, ResizeMode.BILINEAR)
            for (sy, dy, sx, dx), offset, border in (
                *(((2, 1, 2, 1), o, b) for o, b in (((0, 0), (1, 1)), ((-1, -1), (1, 1)), ((0, 0), (0, 0)))),
                *(
                    ((4, 2, 4, 2), o, b)
                    for o, b in (((0, 0), (0, 0)), ((0, 0), (2, 2)), ((-1, -1), (1, 1)), ((-1, -1), (3, 3)))
                ),
                *(((s, 1, s, 1), (0, 0), (0, 0)) for s in (1, 3, 4, 8, 16)),
                *(((s, 1, s, 1), (0, 0), (s - 1, s - 1)) for s in (3, 4, 8, 16)),
                *(((8, 2, 8, 2), o, b) for o, b in (((0, 0), (0, 0)), ((-3, -3), (3, 3)))),
                *(
                    ((3, 1, 4, 1), (0, 0), (0, 0)),
                    ((2, 1, 4, 1), (0, 0), (0, 0)),
                    ((1, 2, 1, 2), (0, 0), (0, 0)),
                    ((3, 2, 3, 2), (0, 0), (0, 0)),
                ),
                *(
                    ((4, 1, 2, 1), (0, 0), (3, 1)),
                    ((6, 2, 6, 2), (-2, -2), (2, 2)),
                    ((2, 1, 2, 1), (0, 0), (1, 0)),
                    ((1, 1, 2, 1), (0, 0), (0, 0)),
                ),
            )
        ),
        *(
            {"size": s, "mode": m, "border": (1, 1)}
            for s in ((1, 1), (1, 5), (5, 1))
            for m in (ResizeMode.NEAREST, ResizeMode.BILINEAR)
        ),
        *(
            {"n": 2},
            {"c": 1},
            {"c": 70000, "size": (2, 2)},
            {"size": (2, 70000), "c": 1},
            {"size": (1, 1), "scale": (4, 1, 4, 1), "border": (3, 3)},
        ),
    ],
    "REVERSE": [
        {"shape": s, "axis": a}
        for s in ((7,), (2, 7), (2, 3, 7), (3, 4, 5, 8), (2, 3, 4, 5, 8), (2, 1, 3, 4, 5, 8))
        for a in range(len(s))
    ],
    "SLICE": [
        *(
            {"shape": s, "start": (1,) * len(s), "size": tuple(max(1, x - 2) for x in s)}
            for s in ((7,), (3, 7), (3, 4, 5, 8), (3, 3, 4, 5, 8), (3, 3, 3, 3, 3, 3))
        ),
    ],
    "TABLE": [{"dynamic": ("table",)}],
    "TILE": [
        {"shape": s, "multiples": m}
        for s, m in (
            ((7,), (3,)),
            ((2, 7), (3, 2)),
            (MAP, (2, 1, 1, 1)),
            (MAP, (2, 3, 2, 3)),
            ((2, 3, 4, 5, 8), (2, 2, 2, 2, 2)),
            ((1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1)),
        )
    ],
    "TRANSPOSE": [
        *({"shape": (3, 4, 5, 8)[-r:], "perms": p} for r in (1, 2, 3, 4) for p in permutations(range(r))),
        *({"shape": (2, 3, 4, 5, 8), "perms": p} for p in list(permutations(range(5)))[::7]),
        *(
            {"shape": (2, 3, 2, 3, 4, 5), "perms": p}
            for p in ((5, 4, 3, 2, 1, 0), (0, 1, 2, 3, 5, 4), (1, 0, 2, 3, 4, 5), (0, 2, 4, 1, 3, 5))
        ),
        *(
            {"shape": s, "perms": p}
            for s in ((1, 70000, 2, 2), (1, 2, 2, 70000), (1, 2, 70000, 2))
            for p in ((0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 2, 1), (0, 2, 3, 1))
        ),
        *({"shape": (1, 2, 3, c), "perms": (0, 2, 1, 3)} for c in (16384, 16385, 65536)),
    ],
}
OTHERS["SCATTER"] = OTHERS["GATHER"]
for _name in ("REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM"):
    OTHERS[_name] = [
        *(
            {"shape": s, "axis": a}
            for s in ((7,), (2, 7), (2, 3, 7), (3, 4, 5, 8), (2, 3, 4, 5, 8), (2, 1, 3, 4, 5, 8))
            for a in range(len(s))
        ),
        *({"shape": (1, 2, 3, c), "axis": 3} for c in (300, 70000)),
        *({"shape": (1, c, 2, 3), "axis": 1} for c in (300, 70000)),
        *({"shape": (1, 2, c, 3), "axis": 2} for c in (300, 70000)),
    ]


def variations(name: str) -> Iterator[dict[str, Any]]:
    """Keyword arguments of the form of an operator."""
    form = FORMS[name]
    takes = inspect.signature(form).parameters
    if "second" in takes:
        yield from ({"shape": a, "second": b} for a, b in PAIRS)
    if (
        "shape" in takes
        and name not in ("ARGMAX", "CONCAT", "REVERSE", "TRANSPOSE", "SLICE", "TILE", "PAD")
        and "axis" not in takes
    ):
        yield from ({"shape": shape} for shape in SHAPES)
    if name in ("PAD", "SLICE", "TILE"):
        yield from ({"shape": shape} for shape in SHAPES if shape and max(shape) < 70000)
    yield from WINDOWS.get(name, [])
    yield from OTHERS.get(name, [])


def integer_rows(name: str) -> Iterator[Types]:
    """The combinations of integer and truth types."""
    for types in rows(name):
        if all(value in INTEGERS for value in types.values()):
            yield types


def every_variation() -> Iterator[tuple[str, Program]]:
    """Every variation of every operator in every combination of integer types that TOSA allows it in."""
    for name, form in FORMS.items():
        for types in integer_rows(name):
            kinds = " ".join(value.name.lower() for value in types.values())
            for keywords in variations(name):
                told = " ".join(f"{key}={value}".replace(" ", "") for key, value in keywords.items())
                yield f"{name} {kinds} {told}", build(name, types, form(types, **keywords))
                if DType.INT48 in types.values() and name != "RESCALE":
                    narrow = build(name, types, form(types, **keywords), rescaled=True)
                    yield f"{name} {kinds} {told} RESCALE", narrow
