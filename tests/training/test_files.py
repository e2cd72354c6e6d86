from training import files


def test_replaces_a_file_and_leaves_nothing_else(tmp_path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    files.write(str(path), "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
