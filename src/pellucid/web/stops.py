"""A stop of a tour in the runs at hand: the state of the page before its answer and after it, and its figures."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from pellucid.config.tour import SLOT, Measure, Shown, Stop, Within
from pellucid.errors import ConfigError
from pellucid.generation.sampling import apply_temperature, keep_top_k, keep_top_p
from pellucid.inspection.interventions import Place, places_of
from pellucid.inspection.trace import Trace
from pellucid.model.decoder import Decoder
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.pieces import token_text
from pellucid.web.descriptions import Json
from pellucid.web.microscope import Changes, Microscope

ROUNDING = 1e-9  # a sum of shares may miss 1 by as much
N_DOCUMENTS = 4  # of which the loss chooses a checkpoint
NONE = "none"  # instead of a checkpoint to compare with
UNTOUCHED: Json = {"off": "", "instead": "", "temperature": 1.0, "top_k": 0, "top_p": 1.0, "inside": False}
IN_NATS = ("entropy", "divergence", "surprise", "floor")


@dataclass(frozen=True)
class Figure:
    """A measured figure, as a number if it is one, and as the page shows it."""

    value: float | None
    shown: str


class PlayedStop:
    """A stop in the runs at hand. Raises ConfigError, at this place, where the tour asks for what is not there."""

    def __init__(self, microscope: Microscope, runs: Mapping[str, str], place: str, before: Shown, stop: Stop) -> None:
        self._microscope, self._runs, self._place, self._stop = microscope, runs, place, stop
        self._described = {run["name"]: run for run in microscope.runs.described()["runs"]}
        self._show = self._with_step(_over(before, stop.show))
        self.then = self._with_step(_over(self._show, stop.then))

    def to_json(self) -> Json:
        """The stop as the page plays it."""
        stop, show, then = self._stop, self._state(self._show), self._state(self.then)
        figures = {name: self._figure(each, show if each.before else then) for name, each in stop.measures.items()}

        def filled(text: str | None) -> str | None:
            return text and SLOT.sub(lambda slot: figures[slot[1]].shown, text)

        answer, choices = filled(stop.answer), [*stop.choices]
        if isinstance(stop.choices, dict):
            value = figures[SLOT.findall(stop.answer or "")[0]].value
            answer = next((choice for choice, bounds in stop.choices.items() if bounds.hold(value)), None)
        elif answer and answer not in choices:
            choices = sorted({*choices, answer})
        misses = [_miss(each, figures[name]) for name, each in stop.measures.items()]
        if choices and answer is None:
            misses.append(f"{filled(stop.answer)} is within the bounds of no choice")
        return {
            "title": stop.title,
            "say": filled(stop.say),
            "question": filled(stop.question),
            "choices": choices,
            "answer": answer,
            "because": filled(stop.because),
            "part": self._show.part,
            "show": show,
            "then_part": self.then.part,
            "then": then,
            "measured": {name: figure.value for name, figure in figures.items()},
            "misses": [miss for miss in misses if miss],
        }

    def _state(self, shown: Shown) -> Json:
        """The state of the page (`store.js`)."""
        run = self._runs[shown.run or next(iter(self._runs))]
        checkpoint = self._checkpoint(run, shown.step)
        text = shown.text or ""
        state = UNTOUCHED | shown.model_dump(include=set(UNTOUCHED), exclude_none=True)
        at = self._at(checkpoint, text, shown.at)
        head = self._head(run, text, at, shown.head) if shown.head else ""
        return {
            **state,
            "checkpoint": checkpoint,
            "other": self._other(shown.compare or ""),
            "text": text,
            "at": at,
            "head": head,
            "off": self._off(checkpoint, head, state["off"]),
        }

    def _checkpoint(self, run: str, step: int | str | None) -> str:
        best, checkpoints = self._described[run]["best"], self._checkpoints(run)
        if isinstance(step, int):
            distance = [abs(math.log1p(checkpoint["step"]) - math.log1p(step)) for checkpoint in checkpoints]
            return str(checkpoints[distance.index(min(distance))]["id"])
        if step in (None, "best") and best:
            return str(best)
        return str(checkpoints[0 if step == "first" else -1]["id"])

    def _checkpoints(self, run: str) -> list[Json]:
        checkpoints: list[Json] = self._described[run]["checkpoints"]
        if not checkpoints:
            raise ConfigError(self._place, f"{run} has no checkpoint yet", "wait until it has saved one")
        return checkpoints

    def _with_step(self, shown: Shown) -> Shown:
        """A view that names a loss, with the step of its checkpoint instead: what follows may show another run then."""
        if shown.loss is None:
            return shown
        run = self._runs[shown.run or next(iter(self._runs))]
        checkpoints = self._checkpoints(run)
        first = bisect_left(checkpoints[:-1], -shown.loss, key=lambda checkpoint: -self._loss(run, checkpoint["id"]))
        return shown.model_copy(update={"loss": None, "step": int(checkpoints[first]["step"])})

    def _loss(self, run: str, checkpoint: str) -> float:
        """Nats per token of a few held-out documents."""
        documents = self._microscope.runs.held_out(checkpoint, N_DOCUMENTS)
        if not documents:
            raise ConfigError(self._place, f"loss: {run} has no held-out text here", "name a step")
        each = [_surprises(self._microscope.traced(checkpoint, document)[1]) for document in documents]
        return float(torch.cat(each).mean())

    def _other(self, compared: str) -> str:
        role, _, step = compared.partition("@")
        return self._checkpoint(self._runs[role], int(step) if step.isdecimal() else step or None) if role else NONE

    def _at(self, checkpoint: str, text: str, at: str | int | None) -> int:
        """The token's number; -1 for the last."""
        if at is None:
            return -1
        opened, traced = self._microscope.traced(checkpoint, text)
        if isinstance(at, int):
            if at < len(traced.ids):
                return at
            what = f"at: the text that the model reads has no token {at}"
            raise ConfigError(self._place, what, f"name one up to {len(traced.ids) - 1}")
        texts = [token_text(opened.tokenizer, id_) for id_ in traced.ids[1:]]
        found = "".join(texts).rfind(at)
        if found < 0:
            raise ConfigError(self._place, f"at: {at!r} is not in the text that the model reads", "copy it from there")
        place = 1 + bisect_left(list(accumulate(map(len, texts))), found + len(at))
        return -1 if place == len(texts) else place

    def _head(self, run: str, text: str, at: int, wanted: str) -> str:
        """A head by name; or, measured in the run's last checkpoint, the one with most of what is wanted."""
        last = str(self._described[run]["checkpoints"][-1]["id"])
        _, traced = self._microscope.traced(last, text)
        n_layers, n_heads = traced.attention.shape[:2]
        if not n_heads:
            return ""
        if wanted[0].isdecimal():
            layer, head = map(int, wanted.split("."))
            if layer >= n_layers or head >= n_heads:
                what = f"head: {run} has no head {wanted}"
                raise ConfigError(self._place, what, f"name one up to {n_layers - 1}.{n_heads - 1}")
            return f"{layer}.{head}"
        if wanted in ("deciding", "not deciding"):
            places = self._deciding(last, text, at)
            if not places:
                raise ConfigError(self._place, "the grammar names no words that decide the next token", "name a head")
            taken_LH = traced.attention[:, :, at, places].sum(-1)
            layer, head = divmod(int(taken_LH.argmax()), n_heads)
            if wanted == "not deciding":  # of the same layer: what an earlier one gives may be what makes it look
                head = int(taken_LH[layer].argmin())
            return f"{layer}.{head}"
        heads = self._microscope.heads(last)["heads"]
        if wanted not in heads[0]["scores"]:
            what = f"head: {wanted!r} is neither a head nor a score"
            raise ConfigError(self._place, what, f"write 1.2, deciding, or one of {', '.join(heads[0]['scores'])}")
        best = max(heads, key=lambda head: head["scores"][wanted])
        return f"{best['layer']}.{best['head']}"

    def _deciding(self, checkpoint: str, text: str, at: int) -> list[int]:
        places: list[list[int]] = self._microscope.deciding(checkpoint, text)["places"]
        return places[at] if places else []

    def _off(self, checkpoint: str, head: str, off: str) -> str:
        model = self._microscope.runs.open(checkpoint).model
        places = places_of(model) if isinstance(model, Decoder) else []
        if off == "all heads":
            return " ".join(f"{place[1]}.{place[2]}" for place in places if len(place) == 3)
        if places and not head and "head" in off.split():
            raise ConfigError(self._place, "off: head, and no head is shown", "add `head`")
        parts = [head if part == "head" else part for part in off.split()]
        for part in parts if places else []:
            if _place(part) not in places:
                raise ConfigError(self._place, f"off: {checkpoint} has no part {part}", "name one that part 7 shows")
        return " ".join(parts)

    # Figures

    def _figure(self, measure: Measure, state: Json) -> Figure:
        value = self._measured(measure, state)
        if isinstance(value, str):
            return Figure(None, value)
        if value is None:
            return Figure(None, "–")
        if measure.of == "step":
            return Figure(value, f"{value:,.0f}")
        if measure.of in IN_NATS or (measure.of == "metric" and not measure.percent):
            is_small = abs(value) < (1 if measure.of == "metric" else 0.005)  # a loss and its floor differ in the third
            return Figure(value, f"{value:.{3 if is_small and abs(value) >= 0.0005 else 2}f}".replace("-", "−"))
        ends = "under 0.1%" if 0 < value < 0.0005 else "over 99.9%" if 0.9995 <= value < 1 - ROUNDING else None
        return Figure(value, ends or f"{100 * value:.1f}%")  # only 1 is shown as 100%

    def _measured(self, measure: Measure, state: Json) -> float | str | None:
        checkpoint, at = (state["other"] if measure.side == "B" else state["checkpoint"]), state["at"]
        if checkpoint == NONE:
            raise ConfigError(self._place, "side B is measured, and there is none", "add `compare`, or measure side A")
        run, _, step = checkpoint.rpartition("@")
        if measure.of == "head":
            return str(state["head"])
        if measure.of == "step":
            return int(step)
        if measure.of == "metric":
            return self._metric(run, int(step) if measure.step is None else measure.step, str(measure.name))
        if measure.of in ("floor", "entropy"):
            return self._true(measure.of, checkpoint, state["text"], at)
        changes = Changes()
        if measure.side != "B":
            changes = Changes([*map(_place, state["off"].split())], state["instead"] or None)
        opened, traced = self._microscope.traced(checkpoint, state["text"], changes)
        if measure.of == "attention":
            if not state["head"]:
                raise ConfigError(self._place, "attention is measured, and no head is shown", "add `head`")
            layer, head = map(int, state["head"].split("."))
            places = self._deciding(checkpoint, state["text"], at)
            if measure.token is not None:
                places = [self._at(checkpoint, state["text"], measure.token)]
            return float(traced.attention[layer, head, at, places].half().float().sum())  # as the page has it
        if measure.of == "surprise":
            return float(_surprises(traced).mean()) if len(traced.ids) > 1 else None
        logits_V = traced.unembed(traced.residuals[-1:])[0, at].float()
        p_V = drawn(logits_V, state)
        id_ = int(p_V.argmax()) if measure.token is None else self._id(opened.tokenizer, measure.token)
        if measure.of == "likeliest":
            return token_text(opened.tokenizer, id_).strip()
        if measure.of == "probability":
            return float(p_V[id_])
        known = self._microscope.truth(checkpoint, state["text"])
        position = known["positions"][at] if known["known"] else None
        if position is None:
            return None
        truth = {id_: p for id_, p in zip(position["ids"], position["p"], strict=True) if id_ >= 0}
        if measure.of == "truth":
            return float(truth.get(id_, 0.0))
        if measure.of == "impossible":
            return max(0.0, 1.0 - float(p_V[list(truth)].sum()))
        log_q_V = logits_V.log_softmax(-1)
        return math.fsum(p * (math.log(p) - float(log_q_V[id_])) for id_, p in truth.items() if p)

    def _true(self, of: str, checkpoint: str, text: str, at: int) -> float | None:
        """The floor of the text, or the entropy of the next token; None where the grammar does not know it."""
        known = self._microscope.truth(checkpoint, text)
        if not known["known"]:
            return None
        values = known["floor"] if of == "floor" else [known["entropy"][at]]
        return None if None in values or not values else math.fsum(values) / len(values)

    def _id(self, tokenizer: Tokenizer, word: str) -> int:
        """The token of a word as it stands within a text, with the space before it; or of a sign, without."""
        for text in (f" {word}", word):
            if len(ids := tokenizer.encode(text)) == 1:
                return int(ids[0])
        raise ConfigError(self._place, f"{word!r} is no single token of this run", "name one that part 2 shows")

    def _metric(self, run: str, step: int, name: str) -> float | None:
        """A column of metrics.jsonl, or `skills.recall.accuracy` in one, where it was measured nearest to a step."""
        measured = []
        for row in self._microscope.runs.metrics(run):
            value: Any = row
            for key in name.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, (int, float)):
                measured.append((abs(row["step"] - step), float(value)))
        if not measured:
            raise ConfigError(self._place, f"{run} has not measured {name!r}", "name a column of its metrics.jsonl")
        return min(measured)[1]


