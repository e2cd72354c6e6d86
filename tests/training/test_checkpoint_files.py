import tensorflow as tf

from training import checkpoint_files
from training.checkpoint_files import NEWEST


def _fill(folder, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).touch()


def _names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _checkpoint(*steps: int) -> set[str]:
    return {
        f"step-{step}.{part}"
        for step in steps
        for part in ("json", "index", "data-00000-of-00001")
    }


def test_lists_by_markers_in_order_of_steps(tmp_path) -> None:
    assert checkpoint_files.list_steps(str(tmp_path)) == []
    _fill(
        tmp_path / NEWEST,
        *(f"step-{step}.json" for step in (9, 100, 20)),
        "step-3.json.tmp",
        "step-7.index",
        "step-7.data-00000-of-00001",
    )
    assert checkpoint_files.list_steps(str(tmp_path)) == [9, 20, 100]


def test_published_is_whole_and_replaces(tmp_path) -> None:
    path = checkpoint_files.prefix(str(tmp_path), NEWEST, 5)
    (tmp_path / NEWEST).mkdir()
    for content in (b"some", b"other than that"):
        for suffix in (".index", ".data-00000-of-00001"):
            with tf.io.gfile.GFile(f"{path}.tmp{suffix}", "wb") as file:
                file.write(content)
        checkpoint_files.publish(f"{path}.tmp", path, 5)
        assert checkpoint_files.damage(path, 5) == ""
    assert _names(tmp_path / NEWEST) == _checkpoint(5)


def test_a_long_file_is_read_to_its_end(tmp_path) -> None:
    path = checkpoint_files.prefix(str(tmp_path), NEWEST, 5)
    (tmp_path / NEWEST).mkdir()
    data = tmp_path / NEWEST / "step-5.data-00000-of-00001"
    for name in ("step-5.tmp.index", f"step-5.tmp{data.suffix}"):
        (tmp_path / NEWEST / name).write_bytes(bytes(3 * 2**20 + 1))
    checkpoint_files.publish(f"{path}.tmp", path, 5)
    data.write_bytes(bytes(3 * 2**20) + b"1")
    assert checkpoint_files.damage(path, 5) == "its data has another checksum"


TEMPORARY = (
    "step-3.tmp.index",
    "step-3.tmp.data-00000-of-00001.tempstate7",
    "step-3.json.tmp",
    "best.json.tmp",
)
FOREIGN = ("notes.tmp", "step-x.json", "step-3.json.bak", "checkpoint")


def test_a_start_removes_what_was_left_unfinished(tmp_path) -> None:
    folder = tmp_path / NEWEST
    half = "step-9.data-00000-of-00001"
    _fill(folder, *_checkpoint(5, 6), *TEMPORARY, *FOREIGN, half)
    checkpoint_files.sweep(str(tmp_path), NEWEST)
    assert _names(folder) == _checkpoint(5, 6) | {*FOREIGN, half}


def test_all_but_the_kept_go_halves_included(tmp_path) -> None:
    folder = tmp_path / NEWEST
    halves = ("step-2.index", "step-9.data-00000-of-00001")
    _fill(folder, *_checkpoint(4, 5, 6), *TEMPORARY, *FOREIGN, *halves)
    checkpoint_files.sweep(str(tmp_path), NEWEST, [5, 6])
    assert _names(folder) == _checkpoint(5, 6) | set(FOREIGN)


def test_a_marker_goes_before_its_files(tmp_path, monkeypatch) -> None:
    """A kill in between must not leave what looks like a checkpoint."""
    _fill(tmp_path / NEWEST, *_checkpoint(4, 5))
    removed = []
    monkeypatch.setattr(
        tf.io.gfile, "remove", lambda path: removed.append(path[-5:])
    )
    checkpoint_files.sweep(str(tmp_path), NEWEST, [])
    assert removed[:2] == [".json"] * 2
    assert len(removed) == 6


def test_what_another_has_removed_is_no_trouble(tmp_path, monkeypatch) -> None:
    _fill(tmp_path / NEWEST, *_checkpoint(4))

    def remove(path: str) -> None:
        raise tf.errors.NotFoundError(None, None, path)

    monkeypatch.setattr(tf.io.gfile, "remove", remove)
    checkpoint_files.sweep(str(tmp_path), NEWEST, [])
    checkpoint_files.sweep(str(tmp_path / "absent"), NEWEST, [])
