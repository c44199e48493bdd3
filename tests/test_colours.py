"""The colours that mean something can be told apart by everybody, on the page, in its exports and in figures.

The colour-blind are simulated by the matrices of Machado, Oliveira and Fernandes, "A physiologically-based model for
simulation of color vision deficiency" (IEEE TVCG 2009), severity 1.0, which act on linear RGB. Distances are CIE 1976
ΔE*ab under D65, and contrasts those of WCAG 2.2.
"""

import re
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid import figures
from pellucid.web.app import STATIC

MACHADO = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
LUMINANCE = [0.2126, 0.7152, 0.0722]  # of linear red, green and blue
XYZ = [[0.4124564, 0.3575761, 0.1804375], LUMINANCE, [0.0193339, 0.1191920, 0.9503041]]
WHITE = [0.95047, 1.0, 1.08883]  # D65
LEAST_DISTANCE, LEAST_IN_GREY = 20, 10  # ΔE; about 2 is the least that one sees of two colours side by side
LEAST_OF_TEXT, LEAST_OF_MARKS = 4.5, 3  # WCAG 2.2, 1.4.3 and 1.4.11

CSS = (STATIC / "style.css").read_text("utf-8")
ROLES = ("model", "truth", "rival", "surprise")  # held out is the model, training is surprise, the floor is the truth
Linear = NDArray[np.float64]


def theme(selector: str) -> dict[str, str]:
    """The custom properties that a rule of style.css sets."""
    [rule] = re.findall(rf"^ *{re.escape(selector)} \{{(.+?)\}}", CSS, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"--([\w-]+): *([^;]+);", rule))


LIGHT = theme(":root")
THEMES = {"light": LIGHT, "dark": LIGHT | theme(':root[data-theme="dark"]')}


def linear(colour: str) -> Linear:
    """Linear RGB of #rrggbb, or of "r g b", as one of them is written for the sake of its transparent shades."""
    is_hex = colour.startswith("#")
    encoded = [int(colour[i : i + 2], 16) for i in (1, 3, 5)] if is_hex else [int(each) for each in colour.split()]
    c = np.array(encoded) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def encoded(c: Linear) -> Linear:
    return np.where(c <= 0.0031308, 12.92 * c, 1.055 * c ** (1 / 2.4) - 0.055)


def over(colour: str, share: float, below: str) -> Linear:
    """A colour of which `share` is opaque, over another; browsers mix the encoded values."""
    mixed = share * encoded(linear(colour)) + (1 - share) * encoded(linear(below))
    return np.where(mixed <= 0.04045, mixed / 12.92, ((mixed + 0.055) / 1.055) ** 2.4)


def lab(c: Linear) -> Linear:
    x, y, z = (np.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in XYZ @ c / np.array(WHITE))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def seen(c: Linear) -> dict[str, Linear]:
    """What the three kinds of the colour-blind see of linear RGB, everybody else, and a printer without colours."""
    blind = {kind: np.clip(np.array(matrix) @ c, 0, 1) for kind, matrix in MACHADO.items()}
    return {"all colours": c, **blind, "grey": np.full(3, c @ LUMINANCE)}


def distances(a: str, b: str) -> dict[str, float]:
    of_a, of_b = seen(linear(a)), seen(linear(b))
    return {kind: float(np.linalg.norm(lab(of_a[kind]) - lab(of_b[kind]))) for kind in of_a}


def contrast(a: Linear, b: Linear) -> float:
    dark, light = sorted((float(a @ LUMINANCE), float(b @ LUMINANCE)))
    return (light + 0.05) / (dark + 0.05)


def test_the_simulation_is_that_of_its_source():
    """White stays white to the rounding of the matrices; and the colours of old, which a review measured, are alike."""
    for c in seen(linear("#ffffff")).values():
        assert c == pytest.approx(1, abs=1e-5)
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.02)
    assert contrast(linear("#000000"), linear("#ffffff")) == pytest.approx(21)
    assert distances("#00876a", "#6f737c")["deuteranopia"] == pytest.approx(9.5, abs=0.1)
    assert distances("#00876a", "#6f737c")["protanopia"] == pytest.approx(17.8, abs=0.1)


@pytest.mark.parametrize("name", THEMES)
def test_whoever_sees_them_tells_the_series_apart(name):
    for a, b in combinations(ROLES, 2):
        for kind, distance in distances(THEMES[name][a], THEMES[name][b]).items():
            assert distance >= (LEAST_IN_GREY if kind == "grey" else LEAST_DISTANCE), (a, b, kind, distance)


@pytest.mark.parametrize("name", THEMES)
def test_texts_and_marks_stand_out_from_what_is_below_them(name):
    colours = THEMES[name]
    papers = [linear(colours[each]) for each in ("paper", "panel", "sunk")]
    for below in papers:
        for text in ("ink", "muted", "model", "rival"):
            assert contrast(linear(colours[text]), below) >= LEAST_OF_TEXT, text
    for below in papers[:2]:
        assert contrast(linear(colours["accent"]), below) >= LEAST_OF_TEXT
        for mark in (*ROLES, "edge"):
            assert contrast(linear(colours[mark]), below) >= LEAST_OF_MARKS, mark
    shades = [float(colours[f"s{i}"]) for i in range(1, 5)]
    for share in (*shades, 0.55):  # as in the table of part 7
        for below in ("paper", "panel"):
            assert contrast(linear(colours["ink"]), over(colours["surprise"], share, colours[below])) >= LEAST_OF_TEXT
    assert contrast(linear(colours["on-strong"]), linear(colours["surprise"])) >= LEAST_OF_TEXT
    strongest = over(colours["model"], float(colours["lens"]), colours["panel"])
    assert contrast(linear(colours["ink"]), strongest) >= LEAST_OF_TEXT
    assert contrast(linear(colours["paper"]), linear(colours["accent"])) >= LEAST_OF_TEXT


def test_the_automatic_theme_is_the_dark_one_and_figures_have_the_colours_of_the_page():
    assert theme(':root[data-theme="auto"]') == theme(':root[data-theme="dark"]')
    surprise = "#{:02x}{:02x}{:02x}".format(*map(int, LIGHT["surprise"].split()))
    drawn = {"model": figures.MODEL, "truth": figures.TRUTH, "rival": figures.RIVAL}
    assert drawn == {role: LIGHT[role] for role in drawn}
    assert surprise == figures.SURPRISE
    assert figures.FLOOR_STYLE.color == figures.TRUTH
