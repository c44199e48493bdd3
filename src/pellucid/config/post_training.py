"""Knobs of post-training: objectives, adapters and quantization (`objectives/`, `post_training/`, `adapters/`)."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from pellucid.config.base import Rule, Section
from pellucid.config.data import Strings
from pellucid.config.languages import Fraction

Positive = Annotated[float, Field(gt=0)]
ONLY_THE_VERIFIER = "only the verifier says which token settled a reward"


class NextTokenConfig(Section):
    """Pretraining: predict every token from those before it."""

    type: Literal["next_token"]


class SFTConfig(Section):
    """Supervised fine-tuning: predict the tokens of the answers alone. The corpus holds conversations."""

    type: Literal["sft"]


class MaskedConfig(Section):
    """Predict hidden tokens from both sides (BERT, Devlin et al. 2019). It needs `model.attention_mask: none`."""

    type: Literal["masked"]
    share: Fraction = Field(0.15, description="of the tokens that are hidden in training; in evaluation it is one")


class DistillConfig(Section):
    """Distillation: learn the whole distribution of the next token from a teacher (Hinton et al. 2015)."""

    type: Literal["distill"]
    teacher: str = Field(min_length=1, description="truth, of a known language; RUN or RUN@STEP, of the same tokens")
    temperature: Positive = Field(1.0, description="at which a run teaches and learns; above 1, unlikely tokens count")
    on_policy: bool = Field(False, description="the model writes the documents, and the teacher judges every place")
    divergence: Literal["forward", "reverse"] = Field(
        "forward", description="forward: KL(teacher || model), all must be covered; reverse: KL(model || teacher)"
    )

    def _rules(self) -> Iterable[Rule]:
        is_softened = self.teacher == "truth" and self.temperature != 1
        yield is_softened, "temperature teacher", "the truth teaches as it is", "leave it out, or name a RUN"


class PairsSection(Section):
    """Pairs of answers. If the corpus has none, the model of `start_from` writes them, and the grammar judges."""

    judge_noise: Positive = Field(
        0.1, description="difference in reward at which the better answer is preferred with probability 0.73"
    )
    max_new_tokens: int = Field(200, ge=1, description="where a written answer is cut off if it does not end by itself")
    fork: bool = Field(False, description="of written pairs, the second answer begins as the first, up to its fault")

    @property
    def needs_places(self) -> bool:
        """Whether the judge must find the token where an answer went wrong."""
        return self.fork


class RewardModelConfig(PairsSection):
    """A reward model: score the better of two answers to the same prompt higher (Ouyang et al. 2022)."""

    type: Literal["reward_model"]


class DPOConfig(PairsSection):
    """Direct preference optimization: prefer the better of two answers (Rafailov et al. 2023)."""

    type: Literal["dpo"]
    beta: Positive = Field(0.1, description="how strongly the model is kept close to the one it starts from")
    cut: Literal["none", "each", "both"] = Field(
        "none",
        description="each: of written pairs, an answer ends where the grammar is certain of its reward; "
        "both: and the better one after as many tokens as the worse",
    )

    @property
    def needs_places(self) -> bool:
        return self.fork or self.cut != "none"


class VerifierConfig(Section):
    """The language judges: half a point for a complete fable, half for one that obeys; one for a right answer."""

    type: Literal["verifier"]


class LearnedRewardConfig(Section):
    """A reward model judges."""

    type: Literal["model"]
    run: str = Field(min_length=1, description="RUN, RUN@best, RUN@latest or RUN@STEP of objective.type reward_model")


RewardConfig = Annotated[VerifierConfig | LearnedRewardConfig, Field(discriminator="type")]


class PolicySection(Section):
    """The model answers prompts, is rewarded, and makes rewarded answers likelier."""

    reward: RewardConfig = VerifierConfig(type="verifier")
    beta: float = Field(0.02, ge=0, description="price of a nat of KL divergence from the model it starts from")
    clip: Fraction = Field(0.2, description="how far a probability ratio may move before its gradient is cut off")
    updates_per_rollout: int = Field(1, ge=1, description="updates on the same answers before new ones are written")
    max_new_tokens: int = Field(200, ge=1, description="where an answer is cut off if it does not end by itself")
    temperature: Positive = Field(1.0, description="at which answers are drawn; 1 is the model's own")


class GRPOConfig(PolicySection):
    """Group relative policy optimization (Shao et al. 2024): answers are compared with others to the same prompt."""

    type: Literal["grpo"]
    group_size: int = Field(8, ge=2, description="answers to each prompt; train.batch_size counts prompts")
    kl: Literal["loss", "reward"] = Field(
        "loss", description="where beta counts: in the loss, as published, or in the reward, with the optimum of RLHF"
    )
    by_spread: bool = Field(True, description="advantages are divided by their group's spread, as published (P10)")
    price: float = Field(
        0.0,
        ge=0,
        description="of each symbol of a thought before an answer to hops or sums, where right answers earn 1",
    )
    credit_decay: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="null: all tokens of an answer are credited alike, as published; else each part of the verifier's "
        "reward goes to the token that settled it, and this share of it to the one before, and so on",
    )

    def _rules(self) -> Iterable[Rule]:
        if self.credit_decay is not None:
            is_learned, fix = self.reward.type != "verifier", "set credit_decay to null, or reward to {type: verifier}"
            yield is_learned, "credit_decay reward.type", ONLY_THE_VERIFIER, fix
            fix = "set credit_decay to null, or kl to loss"
            yield self.kl != "loss", "credit_decay kl", "divergence belongs to all tokens", fix


class PPOConfig(PolicySection):
    """Proximal policy optimization (Schulman et al. 2017): a value head predicts the reward."""

    type: Literal["ppo"]
    discount: float = Field(1.0, gt=0, le=1, description="of a reward one token later")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="0 trusts the value head, 1 the rewards alone")
    value_weight: Positive = Field(0.5, description="weight of the value head's loss")
    reward_at: Literal["end", "settled"] = Field(
        "end",
        description="end: the reward comes with the last token, as published; settled: what an answer misses of the "
        "verifier's reward is taken off at the token that lost it",
    )

    def _rules(self) -> Iterable[Rule]:
        is_unknown = self.reward_at == "settled" and self.reward.type != "verifier"
        fix = "set reward_at to end, or reward to {type: verifier}"
        yield is_unknown, "reward_at reward.type", ONLY_THE_VERIFIER, fix


ObjectiveConfig = Annotated[
    NextTokenConfig | SFTConfig | MaskedConfig | DistillConfig | RewardModelConfig | DPOConfig | GRPOConfig | PPOConfig,
    Field(discriminator="type"),
]


class LoRAConfig(Section):
    """Low-rank adapters beside frozen weights (Hu et al. 2022)."""

    type: Literal["lora"]
    rank: int = Field(8, ge=1, description="rank of the product of the two matrices beside each layer")
    alpha: Positive = Field(16.0, description="their product is scaled by alpha / rank")
    targets: Annotated[Strings, Field(min_length=1)] | None = Field(
        None, description="W_Q, W_1, …: which linear layers inside blocks; all by default"
    )


Quantization = Literal["none", "int8", "nf4", "nf4-double"]
