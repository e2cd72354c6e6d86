"""Who may import whom, and where files may be."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCAL = {
    "train",
    "assemble",
    "launch",
    "errors",
    "options",
    "placement",
    "rehearse",
    "scaling",
    "predict",
    "flags",
    "strategies",
    "data",
    "model",
    "training",
    "rehearsal",
    "benchmarks",
    "examples",
}
# Package → local packages it may import, apart from itself.
ALLOWED = {
    "errors": set(),
    "options": {"errors"},
    "placement": {"errors"},
    "strategies": {"errors", "options", "placement"},
    "data": {"errors", "options"},
    "model": {"errors", "options", "placement"},
    "training": {"errors", "options", "placement"},
    "rehearsal": {"errors"},
    "flags": {"errors", "strategies", "data", "model", "training"},
    "train": {"assemble", "errors", "flags", "strategies", "training"}
    | {"rehearse", "scaling"},
    "assemble": {"flags", "strategies", "data", "placement", "training"},
    "rehearse": LOCAL
    - {"train", "scaling", "benchmarks", "examples", "launch"},
    "predict": {"errors", "flags", "model", "training"},
    "scaling": {"assemble", "errors", "flags", "strategies", "training"},
    "launch": {"errors", "strategies", "data"},
    "benchmarks": LOCAL,
    "examples": LOCAL - {"benchmarks"},
}
SOURCES = sorted(
    path.relative_to(ROOT)
    for top in LOCAL
    for path in [ROOT / f"{top}.py", *(ROOT / top).rglob("*.py")]
    if path.exists()
)


def _imports(path: Path) -> set[str]:
    """Returns the dotted names that a file imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _top(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_point_downwards(path: Path) -> None:
    local = {name.split(".")[0] for name in _imports(path)} & LOCAL
    assert local - {_top(path)} <= ALLOWED[_top(path)]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_only_flags_and_train_know_absl_flags(path: Path) -> None:
    if _top(path) not in ("flags", "train"):
        assert not any(name.startswith("absl") for name in _imports(path))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_package_inits_import_no_tensorflow(path: Path) -> None:
    if path.name == "__init__.py" and len(path.parts) == 2:
        roots = {name.split(".")[0] for name in _imports(path)}
        assert not roots & {"tensorflow", "keras"}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_flags_reads_only_package_inits(path: Path) -> None:
    """`--help` must not import TensorFlow by way of a module."""
    for name in _imports(path) if _top(path) == "flags" else ():
        package, _, rest = name.partition(".")
        if package in ("strategies", "data", "model", "training"):
            assert not (ROOT / package / f"{rest}.py").exists(), name


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_private_modules_stay_in_their_package(path: Path) -> None:
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] in LOCAL and any(part.startswith("_") for part in parts):
            assert parts[0] == _top(path), name


# jax and TensorFlow do not get on in one process: these are the child's.
CHILD = {"rehearsal.worker", "rehearsal.xla"}
JAX = {"jax", "jaxlib", "libtpu"}


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_jax_stays_in_the_child(path: Path) -> None:
    if _module(path) not in CHILD:
        names = _imports(path)
        assert not {name.split(".")[0] for name in names} & JAX
        assert not names & CHILD


def test_the_child_imports_no_tensorflow() -> None:
    modules = {_module(path): path for path in SOURCES}
    seen, ahead = set(), set(CHILD)
    while ahead:
        names = set().union(*(_imports(modules[name]) for name in ahead))
        assert not {n.split(".")[0] for n in names} & {"tensorflow", "keras"}
        seen |= ahead
        # `from rehearsal.chips import Chip` names its module and one more.
        names |= {name.rpartition(".")[0] for name in names}
        ahead = (names & modules.keys()) - seen


def test_no_local_package_is_imported_bare() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    is_package = (ROOT / alias.name).is_dir()
                    bare = is_package and alias.name in LOCAL
                    assert alias.asname or not bare, f"{path}: {alias.name}"


def test_tests_hold_no_init() -> None:
    """`tests/data/__init__.py` would shadow our package `data`."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_file_is_called_after_a_pattern() -> None:
    bad = {"utils", "helpers", "common", "base", "constants", "misc"}
    assert not [path for path in SOURCES if path.stem in bad]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_files_and_functions_stay_small(path: Path) -> None:
    source = (ROOT / path).read_text()
    assert len(source.splitlines()) <= 250
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno:
            assert node.end_lineno - node.lineno < 60, node.name


# Module → the test file that covers it, as it has no behaviour of its own.
TESTED_ELSEWHERE = {
    "benchmarks/__main__.py": "tests/benchmarks/test_main.py",
    "benchmarks/_exchange.py": "tests/benchmarks/test_communication.py",
    "benchmarks/_fit_script.py": "tests/benchmarks/test_startup.py",
    "data/_example.py": "tests/data/test_tfrecord.py",
    "data/_folder.py": "tests/data/test_images.py",
    "data/_image.py": "tests/data/test_images.py",
    "data/pipeline/lookup.py": "tests/data/pipeline/test_prepare.py",
    "data/pipeline/stream.py": "tests/data/pipeline/test_prepare.py",
    "flags/_read.py": "tests/flags/test_command_line.py",
    "flags/data.py": "tests/flags/test_command_line.py",
    "flags/model.py": "tests/flags/test_command_line.py",
    "flags/run.py": "tests/flags/test_command_line.py",
    "flags/strategy.py": "tests/flags/test_command_line.py",
    "flags/training.py": "tests/flags/test_command_line.py",
    "training/report/__main__.py": "tests/training/report/test_main.py",
    "training/eval_step.py": "tests/training/test_step.py",
    "model/_features.py": "tests/model/test_mlp.py",
    "model/layers/_conjugate_directions.py": (
        "tests/model/layers/test_conjugate_gradient.py"
    ),
    "model/layers/_convergence.py": "tests/model/layers/test_fixed_point.py",
    "model/layers/_inner.py": "tests/model/layers/test_parallel_map.py",
    "model/layers/_inputs.py": "tests/model/layers/test_batched_mat_vec.py",
    "model/layers/_iteration.py": "tests/model/layers/test_fixed_point.py",
}


def _test_of(path: Path) -> str:
    name = f"test_{path.stem.lstrip('_')}.py"
    return str("tests" / path.parent / name)


def test_tests_mirror_the_tree() -> None:
    """Every module of a package has its test file, `__init__` apart."""
    missing = [
        str(path)
        for path in SOURCES
        if path.name != "__init__.py"
        and len(path.parts) > 1
        and not (
            ROOT / TESTED_ELSEWHERE.get(str(path), _test_of(path))
        ).exists()
    ]
    assert not missing
    needless = [
        path
        for path in TESTED_ELSEWHERE
        if (ROOT / _test_of(Path(path))).exists()
    ]
    assert not needless
