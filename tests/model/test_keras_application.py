import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import RequestError
from model import ModelConfig
from model import keras_application

VECTOR = tf.TensorSpec([None], tf.float32)


def build(*words: str, shape: tuple[int, ...] = (8, 8, 1)) -> keras.Model:
    features = tf.TensorSpec([None, *shape], tf.float32)
    spec = (features, VECTOR, VECTOR)
    return keras_application.build(ModelConfig(model_options=words), spec, 3)


def test_matches_the_architecture_on_resized_colour_images() -> None:
    model = build("name=MobileNet", "resize=32")
    x = np.random.default_rng(0).random((2, 8, 8, 1)).astype("float32")
    network = keras.applications.MobileNet(
        weights=None,
        input_shape=(32, 32, 3),
        classes=3,
        classifier_activation=None,
    )
    network.set_weights(model.get_weights())
    images = tf.image.resize(np.repeat(x, 3, axis=-1), (32, 32))
    np.testing.assert_allclose(model(x), network(images), rtol=0, atol=1e-5)


def test_outputs_are_exact_under_mixed_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = build("name=MobileNet", shape=(32, 32, 3))
    assert model.output.shape == (None, 3)
    assert model.output.dtype == "float32"


@pytest.mark.parametrize(
    ("name", "scale"), [("EfficientNetB0", 255), ("EfficientNetV2B0", 1)]
)
def test_scales_for_architectures_that_divide(name: str, scale: int) -> None:
    chosen = keras_application.Options(name=name)
    inputs = keras.Input([2, 2, 3])
    model = keras.Model(inputs, keras_application._to_rgb(inputs, chosen))
    x = np.random.default_rng(0).random((1, 2, 2, 3)).astype("float32")
    np.testing.assert_allclose(model(x), scale * x, rtol=1e-6)


def test_turns_preprocessing_off_where_it_can() -> None:
    def architecture(
        include_preprocessing: bool = True, **kwargs: object
    ) -> tuple[bool, object]:
        return include_preprocessing, kwargs["weights"]

    made = keras_application._instantiate(architecture, (8, 8, 3), 3)
    assert made == (False, None)


def test_names_close_matches() -> None:
    with pytest.raises(RequestError, match=r"name=resnet50 .* ResNet50 or"):
        build("name=resnet50")


def test_names_all_where_none_is_close() -> None:
    with pytest.raises(RequestError, match=r"name=zzz .* VGG16, VGG19"):
        build("name=zzz")


def test_rejects_small_images() -> None:
    with pytest.raises(RequestError, match=r"8x8 .* larger resize="):
        build("name=MobileNet")


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 2)], ids=str)
def test_rejects_features_that_are_no_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="needs one feature"):
        build(shape=shape)


def test_rejects_negative_size() -> None:
    with pytest.raises(RequestError, match="resize=-1: must be 0 or more"):
        build("resize=-1")
