"""Nothing that is read may run code: no pickle, no unsafe deserialization."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layering import ROOT
from tests.test_layering import SOURCES

# Each turns bytes into Python objects or code.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib"}
MODULES |= {"shelve", "marshal", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "enable_unsafe_deserialization"}
KEYWORDS = {("allow_pickle", True), ("safe_mode", False)}


def _unsafe(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
            yield from names & MODULES
        elif isinstance(node, ast.ImportFrom):
            yield from {(node.module or "").partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            yield from _unsafe_call(node)


def _unsafe_call(node: ast.Call) -> Iterator[str]:
    called = node.func
    if isinstance(called, ast.Name):
        yield from {called.id} & CALLS
    elif isinstance(called, ast.Attribute):
        # `re.compile` and `model.compile` are others.
        yield from {called.attr} & (CALLS - {"compile"})
    for keyword in node.keywords:
        value = getattr(keyword.value, "value", None)
        if (keyword.arg, value) in KEYWORDS:
            yield f"{keyword.arg}={value}"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_nothing_read_can_run_code(path: Path) -> None:
    assert not list(_unsafe((ROOT / path).read_text()))


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "np.load(path, allow_pickle=True)",
        "keras.saving.load_model(path, safe_mode=False)",
        "keras.config.enable_unsafe_deserialization()",
        "eval(word)",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert list(_unsafe(line))


@pytest.mark.parametrize(
    "line", ["re.compile(a)", "np.load(a)", "ast.parse(b)"]
)
def test_the_search_finds_nothing_else(line: str) -> None:
    assert not list(_unsafe(line))
