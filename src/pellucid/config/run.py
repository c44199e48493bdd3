"""The config of a complete run, in the order of the data's way through the code."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from pellucid.config import training
from pellucid.config.base import JSON_SCHEMA, Rule, Section
from pellucid.config.data import (
    CONVERSATIONS,
    BytePairConfig,
    CorpusConfig,
    DataConfig,
    PreferencesConfig,
    TokenizerConfig,
)
from pellucid.config.languages import DrawnSection
from pellucid.config.model import ModelConfig, with_type
from pellucid.config.post_training import (
    DistillConfig,
    GRPOConfig,
    LoRAConfig,
    NextTokenConfig,
    ObjectiveConfig,
    Quantization,
)
from pellucid.config.shipped import find_run
from pellucid.files import RUNS_ROOT

NEEDS_REFERENCE = ("dpo", "grpo", "ppo")
NEEDS_DECODER = ("reward_model", *NEEDS_REFERENCE)
LEARNS_FROM_PAIRS = ("reward_model", "dpo")
LEARNS_ALL_TOKENS = ("next_token", "masked", "distill")
CORPORA_OF_OBJECTIVE = {
    "sft": ("instructions", "conversations"),
    **dict.fromkeys(LEARNS_FROM_PAIRS, ("instructions", "preferences")),
    "grpo": ("instructions", "hops", "sums"),
    "ppo": ("instructions",),
}


def for_editors(schema: JsonDict) -> None:
    """Tell editors that a run that starts from another may leave out `model`, as loading a file does."""
    required = schema["required"]
    assert isinstance(required, list)
    required.remove("model")
    schema.update({**JSON_SCHEMA, "anyOf": [{"required": ["model"]}, {"required": ["start_from"]}]})


class RunConfig(Section, json_schema_extra=for_editors):
    """One training run. `pellucid train` reads it from YAML and saves it, with all defaults, beside the weights."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="the run is saved in checkpoints/<name>")
    start_from: str | None = Field(
        None,
        min_length=1,
        description="RUN, RUN@best, RUN@latest or RUN@STEP: begin with the weights of that run, which also gives "
        "`tokenizer`, `quantization` and the keys of `model` that are left out",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="decides the initial weights, data order and dropout")
    corpus: CorpusConfig
    tokenizer: TokenizerConfig = BytePairConfig(type="bpe")
    data: DataConfig = DataConfig()
    model: Annotated[ModelConfig, BeforeValidator(with_type)]
    quantization: Quantization = Field(
        "none", description="format of frozen weights: of a run by `pellucid quantize`, or of an adapter's base"
    )
    adapter: LoRAConfig | None = Field(None, description="what is trained beside the frozen weights of `start_from`")
    objective: ObjectiveConfig = NextTokenConfig(type="next_token")
    optimizer: training.OptimizerConfig
    schedule: training.ScheduleConfig
    train: training.TrainConfig
    evaluation: training.EvaluationConfig = training.EvaluationConfig()
    sample: training.SampleConfig = training.SampleConfig()
    checkpoint: training.CheckpointConfig = training.CheckpointConfig()
    trackers: Annotated[tuple[Literal["tensorboard", "wandb"], ...], Field(strict=False)] = Field(
        (), description="also show the rows of metrics.jsonl there; each needs its package (docs/ecosystem.md)"
    )

    @property
    def base_run(self) -> tuple[Path, str] | None:
        """The run to start from, and best, latest or a step."""
        return None if self.start_from is None else run_and_checkpoint(self.start_from)

    @property
    def learns_scores(self) -> bool:
        """Whether the decoder also learns to give each token a number: a reward or a value."""
        return self.objective.type in ("reward_model", "ppo")

    @property
    def reads_text(self) -> bool:
        """Whether the run learns to predict text like that of its corpus, instead of judgements of answers."""
        return self.trains_as_it_validates or self.objective.type in ("distill", "masked")

    @property
    def trains_as_it_validates(self) -> bool:
        """Whether the loss of training is that of validation: −ln p of tokens. Only then it has the same floor."""
        return self.objective.type in ("next_token", "sft")

    @property
    def writes_its_own_text(self) -> bool:
        """Whether the model learns from what it writes itself, or from answers, and not from the rows of its corpus."""
        return not self.reads_text or (isinstance(self.objective, DistillConfig) and self.objective.on_policy)

    @property
    def loss_unit(self) -> str:
        """The unit to print after a loss of this run."""
        if self.reads_text:
            return "nats per token"
        if self.objective.type in LEARNS_FROM_PAIRS:
            return "nats per pair" if self.answers_compared == 2 else "nats per ranking"
        return "= -(reward - beta KL)"

    @property
    def answers_compared(self) -> int:
        """The number of answers to a prompt that an objective of LEARNS_FROM_PAIRS compares."""
        return self.corpus.answers if isinstance(self.corpus, PreferencesConfig) else 2

    @property
    def rows_per_micro_batch(self) -> int:
        """The number of rows in a micro-batch: `train.batch_size` may count pairs, or groups of answers."""
        if self.objective.type in LEARNS_FROM_PAIRS:
            return self.answers_compared * self.train.batch_size
        return self.train.batch_size * (self.objective.group_size if isinstance(self.objective, GRPOConfig) else 1)

    @property
    def tokens_per_step(self) -> int:
        """The largest number of positions in an update: a batch of documents is only as wide as its longest row."""
        return self.rows_per_micro_batch * self.train.gradient_accumulation_steps * self.model.context_length

    def _rules(self) -> Iterable[Rule]:
        rules = rules_of_model(self)
        if not self.trains_as_it_validates or getattr(self.model, "attention_mask", "causal") == "none":
            from pellucid.config import gaps, questions

            rules += [*gaps.rules_of_gaps(self), *questions.rules_of_questions(self)]
        return [*rules, *rules_of_corpus(self), *rules_of_base(self), *rules_of_loss(self)]


