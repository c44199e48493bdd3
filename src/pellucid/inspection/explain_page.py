"""An explanation as one HTML page: no script, nothing to load, readable on a phone, with the keyboard and in grey.

The text is coloured by excess: orange where the model's loss is above the floor, blue where luck made it lower. Without
truth, it is coloured by loss. The templates are explain_page.html and attention_maps.html; Jinja escapes every value.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from pellucid.files import written_whole
from pellucid.inspection.attention_maps import AttentionMaps, largest, shortened
from pellucid.inspection.formats import after, nats, percent
from pellucid.tokenizer.pieces import END, visible

if TYPE_CHECKING:  # an explanation shows itself as a page
    from pellucid.inspection.explanation import Explanation

STEPS_NATS = (0.03, 0.1, 0.3, 1.0, 3.0)  # where one shade ends and the next begins


def explanation_page(explanation: Explanation) -> str:
    """The HTML page of an explanation."""
    return page(explanation.model, explanation.source, explanation.attention, explanation)


def page(kicker: str, title: str, maps: AttentionMaps | None, explanation: Explanation | None = None) -> str:
    """An HTML page of attention maps, an explanation, or both, with its style inside."""
    template = _environment().get_template("explain_page.html")
    return template.render(kicker=kicker, title=title, maps=maps, explanation=explanation)


def _environment() -> Environment:
    loader = PackageLoader("pellucid.inspection", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"after": after, "nats": nats, "percent": percent, "shade": _shade}
    environment.filters |= {"short": shortened, "visible": visible}
    environment.globals |= {"END": END, "STEPS_NATS": STEPS_NATS, "largest": largest}
    return environment


def _shade(value: float | None) -> str:
    """The CSS class of a shade: n for neither, o1 to o5 and u1 to u5 for over and under."""
    level = sum(abs(value or 0.0) >= step for step in STEPS_NATS)
    return f"{'o' if value and value > 0 else 'u'}{level}" if level else "n"


def framed(page_html: str) -> str:
    """The page in a frame, for a notebook, so that its style affects nothing else."""
    return f'<iframe srcdoc="{escape(page_html)}" width="100%" height=700 style="border:0"></iframe>'


def write_page(file: Path, page: str) -> None:
    """Write a page atomically. Raises OSError if the disk fails."""
    with written_whole(file) as draft:
        draft.write_text(page, encoding="utf-8")
