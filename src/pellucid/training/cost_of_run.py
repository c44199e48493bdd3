"""The cost of a training run: FLOPs, memory and time of one update, before anything is trained."""

from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.adapters.build import adapt
from pellucid.config.model import ModelConfig
from pellucid.config.run import RunConfig
from pellucid.cost.build import RunCost, at_depth
from pellucid.cost.counts import count_cost
from pellucid.cost.meter import measure_update
from pellucid.model.build import build_model
from pellucid.model.recompute import recompute_activations
from pellucid.runtime.precision import Precision
from pellucid.training.build import build_optimizers


def cost_of_run(config: RunConfig, vocab_size: int, precision: Precision) -> RunCost:
    """The cost of training at this precision and on its device, measured on models and optimizers of fake tensors."""
    train = config.train

    def measured(model_config: ModelConfig) -> RunCost:
        with FakeTensorMode(), precision.device:
            model = build_model(model_config, vocab_size)
            cost = count_cost(model)
            adapt(model, config)
            recompute_activations(model.blocks, train.gradient_checkpointing)
            chosen = build_optimizers(config.optimizer, model, precision)
            works_and_memory = measure_update(model, chosen, precision, batch_size=config.rows_per_micro_batch)
        return RunCost(cost, *works_and_memory, train.gradient_accumulation_steps, config.tokens_per_step, train.steps)

    return at_depth(config.model, measured)