def rules_of_model(run: RunConfig) -> list[Rule]:
    """Whether the model can be trained in this way: a table of rules, as are those below."""
    train, model = run.train, run.model.type
    return [
        (
            train.gradient_checkpointing != "none" and model != "decoder",
            "train.gradient_checkpointing model.type",
            f"the {model} has no {train.gradient_checkpointing} to recompute",
            "leave it out, or use model.type decoder",
        ),
        (
            train.compile and getattr(run.model, "experts", None),
            "train.compile model.feed_forward.type",
            "a compiled graph has fixed shapes, and an expert gets as many tokens as ask it",
            "leave it out, or use model.feed_forward dense",
        ),
        (
            train.compile and run.learns_scores,
            "train.compile",
            f"the graph would leave out the scalar head, which {run.objective.type} trains",
            "leave it out",
        ),
    ]


def rules_of_corpus(run: RunConfig) -> list[Rule]:
    """Whether the corpus holds what the objective learns from, and its documents can be kept from each other."""
    corpus, tokenizer, objective, attention = (
        *(section.type for section in (run.corpus, run.tokenizer, run.objective)),
        getattr(run.model, "attention", run.model.type),
    )
    return [
        (
            (corpus == "tokens") != (tokenizer == "ids") and tokenizer != "file",
            "tokenizer.type corpus.type",
            f"{tokenizer} does not go with corpus {corpus}: ids are no text",
            "corpus tokens goes with `tokenizer: {type: ids}`, and all others with bpe or char",
        ),
        (
            corpus == "preferences" and objective not in LEARNS_FROM_PAIRS,
            "corpus.type objective.type",
            f"preferences are pairs of answers, from which {objective} does not learn",
            f"use objective {' or '.join(LEARNS_FROM_PAIRS)}",
        ),
        (
            corpus in CONVERSATIONS and objective in LEARNS_ALL_TOKENS,
            "corpus.type objective.type",
            f"{corpus} are conversations, of which the answers alone are learned",
            "add `objective: {type: sft}`",
        ),
        (
            corpus not in (*CONVERSATIONS, "none", *CORPORA_OF_OBJECTIVE.get(objective, (corpus,))),
            "corpus.type objective.type",
            f"{corpus} holds no conversations for objective {objective} to learn from",
            f"use {' or '.join(CORPORA_OF_OBJECTIVE.get(objective, ()))}",
        ),
        (
            getattr(run.objective, "teacher", None) == "truth" and not isinstance(run.corpus, DrawnSection),
            "objective.teacher corpus.type",
            f"of {corpus}, nobody knows the exact distribution of the next token",
            "name a RUN, or take a language that `pellucid configs` lists",
        ),
        (
            corpus == "conversations" and objective != "sft",
            "corpus.type objective.type",
            f"conversations have one answer to each question, and {objective} needs several that are judged",
            "use objective sft, or corpus instructions or preferences",
        ),
        (
            corpus == "preferences" and getattr(run.objective, "needs_places", False),
            "objective corpus.type",
            "fork and cut need the token where an answer went wrong, which is not known for answers from a file",
            "set fork to false and cut to none, or use corpus instructions",
        ),
        (
            not run.data.documents_see_each_other and run.data.packing != "documents",
            "data.documents_see_each_other data.packing",
            f"{run.data.packing} rows hold parts of documents, which see each other in evaluation, too",
            "set it to true, or data.packing to documents",
        ),
        (
            not run.data.documents_see_each_other and (run.model.type != "decoder" or attention == "linear"),
            "data.documents_see_each_other model.type model.attention",
            f"a mask in softmax attention keeps documents apart, and {attention} has none",
            "set it to true, or use a decoder with another attention",
        ),
        (
            not run.data.documents_see_each_other and not (run.trains_as_it_validates or objective == "masked"),
            "data.documents_see_each_other objective.type",
            f"{objective} does not keep the documents of a row apart",
            "leave it out",
        ),
    ]


