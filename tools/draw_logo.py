"""Draw `logo.png`: a shield that holds a pair of braces together with a tick.

Drawn four times as large and scaled down, which smooths the edges. Needs Pillow,
which AstrBot brings along.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SIZE = 256
SCALE = 4
TOP, BOTTOM = (34, 48, 110), (16, 122, 128)
SHIELD_TOP, SHIELD_BOTTOM = (255, 255, 255), (222, 240, 241)
BRACE = (34, 48, 110)
TICK = (18, 160, 128)

Point = tuple[float, float]
Color = tuple[int, int, int]


def gradient(top: Color, bottom: Color) -> Image.Image:
    """Return a full-size image that fades from `top` to `bottom`."""
    side = SIZE * SCALE
    column = Image.new("RGB", (1, side))
    for y in range(side):
        part = y / (side - 1)
        mixed = [round(a + (b - a) * part) for a, b in zip(top, bottom, strict=True)]
        column.putpixel((0, y), (mixed[0], mixed[1], mixed[2]))
    return column.resize((side, side))


def bezier(*points: Point, steps: int = 60) -> list[Point]:
    """Return points along the Bézier curve with the given control points."""
    curve: list[Point] = []
    degree = len(points) - 1
    for step in range(steps + 1):
        t = step / steps
        weights = [math.comb(degree, i) * t**i * (1 - t) ** (degree - i) for i in range(degree + 1)]
        x = sum(w * p[0] for w, p in zip(weights, points, strict=True))
        y = sum(w * p[1] for w, p in zip(weights, points, strict=True))
        curve.append((x, y))
    return curve


def mirrored(curve: list[Point]) -> list[Point]:
    """Return `curve` mirrored at the middle of the picture."""
    return [(SIZE - x, y) for x, y in curve]


def shield_outline() -> list[Point]:
    """Return the outline of the shield."""
    right = [
        *bezier((128, 30), (158, 50), (188, 56), (210, 56)),
        *bezier((210, 56), (214, 130), (196, 190), (128, 228)),
    ]
    return right + mirrored(right)[::-1]


def brace() -> list[Point]:
    """Return the left brace as one stroke."""
    return [
        *bezier((104, 92), (86, 92), (86, 102), (86, 112)),
        *bezier((86, 112), (86, 126), (84, 132), (72, 134)),
        *bezier((72, 134), (84, 136), (86, 142), (86, 156)),
        *bezier((86, 156), (86, 166), (86, 176), (104, 176)),
    ]


def stroke(draw: ImageDraw.ImageDraw, points: list[Point], width: float, fill: Color) -> None:
    """Draw a line with round ends and joints."""
    radius = width * SCALE / 2
    scaled = [(x * SCALE, y * SCALE) for x, y in points]
    for (x1, y1), (x2, y2) in pairwise(scaled):
        count = max(1, int(math.hypot(x2 - x1, y2 - y1)))
        for step in range(count + 1):
            x, y = x1 + (x2 - x1) * step / count, y1 + (y2 - y1) * step / count
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


def draw_logo() -> Image.Image:
    """Return the logo."""
    side = SIZE * SCALE
    card = Image.new("L", (side, side))
    ImageDraw.Draw(card).rounded_rectangle((0, 0, side - 1, side - 1), 56 * SCALE, fill=255)
    outline = [(x * SCALE, y * SCALE) for x, y in shield_outline()]
    shield = Image.new("L", (side, side))
    ImageDraw.Draw(shield).polygon(outline, fill=255)

    picture = gradient(TOP, BOTTOM)
    shadow = Image.new("L", (side, side))
    ImageDraw.Draw(shadow).polygon([(x, y + 6 * SCALE) for x, y in outline], fill=110)
    picture.paste((8, 20, 48), mask=shadow.filter(ImageFilter.GaussianBlur(7 * SCALE)))
    picture.paste(gradient(SHIELD_TOP, SHIELD_BOTTOM), mask=shield)

    draw = ImageDraw.Draw(picture)
    stroke(draw, brace(), 13, BRACE)
    stroke(draw, mirrored(brace()), 13, BRACE)
    stroke(draw, [(110, 136), (123, 150), (148, 120)], 14, TICK)

    picture.putalpha(card)
    return picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    target = Path(__file__).resolve().parent.parent / "logo.png"
    draw_logo().save(target, optimize=True)
    print(f"{target.name}: {target.stat().st_size:,} bytes")