def _over(before: Shown, changes: Shown) -> Shown:
    """The view after these changes. Another text is looked at from its end, and no head of it is chosen yet."""
    changed = changes.model_dump(exclude_none=True)
    if "text" in changed:
        changed = {"at": None, "head": None, **changed}
    if "step" in changed or "loss" in changed:
        changed = {"step": None, "loss": None, **changed}
    return before.model_copy(update=changed)


def _surprises(traced: Trace) -> torch.Tensor:
    """How much each token of a text surprised the model."""
    log_q_TV = traced.unembed(traced.residuals[-1:])[0, :-1].float().log_softmax(-1)
    return -log_q_TV.gather(-1, torch.tensor(traced.ids[1:])[:, None])[:, 0]


def drawn(logits_V: torch.Tensor, state: Mapping[str, Any]) -> torch.Tensor:
    """The probabilities of all tokens after the sliders: temperature, top-k and top-p, in this order."""
    logits_1V = apply_temperature(logits_V[None], state["temperature"])
    kept_1C, ids_1C = keep_top_k(logits_1V, state["top_k"] or logits_1V.shape[-1])
    p_1C = keep_top_p(kept_1C, state["top_p"]).softmax(-1)
    return torch.zeros_like(logits_V).scatter(0, ids_1C[0], p_1C[0])


def _place(part: str) -> Place:
    """The place of a part named as in the page's address: "1.2" is a head, a1 and f1 are the sublayers of layer 1."""
    if kind := {"a": "attention", "f": "feed_forward"}.get(part[0]):
        return kind, int(part[1:])
    layer, head = map(int, part.split("."))
    return "head", layer, head


def _miss(measure: Measure, figure: Figure) -> str | None:
    """In words, where a figure is not what the question needs; None where it is."""
    of = measure.of if measure.name is None else measure.name
    what = f"{of} of “{measure.token}”" if measure.token else of
    if measure.equals is not None:
        is_so = figure.shown == measure.equals
        return None if is_so else f"the likeliest token is “{figure.shown}”, and the question needs “{measure.equals}”"
    if measure.hold(figure.value):
        return None
    is_less = not Within(least=measure.least).hold(figure.value)
    bound, words = (measure.least, "at least") if is_less else (measure.most, "at most")
    is_share = "%" in figure.shown
    return f"{what} is {figure.shown}, and the question needs {words} {f'{bound:.0%}' if is_share else bound}"
