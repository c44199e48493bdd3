"""Plans the runs of an experiment: each variant with each seed, in a fixed order."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from pellucid.config.base import Section
from pellucid.config.experiment import ExperimentConfig, LoadedExperiment, MeasuresConfig, load_experiment
from pellucid.config.languages import DrawnSection
from pellucid.config.load import load_run_config
from pellucid.config.overrides import Change, parse_override
from pellucid.config.run import RunConfig
from pellucid.config.shipped import find_config
from pellucid.errors import ConfigError
from pellucid.experiments.own_code import OwnCode, OwnFile

PLAN_FILE = "plan.json"
LONGEST_FOLDER_NAME = 60  # characters, without seed and hash
_ABSENT = object()  # stands for a key that this run's config does not have
LAB = ("pandas", "scipy")  # packages of the extra `lab`: what trains, evaluates and writes needs none of them


def require_lab() -> None:
    """Raise ConfigError if a package is missing that tables and figures need: better now than after the runs."""
    if missing := [name for name in LAB if find_spec(name) is None]:
        raise ConfigError("experiment", f"{' and '.join(missing)} must be installed", "pip install 'pellucid[lab]'")


class PlannedRun(Section):
    """One run of an experiment: a variant with one seed. plan.json stores it for the run's process.

    label: the variant.   overrides: the values of the dotted keys in which the variants differ.
    texts: the run's config with each corpus of `measures.texts`, by name.   own: the experiment's own code.
    """

    label: str
    seed: int
    overrides: dict[str, Any]
    config: RunConfig
    measures: MeasuresConfig
    texts: dict[str, RunConfig] = Field({})
    own: OwnFile | None = None

    @property
    def corpus_key(self) -> str:
        """A key that is equal for runs with the same corpus and tokenizer."""
        return self.config.corpus.model_dump_json() + self.config.tokenizer.model_dump_json()

    @property
    def what_decides(self) -> tuple[RunConfig, MeasuresConfig, str]:
        """Everything that the result depends on: after an edit of any of it, the run is made again."""
        return self.config, self.measures, self.own.sha256 if self.own else ""

    def directory(self, experiment: Path) -> Path:
        """The run's folder, named by label, seed and a hash of the config, so that no run finds another's state."""
        digest = hashlib.sha256(self.config.model_dump_json().encode()).hexdigest()
        return experiment / "runs" / f"{self.config.name}-{digest[:8]}"


@dataclass(frozen=True)
class Plan:
    """An experiment and all its runs: variants in the order of the file, with all seeds of each.

    source: its file; overrides: `key=value` from the command line, applied to every run; own: its own code.
    """

    config: ExperimentConfig
    source: Path
    own: OwnCode
    overrides: tuple[str, ...]
    runs: tuple[PlannedRun, ...]


class Variant(NamedTuple):
    """A point of the grid or an entry of the list of runs; `changes` are its changes of the base config."""

    label: str
    changes: list[Change]


def plan_experiment(file: Path, overrides: Sequence[str] = ()) -> Plan:
    """Plan the runs of an experiment's file: the base config, changed by `set`, the variant, the seed and `overrides`.

    Raises ConfigError, with the line in the experiment's file, for an invalid config, for runs that are equal or have
    equal names, and for figures of variants that do not exist; and as `OwnCode` does.
    """
    require_lab()
    experiment = load_experiment(file)
    config = experiment.config
    own = OwnCode(find_config(file).with_suffix(".py"))
    own.require_for(config)
    variants = _variants(experiment)
    varied_keys = list(dict.fromkeys(change.key for variant in variants for change in variant.changes))
    common = [parse_override("checkpoint.snapshots=0")]  # those of many runs would fill the disk
    common += [_change(experiment, ("set", key), key, value) for key, value in config.set.items()]
    last = [parse_override(override) for override in overrides]
    for change in [*common, *(change for variant in variants for change in variant.changes), *last]:
        _require_free(change)
    labels = [variant.label for variant in variants]
    for figure in config.figures:
        if unknown := [label for label in figure.only if label not in labels]:
            what = f"figure '{figure.title}': `only` names '{unknown[0]}', which is no variant"
            choices = ", ".join(f"'{label}'" for label in labels)
            raise ConfigError(f"experiment {config.name}", what, f"choose from {choices}")
    text_changes = {
        name: [_change(experiment, ("measures", "texts", name, key), key, value) for key, value in changes.items()]
        for name, changes in config.measures.texts.items()
    }
    runs = []
    for variant in variants:
        changes = [*common, *variant.changes, *last]
        run_config = load_run_config(Path(config.base), changes)
        texts = {name: load_run_config(Path(config.base), [*changes, *more]) for name, more in text_changes.items()}
        _require_measurable(run_config, config.measures, texts)
        varied = _values(varied_keys, variant.changes, run_config)
        runs += [
            PlannedRun(
                label=variant.label,
                seed=seed,
                overrides=varied,
                config=run_config.model_copy(update={"seed": seed, "name": f"{_slug(variant.label)}-seed{seed}"}),
                measures=config.measures,
                texts=texts,
                own=own.file,
            )
            for seed in config.seeds
        ]
    _require_different(config, runs)
    return Plan(config, file, own, tuple(overrides), tuple(runs))


def _variants(experiment: LoadedExperiment) -> list[Variant]:
    """The list of runs, or the cartesian product of the grid: the last key changes fastest."""
    config = experiment.config
    if config.runs:
        return [
            Variant(run.label, [_change(experiment, ("runs", i, "set", key), key, v) for key, v in run.set.items()])
            for i, run in enumerate(config.runs)
        ]
    names = _short_names(list(config.grid))
    axes = [
        [_change(experiment, ("grid", key, i), key, value) for i, value in enumerate(values)]
        for key, values in config.grid.items()
    ]
    return [
        Variant(", ".join(f"{names[change.key]}={_short(change.value)}" for change in point), list(point))
        for point in product(*axes)
    ]


def _change(experiment: LoadedExperiment, place: tuple[str | int, ...], key: str, value: Any) -> Change:
    """A change, with its place as errors name it: `configs/experiments/depth.yaml:9: grid`."""
    line = experiment.places.get(place, experiment.places[()])  # a default has no line
    return Change(tuple(key.split(".")), value, f"{line}: {place[0]}")


def _values(keys: Sequence[str], changes: Sequence[Change], config: RunConfig) -> dict[str, Any]:
    """The run's value of each key that it has; of a section, only the keys that the variant gives."""
    values = {}
    written = {change.key: change.value for change in changes}
    complete = config.model_dump(mode="json")
    for key in keys:
        value: Any = complete
        for part in key.split("."):
            value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            section = written.get(key)
            is_as_written = isinstance(section, dict) and isinstance(value, dict) and section.items() <= value.items()
            values[key] = section if is_as_written else value
    return values


