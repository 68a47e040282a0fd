"""Dependencies point one way, heavy packages stay where they belong, and one rule is one file, one test, one name."""

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewrites
from tosakit.engine.rule import Rule, Transform

ROOT = Path(__file__).parents[1]

ALLOWED: dict[str, str] = {
    "errors": "",
    "_version": "",
    "_gc": "",
    "ir": "errors",
    "io": "_gc errors ir",
    "numerics": "errors ir",
    "spec": "_gc errors io ir numerics",
    "engine": "_gc errors ir numerics",
    "_child": "errors",
    "_interface": "errors ir",
    "catalogue": "engine errors",
    "oracle": "_child _interface engine errors io ir numerics spec",
    "backend": "_child _interface catalogue engine errors io ir numerics spec",
    "testing": "_version catalogue engine errors io ir numerics oracle rewriting spec",
    "rewriting": "backend catalogue engine errors io ir oracle spec",
    "outlook": "backend catalogue ir rewriting",
    "cli": "_version backend catalogue engine errors io ir oracle outlook rewriting spec testing",
    "__init__": "_version engine errors io ir oracle rewriting spec",
    "__main__": "cli",
}
"""What each part of tosakit may import, beside itself: ir <- io, numerics, spec <- engine <- oracle <- cli."""

HOMES = {
    "networkx": ("tosakit/ir/networkx_view.py", "tosakit/ir/graph.py"),
    "ml_dtypes": ("tosakit/ir/types.py",),
    "flatbuffers": ("tosakit/io",),
    "rich": ("tosakit/cli",),
    "hypothesis": ("tosakit/testing",),
    "pytest": ("tosakit/testing",),
    "tosa": ("tosakit/_interface.py", "tosakit/spec/scan.py"),
}
"""Packages that these places alone may import."""

NOBODY = ("rewrites", "tests", "ethosu", "tosa_reference_model", "tosa_serializer")
"""Packages that tosakit imports nowhere: rules are found by name, native tools run in a process of their own."""

RULE_FILES = sorted(path.stem for path in (ROOT / "rewrites").glob("*.py") if not path.name.startswith("_"))


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sources("tosakit"), ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    inside = path.relative_to(ROOT).with_suffix("").parts
    part = inside[1]
    for name in imports(path):
        package, *rest = name.split(".")
        if package == "tosakit":
            target = rest[0]
            assert target == part or target in ALLOWED[part].split(), f"tosakit.{part} must not import {name}"
        assert package not in NOBODY, f"tosakit must not import {name}"
        where = "/".join(path.relative_to(ROOT).parts)
        homes = HOMES.get(package, ("tosakit",))
        inside_home = any(f"{where}/".startswith(f"{home}/") for home in homes)
        assert inside_home, f"only {', '.join(homes)} may import {package}"


@pytest.mark.parametrize("path", sources("rewrites"), ids=lambda path: str(path.relative_to(ROOT)))
def test_rules_use_the_packages_below_them(path: Path) -> None:
    for name in imports(path):
        package, *rest = name.split(".")
        assert package not in HOMES
        assert package not in NOBODY[1:]
        if package == "tosakit" and rest[:2] != ["backend", "targets"]:  # what targets take is data, for rules too
            assert rest[0] not in ("backend", "catalogue", "cli", "rewriting", "testing"), f"no rule may import {name}"


def test_the_tables_speak_of_what_is_there() -> None:
    there = (ROOT / "tosakit").iterdir()
    parts = {path.stem for path in there if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts == set(ALLOWED)
    assert all((ROOT / home).exists() for homes in HOMES.values() for home in homes)


@pytest.mark.parametrize("folder", ["tosakit/ir", "tosakit/io", "tosakit/engine", "tosakit/numerics", "rewrites"])
def test_nothing_iterates_a_set(folder: str) -> None:
    """Their order depends on the hash seed, so sets may only be counted or asked for membership."""
    for path in sources(folder):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        harmless = [node for parent in ast.walk(tree) for node in counted_or_asked(parent)]
        kept: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and is_set(node.value) and isinstance(node.targets[0], ast.Name):
                kept.append(node.targets[0].id)
                harmless.append(node.value)
        for node in ast.walk(tree):
            loads = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in kept
            if (is_set(node) or loads) and node not in harmless:
                line = getattr(node, "lineno", 0)
                pytest.fail(f"{path}:{line}: use a dict, whose order is that of insertion")


def is_set(node: ast.AST) -> bool:
    call = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("set", "frozenset")
    return call or isinstance(node, ast.Set | ast.SetComp)


def counted_or_asked(node: ast.AST) -> list[ast.expr]:
    """Expressions that the node only counts, sorts, or asks for membership."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("len", "sorted"):
        return node.args
    return node.comparators if isinstance(node, ast.Compare) else []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tosakit", "numpy networkx rich flatbuffers"),
        ("tosakit.cli", "numpy networkx rich flatbuffers"),
        ("tosakit.cli.show", "networkx rich flatbuffers ml_dtypes tosakit.ir.text_parser"),
    ],
)
def test_start_up_imports_nothing_heavy(module: str, absent: str) -> None:
    program = f"import sys, {module}; print([name for name in {absent.split()} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------ rules
@pytest.mark.parametrize("name", RULE_FILES)
def test_one_rule_is_one_file_one_test_one_name(name: str) -> None:
    module = importlib.import_module(f"rewrites.{name}")
    found = [value for value in vars(module).values() if isinstance(value, Rule | Transform)]
    assert [step.name for step in found] == [name]
    assert found[0] is getattr(module, "RULE" if isinstance(found[0], Rule) else "TRANSFORM")
    assert [step.name for step in rewrites.RULES].count(name) == 1
    assert (module.__doc__ or "").splitlines()[0].endswith(".")
    assert (ROOT / "tests" / "rewrites" / f"test_{name}.py").exists()
    golden = (ROOT / "tests" / "rewrites" / f"{name}.txt").read_text(encoding="utf-8")
    assert "=== fires: " in golden
    assert "=== refuses: " in golden


def test_the_rules_listed_are_the_rules_there_are() -> None:
    assert sorted(step.name for step in rewrites.RULES) == RULE_FILES
    for name, pipeline in rewrites.PIPELINES.items():
        assert all(step in rewrites.RULES for step in pipeline), name
        again = [step.name for at, step in enumerate(pipeline) if step in pipeline[:at]]
        assert again == ["fold_constants"] * (name == "ethos-u") + ["remove_dead_code"], name


def test_the_page_on_ethos_u_names_every_rule_of_its_pipeline() -> None:
    page = (ROOT / "docs" / "ethos-u.md").read_text(encoding="utf-8")
    assert [step.name for step in rewrites.PIPELINES["ethos-u"] if f"`{step.name}`" not in page] == []


def test_private_modules_of_rules_define_none() -> None:
    for path in sources("rewrites"):
        if path.name.startswith("_") and path.name != "__init__.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            assert not [call for call in calls if getattr(call.func, "id", "") in ("Rule", "Transform")], path