def rules_of_base(run: RunConfig) -> list[Rule]:
    """Whether there is a run to start from, and a model of the right kind, where the objective needs one."""
    corpus, objective, model, starts_from_none = run.corpus.type, run.objective.type, run.model.type, not run.start_from
    return [
        (
            corpus == "instructions" and objective == "reward_model" and starts_from_none,
            "objective.type corpus.type start_from",
            "reward_model compares answers, and start_from names no model to write them",
            "add `start_from: RUN`, or use corpus preferences",
        ),
        (
            objective in NEEDS_DECODER and model != "decoder",
            "objective.type model.type",
            f"{objective} trains a decoder, not a {model}",
            "use model.type decoder",
        ),
        (
            objective in NEEDS_REFERENCE and starts_from_none,
            "objective.type start_from",
            f"{objective} compares the model with the one it starts from, and start_from names none",
            "add `start_from: RUN`",
        ),
        (
            run.adapter is not None and starts_from_none,
            "adapter start_from",
            "there are no weights to freeze",
            "add `start_from: RUN`, or leave out the adapter",
        ),
    ]


def rules_of_loss(run: RunConfig) -> list[Rule]:
    """Whether the loss can be computed as it is asked for, and for long enough."""
    train, objective, experts = run.train, run.objective.type, getattr(run.model, "experts", None)
    return [
        (
            train.parallel == "fsdp" and not run.trains_as_it_validates,
            "train.parallel objective.type",
            f"fsdp cannot be combined with objective {objective}",
            "use ddp or auto",
        ),
        (
            experts and experts.load_balance_weight and not run.trains_as_it_validates,
            "model.feed_forward.load_balance_weight",
            f"the loss of {objective} has no part for balancing the experts",
            "set it to 0",
        ),
        (
            run.schedule.warmup_steps > train.steps,
            "schedule.warmup_steps train.steps",
            f"{run.schedule.warmup_steps} is longer than train.steps {train.steps}",
            "warm up for fewer steps",
        ),
    ]


def run_and_checkpoint(start_from: str) -> tuple[Path, str]:
    """The run and the checkpoint in `checkpoints/base@500`; the best one without `@`, or for a folder of this name."""
    run, at, which = start_from.rpartition("@")
    has_step = at and run and "/" not in which and not Path(start_from).is_dir()
    named, which = (run, which) if has_step else (start_from, "best")
    return find_run(Path(named)), which


def run_meant_by(run: Path) -> Path | None:
    """A run that a wrong path may mean: of that name in the folder of runs, with a similar name, or the demo."""
    if (RUNS_ROOT / run).is_dir() and RUNS_ROOT / run != run:
        return RUNS_ROOT / run
    folders = {path.name: path for root in (RUNS_ROOT, run.parent) if root.is_dir() for path in root.iterdir()}
    folders = {name: path for name, path in folders.items() if path.is_dir() and path != run}
    if not Path("demo").exists():  # a folder of this name hides the one that is shipped
        folders["demo"] = Path("demo")
    of_lower_case = {name.lower(): path for name, path in folders.items()}
    close = difflib.get_close_matches(run.name.lower(), of_lower_case, n=1)
    return of_lower_case[close[0]] if close else None
