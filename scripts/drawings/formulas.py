"""The formulas that the Model Microscope shows, from docs/equations.md.

Remakes: src/pellucid/web/static/formulas.js
Takes: a second
Needs: latex2mathml

A browser draws MathML by itself, so the page needs no library for formulas. The page says each equation in a sentence
of its own (SAYS in equations.js); title, formulas and code are those of the docs.
"""

import json
import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from results import ROOT

STATIC = ROOT / "src/pellucid/web/static"
HEAD = """\
// Written by `scripts/draw.py formulas` from docs/equations.md: what equations.js shows.
// prettier-ignore
"""
LETTERS = re.compile(r'<mrow>((?:<mi mathvariant="normal">\w</mi>){2,})</mrow>')  # of a name, such as norm


def draw() -> list[Path]:
    (STATIC / "formulas.js").write_text(formulas(), encoding="utf-8")
    return [STATIC / "formulas.js"]


def formulas() -> str:
    """The module, with a line for each equation that the page knows."""
    docs = (ROOT / "docs/equations.md").read_text(encoding="utf-8")
    known = re.findall(r"^  (\d+):", (STATIC / "equations.js").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [f"  {number}: {json.dumps(equation(docs, number), ensure_ascii=False)},\n" for number in known]
    return f"{HEAD}export const FORMULAS = {{\n{''.join(lines)}}};\n"


def equation(docs: str, number: str) -> dict[str, str | list[str]]:
    """Its title, its formulas as MathML, and where its code is."""
    title, section = re.search(rf"^### {number}\. (.+?)$(.+?)(?=^##|\Z)", docs, re.MULTILINE | re.DOTALL).groups()
    lines = [line for tex in re.findall(r"\$\$\n(.+?)\n\$\$", section, re.DOTALL) for line in tex.split(r"\qquad")]
    code = re.search(r"^- Code: .*?\(\.\./(.+?)\)", section, re.MULTILINE)[1]
    return {"title": title, "math": [mathml(line.strip().rstrip(",")) for line in lines], "code": code}


def mathml(tex: str) -> str:
    math = convert(tex, display="block").replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    math = math.replace("<mi>ln</mi>", "<mo>ln</mo>")  # an operator, with a space after it
    math = LETTERS.sub(lambda name: f"<mi>{re.sub('<[^>]+>', '', name[1])}</mi>", math)
    return re.sub(r"&#x(?!0*(?:26|3[CE]);)\w+;", lambda character: unescape(character[0]), math)
