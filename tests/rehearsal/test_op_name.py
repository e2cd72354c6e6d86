"""Names as TensorFlow and XLA give them."""

import pytest

from rehearsal import op_name


@pytest.mark.parametrize(
    ("name", "layer", "direction"),
    [
        ("cnn_1/conv_0_1/convolution", "conv_0", "forward"),
        (
            "gradient_tape/cnn_1/conv_0_1/convolution/Conv2DBackpropFilter",
            "conv_0",
            "backward",
        ),
        ("cnn/conv_0/convolution", "conv_0", "forward"),
        ("while/body/_12/cnn_1/solve_1/MatMul", "solve", "forward"),
        ("adam/Add", "", "forward"),
        ("XlaAllReduce_6", "", "forward"),
        ("", "", ""),
    ],
)
def test_layer_and_direction(name: str, layer: str, direction: str) -> None:
    assert op_name.layer(name) == layer
    assert op_name.direction(name) == direction


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("outer/block/conv_0/convolution", "conv_0"),
        ("outer/block/conv_0_1/convolution", "conv_0"),
        ("outer/block/other/Add", ""),
    ],
)
def test_known_layers_are_found_anywhere(name: str, layer: str) -> None:
    assert op_name.layer(name, ["conv_0"]) == layer


def test_split_undoes_a_merge() -> None:
    merged = "gradient_tape/cnn_1/(conv_0_1/BiasAdd:conv_1_1/BiasAdd)"
    assert op_name.split(merged) == [
        "gradient_tape/cnn_1/conv_0_1/BiasAdd",
        "gradient_tape/cnn_1/conv_1_1/BiasAdd",
    ]
    assert op_name.split("jit(step)/a") == ["jit(step)/a"]
