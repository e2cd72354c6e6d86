"""Pictures for TensorBoard, drawn by Pillow, which TensorBoard brings.

TensorBoard shows them 350 pixels wide, and larger ones blurred. Each function
returns RGB values uint8 `[H, W, 3]`. `N` examples, `C` classes.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

_FONT_SIZE = 11
_MARGIN = 44  # for the numbers and the name of an axis
_BLUE = np.array([8, 81, 156])
_WIDTH = 4  # images in a row


def examples(
    images: np.ndarray, captions: Sequence[str], wrong: Sequence[bool]
) -> np.ndarray:
    """Draws images in rows, each above its caption.

    Args:
        images: `[N, H, W, D]` with `D` of 1, 3 or 4 channels, of any range:
            from the least value to the largest.
        captions: One for each image.
        wrong: Whether a caption is red.
    """
    least, most = float(images.min()), float(images.max())
    scaled = (images - least) / max(most - least, 1e-12)
    pixels = (255 * scaled[..., :3]).astype(np.uint8)
    pixels = np.broadcast_to(pixels, (*pixels.shape[:3], 3))
    height, width = images.shape[1:3]
    zoom = 80 / max(height, width)
    tile = (max(1, round(width * zoom)), max(1, round(height * zoom)))
    step = (86, tile[1] + 20)
    rows = -(-len(images) // _WIDTH)
    canvas = Image.new("RGB", (_WIDTH * step[0], rows * step[1]), "white")
    draw = ImageDraw.Draw(canvas)
    for index, (part, caption) in enumerate(zip(pixels, captions, strict=True)):
        x, y = index % _WIDTH * step[0] + 3, index // _WIDTH * step[1] + 3
        # Small ones keep their pixels.
        how = Image.Resampling.NEAREST if zoom > 2 else None
        canvas.paste(Image.fromarray(part).resize(tile, how), (x, y))
        color = "#c00000" if wrong[index] else "black"
        middle = (x + tile[0] / 2, y + tile[1] + 1)
        draw.text(middle, caption, color, _font(), anchor="ma")
    return np.asarray(canvas)


def confusion_matrix(counts: np.ndarray) -> np.ndarray:
    """Draws how many examples of each class were taken for which.

    Args:
        counts: Integers `[C, C]`; rows are true classes.
    """
    cell = max(6, min(29, 640 // len(counts)))
    side = cell * len(counts)
    canvas, draw = _plot_area(side, "predicted class", "true class")
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    colors = (255 + share[..., np.newaxis] * (_BLUE - 255)).astype(np.uint8)
    squares = Image.fromarray(colors).resize((side, side), 0)
    canvas.paste(squares, (_MARGIN, 0))
    draw.rectangle((_MARGIN, 0, _MARGIN + side, side), outline="gray")
    # Numbers where they fit: at every class, or at every tenth.
    every = 1 if cell >= 15 else 10
    for index in range(0, len(counts), every):
        middle = (index + 0.5) * cell
        name = str(index)
        draw.text((_MARGIN - 4, middle), name, "black", _font(), anchor="rm")
        draw.text((_MARGIN + middle, side + 3), name, "black", _font(), "ma")
    if cell >= 20:
        for row, column in np.argwhere(counts):
            place = (_MARGIN + (column + 0.5) * cell, (row + 0.5) * cell)
            color = "white" if share[row, column] > 0.5 else "black"
            text = str(counts[row, column])
            draw.text(place, text, color, _font(), anchor="mm")
    return np.asarray(canvas)


def scatter(true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Draws a point for each pair, `[N]` each, and where they are equal."""
    side = 290
    canvas, draw = _plot_area(side, "true value", "predicted value")
    draw.rectangle((_MARGIN, 0, _MARGIN + side, side), outline="gray")
    draw.line((_MARGIN, side, _MARGIN + side, 0), fill="gray")
    values = np.concatenate([true, predicted])
    least, most = float(values.min()), float(values.max())
    scale = (side - 12) / max(most - least, 1e-12)
    for name, place in ((least, 6.0), (most, side - 6.0)):
        text = f"{name:.3g}"
        draw.text((_MARGIN + place, side + 3), text, "black", _font(), "ma")
        draw.text(
            (_MARGIN - 4, side - place), text, "black", _font(), anchor="rm"
        )
    for across, up in zip(true, predicted, strict=True):
        x = _MARGIN + 6 + (across - least) * scale
        y = side - 6 - (up - least) * scale
        draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=tuple(_BLUE))
    return np.asarray(canvas)


def _plot_area(
    side: int, across: str, up: str
) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Returns a canvas with a square plot to be, its axes named."""
    size = (side + _MARGIN + 16, side + _MARGIN)
    canvas = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(canvas)
    middle = _MARGIN + side / 2
    draw.text((middle, side + 20), across, "black", _font(), anchor="ma")
    # Pillow writes upright only.
    name = Image.new("RGB", (side, 16), "white")
    written = ImageDraw.Draw(name)
    written.text((side / 2, 0), up, "black", _font(), anchor="ma")
    canvas.paste(name.rotate(90, expand=True), (0, 0))
    return canvas, draw


def _font() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(_FONT_SIZE)
