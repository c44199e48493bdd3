"""A checkpoint of next to nothing, for tests of files and folders."""

from dataclasses import replace

import torch

from pellucid.checkpoint.step_directory import Checkpoint, State


def tiny_state(**changes) -> State:
    fields = {
        "step": 5,
        "tokens": 100,
        "elapsed_seconds": 1.5,
        "val_loss": 1.5,
        "best_loss": 1.5,
        "unreported": None,
        "grad_scaler": {},
        "data_fingerprint": "abc",
        "pellucid_version": "0.1.0",
        "torch_version": "2.13.0",
        "device": "cpu",
        "dtype": "torch.float32",
        "threads": 1,
    }
    return State(**{**fields, **changes})


TINY_CHECKPOINT = Checkpoint(
    model={"weight": torch.arange(6.0).reshape(2, 3)},
    optimizer={"weight/exp_avg": torch.ones(2, 3), "weight/step": torch.tensor(5.0)},
    rng={"cpu": torch.get_rng_state()},
    state=tiny_state(),
    config_yaml="name: élan\n",
    tokenizer_json='{"model": "bpe"}',
)


def tiny_checkpoint(**changes) -> Checkpoint:
    return replace(TINY_CHECKPOINT, state=tiny_state(**changes))
