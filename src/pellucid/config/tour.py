"""Knobs of a tour: a way through the Microscope, stop by stop, that asks before it shows (`web/tours.py`)."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pellucid.config.base import JSON_SCHEMA, Rule, Section
from pellucid.config.read import read_section

Part = Literal["machine", "run", "text", "attention", "lens", "next", "inside", "knock", "compare"]
Share = Annotated[float, Field(ge=0, le=1)]
SLOT = re.compile(r"{(\w+)}")  # a place for a measured figure
OfWhatComes = Literal["probability", "truth", "likeliest", "impossible", "entropy", "divergence"]
OfWhatIsShown = Literal["surprise", "floor", "attention", "head", "step", "metric"]
MEASURED_OF_A_TOKEN = ("probability", "truth", "attention")
HEAD = "[0-9]{1,4}[.][0-9]{1,4}"
PART = f"(head|{HEAD}|[af][0-9]{{1,4}})"
FORMS = {  # keys of a view whose texts have a form, and the words for it
    "compare": ("[^@]+(@(first|best|last|[0-9]{1,18}))?", "RUN, RUN@STEP with a number, first, best or last, or ''"),
    "head": (f"{HEAD}|[a-z_ ]+", "LAYER.HEAD, as 1.2, or deciding, not deciding, a score's name, or ''"),
    "off": (f"all heads|{PART}( {PART})*", "parts, as '1.2 f0 a1', with one space between two, head, all heads, or ''"),
}


class RunOfTour(Section):
    """A run that the tour shows. It is found among those that are served by its config."""

    where: dict[str, Any] = Field({}, description="dotted keys of its config and their values, as {model.type: lstm}")
    made_by: str = Field(min_length=1, description="command that trains such a run, for whoever has none")


class Shown(Section):
    """The view of the page at a stop. Anything left out stays as it was at the stop before."""

    part: Part | None = Field(None, description="part of the page to scroll to")
    run: str | None = Field(None, description="name of one of the tour's runs")
    step: int | Literal["first", "best", "last"] | None = Field(
        None, description="checkpoint; for a number the nearest one, by ratio"
    )
    loss: Annotated[float, Field(gt=0)] | None = Field(
        None, description="in place of a step: the first checkpoint with at most this loss on held-out text"
    )
    compare: str | None = Field(None, description="run, or RUN@STEP, to compare with; '': none")
    text: str | None = None
    at: str | int | None = Field(
        None,
        description="token to look from: its number, or words that end with it; -1, or with another text: its last",
    )
    head: str | None = Field(
        None, description="as 1.2; [not] deciding: the one that looks most, least at what decides; or a score's name"
    )
    off: str | None = Field(
        None, description="parts to switch off, as '1.2 f0'; head: the one above, all heads: every head; '': none"
    )
    instead: str | None = Field(None, description="text from which the parts that are off take their output; '': zeros")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    inside: bool | None = Field(None, description="open the numbers of part 6")

    def _rules(self) -> Iterable[Rule]:
        for key, (form, words) in FORMS.items():
            value = getattr(self, key)
            yield value and not re.fullmatch(form, value), key, f"{value!r} is not understood", f"write {words}"
        yield None not in (self.step, self.loss), "loss", "each of step and loss names a checkpoint", "remove one"
        yield self.at == "", "at", "no words", "copy some from the text, or give a number"
        for key, least in (("step", 0), ("at", -1)):
            value = getattr(self, key)
            is_too_small = isinstance(value, int) and value < least
            yield is_too_small, key, f"{value} is out of range", f"give a number of at least {least}"


class Within(Section):
    """Bounds for a figure: what a stop needs of it, or where a choice is the right one."""

    least: float | None = None
    most: float | None = None

    def hold(self, value: float | None) -> bool:
        """Whether a figure lies within them; one that is not known lies within none."""
        if value is None:
            return self.least is None and self.most is None
        return (self.least is None or self.least <= value) and (self.most is None or value <= self.most)


class Measure(Within):
    """A figure of what the stop shows, measured when the tour is played, and what its question needs of it."""

    of: Literal[OfWhatComes, OfWhatIsShown]
    token: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="of a probability: of which token, or the likeliest; of attention: on which word"
    )
    name: str | None = Field(None, description="of a metric: its column in metrics.jsonl")
    step: Annotated[int, Field(ge=0)] | None = Field(
        None, description="of a metric: where, if not at the checkpoint shown"
    )
    percent: bool = Field(False, description="of a metric: shown as a percentage")
    side: Literal["A", "B"] = "A"
    before: bool = Field(False, description="as the stop is before its answer")
    equals: str | None = Field(None, description="the question needs this token to be the likeliest")

    def _rules(self) -> Iterable[Rule]:
        lacks_name = self.of == "metric" and self.name is None
        yield lacks_name, "name", "a metric needs the name of its column", "add one, as val_loss"
        has_token = self.token is not None and self.of not in MEASURED_OF_A_TOKEN
        yield has_token, "token", f"{self.of} is not measured of a token", "remove it"
        is_claimed = self.equals is not None and self.of != "likeliest"
        yield is_claimed, "equals", "only the likeliest token can be claimed to be one", "use least and most"


class Stop(Section):
    """Something to look at, a question about what comes, and what one sees then."""

    title: str = Field(min_length=1, max_length=60)
    say: str = Field(min_length=1, description="**bold**, `code`, {name} for a measured figure; blank lines split it")
    show: Shown = Shown()
    question: str | None = None
    choices: Annotated[tuple[str, ...], Field(strict=False)] | dict[str, Within] = Field(
        (), description="texts; or, if the answer is a measured {name}, each with the bounds within which it is right"
    )
    answer: str | None = Field(None, description="one of the choices; a measured {name}, unless it decides, is added")
    then: Shown = Field(Shown(), description="what changes on the page once the question is answered")
    because: str | None = Field(None, description="what to see now, and why")
    measures: dict[str, Measure] = Field({}, description="figures for the texts, and what the question needs of them")

    def _rules(self) -> Iterable[Rule]:
        asks, answers = self.question is not None, self.answer is not None
        yield answers and not asks, "answer", "without question", "add the question, or remove this"
        yield asks and not answers, "question", "without answer", "add the answer, or remove this"
        for key, is_given in {"choices": self.choices, "because": self.because, "then": self.then != Shown()}.items():
            yield not asks and is_given, key, "this belongs to a question", "add one, with its answer"
        is_choice = self.answer in self.choices or SLOT.search(self.answer or "")
        yield answers and not is_choice, "answer", f"{self.answer!r} is none of the choices", "add it to them"
        is_undecided = isinstance(self.choices, dict) and not SLOT.fullmatch(self.answer or "")
        yield is_undecided, "answer", "a measured figure decides among choices with bounds", "write its {name}"
        is_alone = asks and len({*self.choices, self.answer}) < (3 if isinstance(self.choices, dict) else 2)
        yield is_alone, "choices", "a question needs at least two", "add what a reader might expect"
        for key in ("say", "question", "answer", "because"):
            for slot in SLOT.findall(getattr(self, key) or ""):
                is_unknown, fix = slot not in self.measures, "add it to measures, or write it in words"
                yield is_unknown, key, f"{{{slot}}} is not measured", fix


class TourConfig(Section, json_schema_extra=JSON_SCHEMA):
    """A tour. `pellucid serve RUN --tour FILE` plays it."""

    title: str = Field(min_length=1, max_length=60)
    about: str = Field(min_length=1, description="what one can answer afterwards")
    minutes: int = Field(ge=1)
    runs: dict[str, RunOfTour] = Field(min_length=1, description="runs by name; the tour begins with the first one")
    stops: Annotated[tuple[Stop, ...], Field(strict=False, min_length=1)]

    def _rules(self) -> Iterable[Rule]:
        for stop in self.stops:
            for shown in (stop.show, stop.then):
                for name in (shown.run, (shown.compare or "").partition("@")[0]):
                    is_unknown, what = name and name not in self.runs, f"{stop.title!r} shows {name!r}"
                    yield is_unknown, "stops", what, f"name one of runs: {', '.join(self.runs)}"
        has_none = self.stops[0].show.text is None
        yield has_none, "stops", "the first stop shows no text", "add `show: {text: ...}` to it"


def load_tour(file: Path) -> TourConfig:
    """Read a tour of the page. Raises ConfigError, with file, line and key."""
    return read_section(TourConfig, file)[0]
