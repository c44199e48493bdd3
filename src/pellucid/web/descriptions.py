"""The description of a run for the page: its sizes, its checkpoints, and the parts of the page that apply to it."""

import inspect
from pathlib import Path
from typing import Any

from pellucid.checkpoint.run_directory import run_of, step_directories
from pellucid.checkpoint.step_directory import STEP_NAME
from pellucid.config.data import CONVERSATIONS
from pellucid.config.load import load_run_config
from pellucid.config.post_training import VerifierConfig
from pellucid.config.run import RunConfig
from pellucid.files import sha256
from pellucid.inspection.build import knows_skills
from pellucid.inspection.trace import NOTHING_INSIDE
from pellucid.training.metrics import read_rows

Json = dict[str, Any]

NOT_BEGUN: Json = {  # for a run whose folder has no config yet
    "loss_unit": "nats per token",
    "most_reward": None,
    "vocabulary": None,
    "steps": None,
    "context_length": None,
    "evaluation_tokens": None,
    "best": None,
    "checkpoints": [],
    "knows_truth": False,
    "writes": "text",
    "reads": "",
    "has_beliefs": False,
    "has_chat": False,
    "left_out": None,
}
PARTS = {  # of the page, those that do not apply to all kinds of models, and their headings
    "machine": "Your model",
    "attention": "Attention",
    "lens": "Logit lens",
    "inside": "Inside one step",
    "knock": "Knock out",
    "compare": "Compare",
}
FILLS_GAPS = "this model fills gaps from both sides, and each token is shown as it is while it alone is hidden"


def describe(name: str, path: Path) -> Json:
    """The sizes of a run's model, what its page can show, and its checkpoints, oldest first."""
    if not (path / "config.yaml").exists():
        return {"name": name, **NOT_BEGUN}
    config = load_run_config(path / "config.yaml")
    losses = {row["step"]: row.get("val_loss") for row in rows_of(path)}
    steps, tokenizer = steps_of(path), folder_of(path) / "tokenizer.json"
    evaluated = {step: float(loss) for step in steps if (loss := losses.get(step)) is not None}
    return {
        "name": name,
        "loss_unit": config.loss_unit,
        "most_reward": most_reward(config),
        "vocabulary": sha256(tokenizer)[:16] if tokenizer.exists() else None,  # equal for equal tokenizers
        "steps": getattr(config.train, "steps", None),
        "knows_truth": knows_skills(config.corpus),
        "writes": "fable" if config.corpus.type == "fables" else "text",
        "reads": reads(config),
        "has_beliefs": config.corpus.type == "hidden" and config.model.type == "decoder",
        "has_chat": config.corpus.type in CONVERSATIONS,
        "left_out": left_out(config),
        "context_length": config.model.context_length,
        "evaluation_tokens": config.evaluation.max_tokens,
        "best": f"{name}@{min(evaluated, key=lambda step: evaluated[step])}" if evaluated else None,
        "checkpoints": [{"id": f"{name}@{step}", "step": step, "val_loss": losses.get(step)} for step in steps],
    }


def reads(config: RunConfig) -> str:
    """Name a run's texts by the first words of its corpus in config/, as the rest of a sentence."""
    said = inspect.getdoc(type(config.corpus)) or "Text."
    first = said.partition("\n")[0]
    return first if first[:2].isupper() else first[0].lower() + first[1:]


def left_out(config: RunConfig) -> Json | None:
    """The parts of the page that do not apply to this kind of model, and why; None if all do."""
    if config.objective.type == "masked":
        return {"parts": ["machine", "inside", "knock", "compare"], "why": FILLS_GAPS, "fills_gaps": True}
    if config.model.type == "decoder":
        return None
    why = NOTHING_INSIDE.replace("model", f"model ({config.model.type})", 1)
    return {"parts": ["attention", "lens", "inside", "knock"], "why": why, "fills_gaps": False}


def most_reward(config: RunConfig) -> float | None:
    """The most reward that an answer can get; None if that is not known, or nothing is rewarded."""
    reward = getattr(config.objective, "reward", None)
    return 1.0 if isinstance(reward, VerifierConfig) else None


def folder_of(path: Path) -> Path:
    """The run's folder, from itself or the folder of one of its checkpoints."""
    return run_of(path) if STEP_NAME.fullmatch(path.name) else path


def rows_of(path: Path) -> list[Json]:
    return read_rows(folder_of(path) / "metrics.jsonl")


def steps_of(path: Path) -> list[int]:
    """The steps with weights, from checkpoints and snapshots."""
    return sorted({int(directory.name.removeprefix("step-")) for directory in step_directories(path)})
