"""Pellucid from Python: the commands as functions, for notebooks, lessons and other programs (docs/api.md).

Errors are those of the commands: a PellucidError says where, what, and how to fix it.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from pellucid.adapters.quantized import Format as QuantizedFormat
from pellucid.checkpoint.run_directory import find_step_directory, run_of
from pellucid.config.arguments import checked
from pellucid.config.load import load_run_config
from pellucid.config.overrides import Change, parse_override
from pellucid.config.run import RunConfig
from pellucid.config.shipped import find_run
from pellucid.config.training import TrainConfig
from pellucid.errors import ConfigError
from pellucid.exchange.converted import merge_run, quantize_run
from pellucid.exchange.export import Format, export_run
from pellucid.exchange.imports import import_run
from pellucid.exchange.precision import Precision as ExportPrecision
from pellucid.files import RUNS_ROOT
from pellucid.generation.chat import Conversation
from pellucid.generation.sampling import Sampling
from pellucid.generation.text import search_text, stream_text
from pellucid.inspection.attribution import HeadTable
from pellucid.inspection.build import explain_run, heads_of_run, knock_out_run
from pellucid.inspection.embed import Layer, Pooling, embed
from pellucid.inspection.explanation import Explanation
from pellucid.inspection.interventions import Place
from pellucid.inspection.knock_out import N_DOCUMENTS, KnockOutTable
from pellucid.inspection.trace import Trace, trace_text
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.task import Validation
from pellucid.runs.evaluate_run import evaluate_on, evaluate_run, evaluate_text
from pellucid.runs.train_run import train_run
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.trained import TrainedModel, load_trained_run
from pellucid.training.metrics import read_rows


@checked
def load(path: str | Path, checkpoint: str | int = "best") -> Run:
    """Open a run directory, one of its step directories, or "demo". `checkpoint`: "best", "latest" or a step.

    A step without a checkpoint may name a snapshot. Raises CheckpointError if there is neither, or if it is damaged.
    """
    directory = find_step_directory(find_run(Path(path)), str(checkpoint))
    return Run(directory, *load_trained_run(directory))


@checked
def import_model(source: str | Path, run_dir: str | Path, base: str | Path | None = None) -> Run:
    """Import a model as a run, as `pellucid import` does, from a folder of transformers or the hub.

    base: the run of the base of a LoRA adapter, if that is what the folder holds. Raises CheckpointError for a model,
    and DataError for a tokenizer, that cannot be expressed here.
    """
    import_run(str(source), Path(run_dir), None if base is None else str(base))
    return load(run_dir)


@checked
def train(
    config: str | Path,
    run_dir: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    minutes: float | None = None,
    data_dir: str | Path = "data",
    **settings: Any,
) -> Run:
    """Train in `run_dir` (default: checkpoints/NAME), as `pellucid train` does, and return the run.

    minutes: only as many steps as fit into this time. settings: keys of the `train` section (steps=200) or of the top
    level (seed=1). overrides: any key by its path, {"optimizer.lr": 3e-4} or ["optimizer.lr=3e-4"].
    KeyboardInterrupt after Ctrl-C, once the run is saved.
    """
    changes = [_setting(name, value) for name, value in settings.items()]
    if isinstance(overrides, Mapping):
        changes += [Change(tuple(key.split(".")), value, "overrides") for key, value in overrides.items()]
    else:
        changes += [parse_override(override, "overrides") for override in overrides]
    run_config = load_run_config(Path(config), changes)
    directory = Path(run_dir) if run_dir else RUNS_ROOT / run_config.name
    note = partial(print, file=sys.stderr, flush=True)
    if resume and overwrite:
        raise ConfigError("pellucid.train", "resume and overwrite exclude each other", "give one of them")
    outcome = train_run(
        run_config, Path(data_dir), directory, resume=resume, overwrite=overwrite, minutes=minutes, note=note
    )
    if outcome.stopped_by is not None:
        raise KeyboardInterrupt(f"stopped after step {outcome.step}, saved; continue with resume=True")
    return load(directory)


def _setting(name: str, value: Any) -> Change:
    """A keyword argument of `train` as a change of the config."""
    for section, path in ((TrainConfig, ("train", name)), (RunConfig, (name,))):
        if name in section.model_fields:
            return Change(path, value, "pellucid.train")
    fix = f'give a key of the train section, or the whole path: overrides={{"section.{name}": {value!r}}}'
    raise ConfigError("pellucid.train", f"unknown setting {name}={value!r}", fix)


class DrawingOptions(TypedDict, total=False):
    """Settings for drawing each token, as in `Sampling`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]