def _require_free(change: Change) -> None:
    """Raise ConfigError for a change of seed or name, which the experiment sets itself."""
    if change.key in ("seed", "name"):
        fix = "list them under `seeds`" if change.key == "seed" else "give the variants labels, under `runs`"
        raise ConfigError(change.place, f"the {change.key} of each run is the experiment's to set", fix)


def _require_measurable(run: RunConfig, measures: MeasuresConfig, texts: Mapping[str, RunConfig]) -> None:
    """Raise ConfigError for a run without text to evaluate it on, or without what `measures` asks for."""
    objective, corpus = run.objective.type, run.corpus.type
    if not run.reads_text and (corpus in ("conversations", "preferences") or objective == "reward_model"):
        what = f"an experiment compares losses of text, and {objective} on {corpus} has none"
        fix = "use next_token, sft or distill; or dpo, grpo or ppo with corpus.type instructions"
        raise ConfigError("objective.type", what, fix)
    if measures.answers and corpus != "instructions":
        what = f"{corpus} asks no questions whose answers could be judged"
        raise ConfigError("measures.answers", what, "leave it out, or use corpus.type instructions")
    for name, other in texts.items():
        where = f"measures.texts.{name}"
        if other.model_dump(exclude={"corpus"}) != run.model_dump(exclude={"corpus"}):
            raise ConfigError(where, "other texts differ in keys of the corpus", "change no key but those of corpus")
        if not isinstance(other.corpus, DrawnSection) or other.corpus.type == "instructions":
            what = f"of corpus.type {other.corpus.type}, no texts with a known truth can be drawn"
            raise ConfigError(where, what, "leave it out, or take a language that `pellucid configs` lists")


def _require_different(config: ExperimentConfig, runs: Sequence[PlannedRun]) -> None:
    label_of: dict[str, str] = {}
    config_of: dict[tuple[str, int], str] = {}
    where = f"experiment {config.name}"
    for run in runs:
        content = run.config.model_dump_json(exclude={"name"})
        if content in label_of:
            what = f"'{label_of[content]}' and '{run.label}' with seed {run.seed} are the same run"
            raise ConfigError(where, what, "let every variant and every seed differ")
        label_of[content] = run.label
        if config_of.setdefault((run.label, run.seed), content) != content:
            what = f"two different runs are called '{run.label}'"
            raise ConfigError(where, what, "list them under `runs`, each with a label of its own")


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, `n_layers` for model.n_layers; the whole key if two have the same last part."""
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    return {key: key if list(last.values()).count(part) > 1 else part for key, part in last.items()}


def _short(value: Any) -> str:
    """A value for a label; a section is shown by its type."""
    if isinstance(value, dict) and "type" in value:
        return str(value["type"])
    return value if isinstance(value, str) else json.dumps(value)


def _slug(label: str) -> str:
    """The label as a folder's name."""
    words = re.sub(r"[^A-Za-z0-9._]+", "-", label)[:LONGEST_FOLDER_NAME]
    return words.strip("-._") or "run"
