import functools
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from data import DataConfig
from data import text
from data.pipeline import prepare
from data.pipeline import remote_host
from errors import RequestError

# Every byte value, in no order that a wrong window could have by chance.
CONTENT = np.random.default_rng(0).permutation(np.arange(1000) % 256)
CONTENT = CONTENT.astype(np.uint8)
UNCACHED_LIBRARY = text._standard_library.__wrapped__
SPLITS = pytest.mark.parametrize("split", ["train", "eval"])


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    file = tmp_path / "some.txt"
    file.write_bytes(CONTENT.tobytes())
    return str(file)


def _windows(split: str, length: int) -> np.ndarray:
    """Lists windows of T + 1 bytes one by one: `[N, T + 1]`."""
    part = CONTENT[:900] if split == "train" else CONTENT[900:]
    starts = range(0, len(part) - length, length)
    return np.stack([part[i : i + length + 1] for i in starts])


@SPLITS
@pytest.mark.parametrize("length", [1, 7, 33, 99])
def test_windows_are_those_of_a_loop(
    path: str, split: str, length: int
) -> None:
    config = DataConfig(dataset=f"text:{path},length={length}")
    wanted = _windows(split, length)

    info = text.info(config)
    features, labels = text.arrays(config, split)

    assert info.num_examples[split] == len(wanted)
    assert info.num_outputs == 256
    np.testing.assert_array_equal(features, wanted[:, :-1])
    np.testing.assert_array_equal(labels, wanted[:, 1:])


@SPLITS
def test_batches_hold_integers_as_info_says(path: str, split: str) -> None:
    config = DataConfig(dataset=f"text:{path},length=9", global_batch_size=4)
    spec = prepare.element_spec(text, config)
    context = tf.distribute.InputContext()
    if split == "train":
        batches = prepare.train_dataset(text, config, context, seed=0, step=0)
    else:
        batches = prepare.eval_dataset(text, config, context)
    known = {tuple(window) for window in _windows(split, 9)}

    features, labels, _ = next(iter(batches))

    assert features.dtype == labels.dtype == spec[0].dtype == tf.int32
    assert features.shape == labels.shape == (4, 9)
    rows = np.concatenate([features, labels[:, -1:]], axis=1)
    assert {tuple(row) for row in rows} <= known


def test_no_byte_is_in_both_splits(tmp_path: pathlib.Path) -> None:
    (tmp_path / "two").write_bytes(b"a" * 90 + b"b" * 10)
    config = DataConfig(dataset="text:two,length=3", data_dir=str(tmp_path))
    for split, byte in (("train", ord("a")), ("eval", ord("b"))):
        for part in text.arrays(config, split):
            assert part.size
            np.testing.assert_array_equal(part, byte)


def test_path_may_hold_an_equals_sign(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a=b").write_bytes(bytes(100))
    config = DataConfig(
        dataset="text:path=a=b,length=9", data_dir=str(tmp_path)
    )
    assert text.info(config).num_examples == {"train": 9, "eval": 1}


MODULE = '''"""One.

    Indented.
"""
if True:
    class Two:
        """Two é."""
        def three(self): "Three"
async def four():
    """Four"""
    return """not a docstring"""
def five(): pass
'''


def test_docstrings_are_in_the_order_of_files_and_lines(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "b.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "a.py").write_text('"First."\nraise SystemExit\n')
    (tmp_path / "bad.py").write_text("no python")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "c.py").write_text('"Not a module of the folder."')

    found = text.read_docstrings(str(tmp_path))

    wanted = "First.\n\nOne.\n\nIndented.\n\nTwo é.\n\nThree\n\nFour"
    assert found == wanted.encode()


def test_without_a_file_it_is_the_standard_library(monkeypatch) -> None:
    asked = []

    def read(folder: str) -> bytes:
        asked.append(pathlib.Path(folder))
        return bytes(100)

    monkeypatch.setattr(text, "read_docstrings", read)
    monkeypatch.setattr(
        text, "_standard_library", functools.cache(UNCACHED_LIBRARY)
    )

    info = text.info(DataConfig(dataset="text:length=9"))
    with pytest.raises(RequestError, match="has 100 bytes"):
        text.info(DataConfig(dataset="text"))

    assert info.num_examples == {"train": 9, "eval": 1}
    # Parsed once, and where this module of it is.
    assert asked == [pathlib.Path(functools.__file__).parent]


@pytest.mark.slow
def test_standard_library_has_about_a_megabyte() -> None:
    found = text._standard_library()
    assert 0.7e6 < len(found) < 1.5e6
    assert b"Return" in found


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{path}.gone", r"some.txt.gone cannot be read: .*give the path"),
        ("{folder}", r"cannot be read: .*give the path"),
        ("{path},length=0", "length=0: must be 1 or more"),
        ("{path},length=x", "length=x is not an integer"),
        ("{path},width=3", "unknown key 'width'; allowed: length, path"),
        ("{path},rest", "'rest' is not key=value"),
        ("{path},length=100", "has 1000 bytes; .* must have 101 or more"),
        ("/dev/null", "has 0 bytes"),
    ],
    ids=[
        "missing",
        "folder",
        "no_length",
        "no_number",
        "unknown",
        "comma",
        "short",
        "empty",
    ],
)
def test_refuses_in_one_sentence(
    path: str, argument: str, message: str
) -> None:
    folder = str(pathlib.Path(path).parent)
    words = argument.format(path=path, folder=folder)
    with pytest.raises(RequestError, match=f"--dataset.*{message}") as error:
        text.info(DataConfig(dataset=f"text:{words}"))
    assert "\n" not in str(error.value)


def test_travels_to_a_remote_host_inside_the_graph(path: str) -> None:
    """Read here, like all arrays: the host of a TPU needs no such file."""
    module = types.ModuleType("text_copy")
    vars(module).update(
        {name: getattr(text, name) for name in ("info", "arrays", "preprocess")}
    )
    remote_host.check(module, DataConfig(dataset=f"text:{path},length=9"))