class WritingOptions(DrawingOptions, total=False):
    """The options of `Run.stream`."""

    max_new_tokens: int
    stop: str | Iterable[str]
    seed: int | None


def _all_of(texts: str | Iterable[str]) -> list[str]:
    """One text or several, as a list."""
    return [texts] if isinstance(texts, str) else list(texts)


@dataclass(frozen=True)
class Run:
    """A trained model with its tokenizer, config and metrics; `directory` is that of its checkpoint."""

    directory: Path
    trained: TrainedModel
    precision: Precision

    def __repr__(self) -> str:
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        of = f"step {self.step:,}, {n_parameters:,} parameters, corpus {self.config.corpus.type}"
        return f"<Run {self.config.name}: {of}, in {self.directory}>"

    @property
    def model(self) -> LanguageModel:
        return self.trained.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.trained.tokenizer

    @property
    def config(self) -> RunConfig:
        return self.trained.config

    @property
    def step(self) -> int:
        return self.trained.step

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, as `pandas.DataFrame` takes them; none if the checkpoint was copied alone."""
        return read_rows(run_of(self.directory) / "metrics.jsonl")

    @checked
    def generate(
        self,
        prompt: str = "",
        *,
        beams: int | None = None,
        length_penalty: float = 1.0,
        **options: Unpack[WritingOptions],
    ) -> str:
        """A completion of the prompt; an empty prompt is the start of a document.

        beams: search for the likeliest text with this many beams; length_penalty 0 prefers short ones.
        options: those of `stream`; with beams, only max_new_tokens and stop.
        """
        if beams is None:
            return "".join(self.stream(prompt, **options))
        if excluded := options.keys() - {"max_new_tokens", "stop"}:
            raise ConfigError("beams", f"they exclude {min(excluded)}", "leave out one of the two")
        settings: dict[str, Any] = {"max_new_tokens": 256, **options, "stop": _all_of(options.get("stop", ()))}
        with self.precision.for_decoding().autocast():
            [best] = search_text(
                self.model, self.tokenizer, prompt, n_beams=beams, length_penalty=length_penalty, **settings
            )
        return best.completion

    @checked
    def stream(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 256,
        stop: str | Iterable[str] = (),
        seed: int | None = None,
        **sampling: Unpack[DrawingOptions],
    ) -> Iterator[str]:
        """A completion in pieces, each as soon as it is written. It ends before the first of the strings in `stop`.

        sampling: temperature (0 is greedy), top_k, top_p, min_p, repetition_penalty, presence_penalty,
        frequency_penalty, and logit_bias, what is added to the logits of some token ids. Equal seeds give equal texts.
        """
        settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "stop": _all_of(stop), "seed": seed}
        pieces = stream_text(self.model, self.tokenizer, prompt, sampling=Sampling(**sampling), **settings)
        yield from self.precision.for_decoding().making(pieces)

    @checked
    def chat(
        self, *, max_new_tokens: int | None = None, seed: int | None = None, **sampling: Unpack[DrawingOptions]
    ) -> Conversation:
        """A conversation with the model: `say` and `ask` add to it, and the model sees all earlier turns.

        max_new_tokens: of an answer; None is 3/4 of the context. sampling: as in `stream`. ConfigError for a model that
        was not fine-tuned on conversations.
        """
        settings: dict[str, Any] = {"sampling": Sampling(**sampling), "max_new_tokens": max_new_tokens, "seed": seed}
        return Conversation(self.model, self.tokenizer, self.precision, **settings)

    @checked
    def trace(self, text: str, *, knock_out: Iterable[Place] = (), patch: Mapping[Place, Trace] | None = None) -> Trace:
        """A trace of the model on a text, from the start of a document: attention, residuals, logits per layer.

        knock_out: places whose output is set to zero: ("head", LAYER, HEAD), ("attention", LAYER) or ("feed_forward",
        LAYER). patch: places whose output is replaced by that in the trace of another text with as many tokens.
        """
        return trace_text(self.model, self.tokenizer, text, knock_out=knock_out, patch=patch)

    @checked
    def heads(self, *, fables: int = N_DOCUMENTS) -> HeadTable:
        """A table of what each head looks at and, where the truth is known, its use for each skill.

        fables: the number of held-out documents to measure on, in any language.
        """
        return heads_of_run(self.trained, n_documents=fables)

    @checked
    def knock_out(self, *places: Sequence[Place], fables: int = N_DOCUMENTS) -> KnockOutTable:
        """The loss that each skill gains when places are knocked out, in nats per held-out document.

        Each argument is a list of places to knock out together, [("head", 1, 2)]; without any, every head and every
        sublayer is knocked out alone. ConfigError for a run on text whose truth is not known.
        """
        return knock_out_run(self.trained, places or None, n_documents=fables)

    @checked
    def embed(
        self, texts: str | Iterable[str], *, layer: Layer = "last", pooling: Pooling | None = "mean"
    ) -> NDArray[np.float32]:
        """A vector for each text, (texts, width), as by `pellucid embed`; with pooling=None, for each token.

        layer: 0 is the embedding, n is after block n, "last" after the final norm. A single string gives one vector, or
        (tokens, width).
        """
        vectors = embed(self.model, self.tokenizer, _all_of(texts), layer, pooling).vectors
        return vectors[0] if isinstance(texts, str) and pooling else vectors

    @checked
    def explain(
        self, text: str | None = None, *, number: int = 1, top: int = 10, attention: str | None = None
    ) -> Explanation:
        """The model's predictions at each token of a text, beside the truth where that is known.

        Without a text: of the `number`-th held-out document. top: the number of candidates for the next token.
        attention: the maps of "all" heads, or of one, LAYER.HEAD.
        """
        return explain_run(self.trained, text, number=number, n_candidates=top, attention=attention)

    @checked
    def evaluate(
        self,
        text_file: str | Path | None = None,
        *,
        on: str | Path | None = None,
        answers: int | None = None,
        samples: int | None = None,
        data_dir: str | Path = "data",
    ) -> Validation:
        """Loss and more on the whole validation text, or on a text file; for reward models and preferences, accuracy.

        on: a run or config whose validation text is used instead. answers: the number of held-out instructions to
        answer and judge, for a run that learned instructions (default: 200), or of questions of hops and sums, each of
        them `samples` times (default: 200 and 8, if one of both is given). `data_dir` holds the prepared corpus.
        CheckpointError if it is gone and the corpus has changed.
        """
        if sum(option is not None for option in (text_file, on, samples if answers is None else answers)) > 1:
            what = "text_file, on and answers (with samples) exclude each other"
            raise ConfigError("evaluate", what, "give one of them")
        if text_file is not None:
            return evaluate_text(self.trained, self.precision, Path(text_file))
        if on is not None:
            return evaluate_on(self.trained, self.precision, Path(on), Path(data_dir))
        where = str(self.directory)
        return evaluate_run(self.trained, self.precision, Path(data_dir), self.directory, where, answers, samples)

    @checked
    def export(
        self,
        directory: str | Path,
        to: Format = "hf",
        precision: ExportPrecision = "fp32",
        base: str | Path | None = None,
        rewrite: bool = True,
    ) -> None:
        """Write this checkpoint into a new folder that transformers ("hf") or llama.cpp ("gguf") reads.

        With "peft" its adapter alone; `base` is then the folder of transformers that holds the adapter's base.
        rewrite: if transformers has no class for the model, write an equal one of another shape; else refuse it.
        """
        base = str(base) if base else None
        export_run(self.directory, Path(directory), to=to, precision=precision, base=base, rewrite=rewrite)

    @checked
    def merge(self, run_dir: str | Path) -> Run:
        """Merge the adapter into a new run, as `pellucid merge` does, and open it."""
        merge_run(self.directory, Path(run_dir))
        return load(run_dir)

    @checked
    def quantize(self, run_dir: str | Path, to: QuantizedFormat) -> Run:
        """Quantize the weights into a new run, as `pellucid quantize` does, and open it."""
        quantize_run(self.directory, Path(run_dir), to)
        return load(run_dir)

    def _repr_html_(self) -> str:
        n_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        losses = [row["val_loss"] for row in self.metrics if row.get("val_loss") is not None]
        facts = {
            "run": f"{self.config.name}, step {self.step:,}",
            "model": f"{n_parameters:,} parameters, {self.model.n_layers} layers, "
            f"vocabulary {self.tokenizer.vocab_size:,}, context {self.model.context_length:,}",
            "validation loss": f"{losses[-1]:.4f} {self.config.loss_unit}" if losses else "not measured",
        }
        cell = "text-align:left; padding:.15em 1.2em .15em 0"
        rows = "".join(
            f'<tr><th style="{cell}; font-weight:600">{name}</th><td style="{cell}">{escape(fact)}</td></tr>'
            for name, fact in facts.items()
        )
        plot = run_of(self.directory) / "loss.png"
        image = base64.b64encode(plot.read_bytes()).decode() if plot.exists() else None
        figure = f'<img src="data:image/png;base64,{image}" alt="loss curve" width=480>' if image else ""
        card = "display:inline-block; border:1px solid #8886; border-radius:10px; padding:.8em 1.1em"
        return f'<div style="{card}"><table style="border-collapse:collapse">{rows}</table>{figure}</div>'
