"""The cost of a training run: FLOPs, memory and time of one update, before anything is trained."""

from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.adapters.build import adapt
from pellucid.config.data import CONVERSATIONS
from pellucid.config.model import ModelConfig
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.cost.build import RunCost, at_depth
from pellucid.cost.counts import count_cost
from pellucid.cost.meter import measure_update
from pellucid.data.prepare import FILE_OF_SPLIT
from pellucid.model.build import build_model
from pellucid.model.recompute import recompute_activations
from pellucid.runtime.precision import Precision
from pellucid.tokenizer.build import train_tokenizer
from pellucid.tokenizer.tokenizer import CHAT_TOKENS
from pellucid.training.optimizers import build_optimizers


def cost_of_run(config: RunConfig, vocab_size: int, precision: Precision) -> RunCost:
    """The cost of training at this precision and on its device, measured on models and optimizers of fake tensors."""
    train = config.train

    def measured(model_config: ModelConfig) -> RunCost:
        with FakeTensorMode(), precision.device:
            model = build_model(model_config, vocab_size)
            cost = count_cost(model)
            adapt(model, config.quantization, config.adapter)
            recompute_activations(model.blocks, train.gradient_checkpointing)
            chosen = build_optimizers(config.optimizer, model, precision)
            works_and_memory = measure_update(model, chosen, precision, batch_size=config.rows_per_micro_batch)
        return RunCost(cost, *works_and_memory, train.gradient_accumulation_steps, config.tokens_per_step, train.steps)

    return at_depth(config.model, measured)


def vocab_size_of(config: RunConfig) -> int:
    """The vocabulary's size, known before the data is prepared; a small corpus may give fewer byte pairs.

    A character vocabulary is counted in its corpus. Conversations add their control tokens.
    """
    is_chat = config.corpus.type in CONVERSATIONS
    if config.tokenizer.type == "bpe":
        missing = set(CHAT_TOKENS) - set(config.tokenizer.special_tokens) if is_chat else ()
        return config.tokenizer.vocab_size + len(missing)
    if config.tokenizer.type == "file":  # its corpus is not read, and an imported run has none
        tokenizer = train_tokenizer(config.tokenizer, [], [])
    else:
        corpus = build_corpus(config.corpus)
        train, validation = ((piece.text for piece in corpus.pieces(split)) for split in FILE_OF_SPLIT)
        tokenizer = train_tokenizer(config.tokenizer, train, validation)
    return (tokenizer.with_chat_tokens() if is_chat else tokenizer).vocab_size
