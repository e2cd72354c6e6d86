import numpy as np

from data import DataConfig
from data import digits
from examples import _digit_subset


def test_holds_the_chosen_digits_alone_with_labels_from_zero() -> None:
    config = DataConfig(dataset="examples._digit_subset:9x3")
    info = _digit_subset.info(config)
    assert info.num_classes == 2
    for split in ("train", "eval"):
        features, labels = _digit_subset.arrays(config, split)
        images, all_labels = digits.arrays(DataConfig(), split)
        assert len(labels) == info.num_examples[split]
        for label, digit in enumerate((3, 9)):
            np.testing.assert_array_equal(
                features[labels == label], images[all_labels == digit]
            )
