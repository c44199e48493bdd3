"""Loads the config of a run from a YAML file and `key=value` overrides."""

from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from pellucid.config.overrides import Change, Note, apply_changes, parse_override, without_quotes
from pellucid.config.read import read_keys, read_text, validated
from pellucid.config.run import RunConfig, run_and_checkpoint, run_meant_by
from pellucid.config.shipped import find_config
from pellucid.config.yaml_source import MAX_CHARACTERS, Places, shortened, write_yaml
from pellucid.errors import CheckpointError, ConfigError


def load_run_config(file: FilePath, changes: Iterable[str | Change] = (), note: Note = lambda _: None) -> RunConfig:
    """Read a run config and apply changes, such as the override `optimizer.lr=3e-4`, validated like the file.

    The last change of a key counts. A section that gets another type (`model.type=lstm`) keeps the keys that both
    have; `note` receives those left out. Raises ConfigError with file, line and key, and a suggestion for a slip.
    """
    file = find_config(file)
    return parse_run_config(read_text(file), str(file), changes, note)


def parse_run_config(
    text: str, source: str, changes: Iterable[str | Change] = (), note: Note = lambda _: None
) -> RunConfig:
    """Read a run config from YAML text, as `load_run_config` does from a file. Errors call the text `source`."""
    parsed = []
    for change in changes:
        parsed.append(parse_override(change) if isinstance(change, str) else change)
        if isinstance(change, str) and (meant := without_quotes(change)):
            note(f'the value in {shortened(change)} is a text, quotes and all; if the shell kept them: "{meant}"')
    data, places = read_keys(RunConfig, text, source)
    _take_from_base(data, places, parsed)
    apply_changes(data, places, parsed, RunConfig, note)
    _read_old_model(data.get("model"), note)
    config = validated(RunConfig, data, places, [change.path for change in parsed])
    if len(run_config_to_yaml(config)) > MAX_CHARACTERS:  # a run must be able to read the config that it wrote
        what = f"more than {MAX_CHARACTERS:,} characters once it is written out"
        raise ConfigError(source, what, "name fewer files, by globs for example")
    return config


def run_config_to_yaml(config: RunConfig) -> str:
    """The complete config, with defaults, as YAML that `load_run_config` reads back to an equal config."""
    return write_yaml(config.model_dump(mode="json"))


def _read_old_model(model: Any, note: Note) -> None:
    """Until November 2026 a model section said which of two forms of its functions it used."""
    if isinstance(model, dict) and model.pop("kernels", None) is not None:
        note("model.kernels has no effect any more: what is written in model/ is what runs")
    if isinstance(model, dict) and model.get("attention") == "auto":
        model["attention"] = "explicit"
        note("model.attention: auto is read as explicit; fused is faster for long texts and on GPUs")


def _take_from_base(data: dict[str, Any], places: Places, changes: list[Change]) -> None:
    """Fill in missing `tokenizer`, `quantization` and keys of `model` from the run that this one starts from.

    Raises CheckpointError if they are needed and there is no such run.
    """
    changed_sections = {change.path[0]: change.value for change in changes if len(change.path) == 1}
    start_from = changed_sections.get("start_from", data.get("start_from"))
    missing = {"model", "tokenizer"} - data.keys() - changed_sections.keys()
    is_partial = isinstance(data.get("model"), dict) and "model" not in changed_sections
    if not isinstance(start_from, str) or not start_from or not (missing or is_partial):
        return
    run, _ = run_and_checkpoint(start_from)
    folders = [run, *sorted(run.glob("step-*"), reverse=True)]  # a run may have been copied without its own two files
    file, tokenizer = (
        next((folder / name for folder in folders if (folder / name).is_file()), None)
        for name in ("config.yaml", "tokenizer.json")
    )
    if file is None and not missing:
        return  # the section is complete: the run was copied away from its base
    if file is None:
        what = "no checkpoint here" if run.is_dir() else "no such run"
        meant = run_meant_by(run)
        fix = "train it first, or name another run; a run that has begun resumes from its own config.yaml"
        fix = f"did you mean {meant}?" if meant else fix
        raise CheckpointError(str(run), what, fix)
    base, _ = read_keys(RunConfig, read_text(file), str(file))
    _read_old_model(base.get("model"), lambda _: None)  # whoever starts from it did not write it
    tokenizer = tokenizer or file.with_name("tokenizer.json")
    copied = {"model": base.get("model"), "tokenizer": {"type": "file", "path": tokenizer.as_posix()}}
    if base.get("adapter") is None and "quantization" not in data.keys() | changed_sections.keys():
        missing.add("quantization")  # weights with an adapter are merged, and no longer quantized
        copied["quantization"] = base.get("quantization", "none")
    for key in sorted(missing):
        data[key], places[(key,)] = copied[key], str(file)
    if is_partial and isinstance(copied["model"], dict):
        own_type = data["model"].get("type", "decoder")
        if own_type == copied["model"].get("type", "decoder"):
            data["model"] = {**copied["model"], **data["model"]}
