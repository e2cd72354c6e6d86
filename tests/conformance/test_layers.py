"""Every layer of model/layers, found by folder, has every property."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import keras
import pytest

from tests import layer_checks

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in ROOT.glob("model/layers/[!_]*.py"))


def layer_class(name: str) -> type[keras.layers.Layer]:
    """The layer of a file: its name is the file's in camel case."""
    module = importlib.import_module(f"model.layers.{name}")
    return getattr(module, name.title().replace("_", ""))


def load_test_file(name: str) -> ModuleType:
    path = ROOT / "tests" / "model" / "layers" / f"test_{name}.py"
    spec = importlib.util.spec_from_file_location(f"cases_of_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases_of(name: str) -> list[layer_checks.Case]:
    try:
        return load_test_file(name).CASES
    except (FileNotFoundError, AttributeError):
        return []


CASES = [(name, case) for name in NAMES for case in cases_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_layer_has_a_test_file_with_cases(name: str) -> None:
    assert cases_of(name), f"tests/model/layers/test_{name}.py has no CASES"


@pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{name}-{case.name}" for name, case in CASES]
)
def test_layer_conforms(
    name: str,
    case: layer_checks.Case,
    strategy_of: layer_checks.StrategyOf,
    tmp_path: Path,
) -> None:
    layer_checks.check_layer(layer_class(name), case, strategy_of, tmp_path)
