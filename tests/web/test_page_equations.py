"""The formulas of the page are those of docs/equations.md."""

import re

import pytest

from pellucid.web.app import STATIC

pytest.importorskip("latex2mathml", reason="no latex2mathml here: the formulas of the page are not written again")

from drawings.formulas import formulas, mathml


def test_the_page_has_the_formulas_of_the_docs():
    assert (STATIC / "formulas.js").read_text("utf-8") == formulas(), "run scripts/draw.py formulas"


def test_each_equation_that_a_part_of_the_page_opens_is_there():
    opened = " ".join(re.findall('data-equations="(.+?)"', (STATIC / "index.html").read_text("utf-8"))).split()
    assert set(opened) <= set(re.findall(r"^  (\d+):", formulas(), re.MULTILINE))


def test_a_name_of_several_letters_is_one_element_and_marks_are_characters():
    math = mathml(r"\mathrm{norm} \le 1 \lt 2")
    assert "<mi>norm</mi><mo>≤</mo><mn>1</mn><mo>&#x0003C;</mo><mn>2</mn>" in math
