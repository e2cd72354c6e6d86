import sys

import pytest

from errors import RequestError
from flags import registry


def test_lists_public_modules_only() -> None:
    assert registry.names("training.callbacks") == [
        "progress",
        "report",
        "summaries",
    ]
    assert "layers" not in registry.names("model")
    assert "pipeline" not in registry.names("data")
    assert not [n for n in registry.names("strategies") if n.startswith("_")]


def test_check_names_flag_value_and_choices() -> None:
    with pytest.raises(RequestError, match=r"--dataset=digitz.*digits.*mean"):
        registry.check("data", "digitz", "dataset")


def test_check_ignores_what_follows_a_colon() -> None:
    registry.check("data", "tfds:no_such_set", "dataset")


def test_check_does_not_import_the_users_package(tmp_path, monkeypatch) -> None:
    package = tmp_path / "eager_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    registry.check("model", "eager_package.net", "model")


def test_loads_a_users_module(tmp_path, monkeypatch) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "net.py").write_text("NAME = 'net'")
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.load("model", "users.net", "model").NAME == "net"
    sys.modules.pop("users.net")


@pytest.mark.parametrize(
    "name", ["no_such_package.net", "json.net", ".net", "flags/net", ""]
)
def test_refuses_what_cannot_be_imported(name: str) -> None:
    with pytest.raises(RequestError, match=f"--model={name}"):
        registry.load("model", name, "model")


def test_an_import_error_inside_a_module_passes(tmp_path, monkeypatch) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "broken.py").write_text("import no_such_thing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        registry.load("model", "users.broken", "model")


def test_a_class_of_the_users_is_found(tmp_path, monkeypatch) -> None:
    (tmp_path / "users_classes.py").write_text("class Mine: pass")
    monkeypatch.syspath_prepend(tmp_path)
    found = registry.load_or_class("model", "users_classes.Mine", "model")
    assert found.__name__ == "Mine"
    sys.modules.pop("users_classes")


@pytest.mark.parametrize("name", ["mlp", "model.mlp"])
def test_a_module_is_found_where_a_class_may_be(name: str) -> None:
    found = registry.load_or_class("model", name, "model")
    assert found.__name__ == "model.mlp"


@pytest.mark.parametrize("name", ["no_such_package.Net", "json.Net", "Net"])
def test_refuses_a_class_that_is_not_there(name: str) -> None:
    with pytest.raises(RequestError, match=f"--model={name}"):
        registry.load_or_class("model", name, "model")
