"""Detects hooks on a module, which a faster form of it would not call."""

from torch import nn


def has_hooks(*modules: nn.Module) -> bool:
    """Whether calling one of the modules does more than its `forward`."""
    return any(
        module._forward_pre_hooks or module._forward_hooks or module._backward_pre_hooks or module._backward_hooks
        for module in modules
    )
