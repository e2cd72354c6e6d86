import pytest
import tensorflow as tf

from errors import RunError
from tests import object_store
from training import files


def test_replaces_a_file_and_leaves_nothing_else(tmp_path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    files.write(str(path), "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_trouble_is_one_sentence(tmp_path) -> None:
    with (
        pytest.raises(
            RunError,
            match=r"^it is lost: No such file or directory; the same flags go "
            r"on from the newest checkpoint once it can be written\.$",
        ),
        files.explained("it is lost"),
    ):
        files.write(str(tmp_path / "none" / "file"), "new")


def test_trouble_can_be_gone_past(tmp_path, capsys) -> None:
    with files.explained("it is lost", errors="continue"):
        (tmp_path / "none").read_text()
    out = capsys.readouterr().out
    assert out == "it is lost: No such file or directory.\n"


def test_what_is_no_trouble_with_files_passes() -> None:
    with pytest.raises(KeyError), files.explained("it is lost", "continue"):
        raise KeyError


def test_an_object_store_needs_no_rename(tmp_path, monkeypatch) -> None:
    store = object_store.make(monkeypatch, tmp_path.name)
    for text in ("old and longer", "new"):
        files.write(f"{store}/file.txt", text)
    assert object_store.read(f"{store}/file.txt") == "new"
    assert tf.io.gfile.listdir(store) == ["file.txt"]
    with pytest.raises(tf.errors.UnimplementedError):
        files.publish(f"{store}/other.txt", f"{store}/file.txt")
