"""Mixture of experts: many feed-forward layers side by side, of which each token is sent to a few.

The layer has the weights of all its experts, but each token is multiplied by those of its few alone. Experts have no
capacity limit: with one, a token might be dropped because of later tokens, and the model would see the future.

Shapes: B batch, T positions, D model, F feed-forward, E experts, N tokens, C choices of a token, R = N * C rows,
sorted by expert.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, on_one_token


class Router(nn.Linear):
    """Probabilities (B, T, E) of the experts, in float32 or wider; each row of the matrix belongs to one expert."""

    def __init__(self, d_model: int, n_experts: int) -> None:
        super().__init__(d_model, n_experts, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        scores_BTE = super().forward(x_BTD)
        return scores_BTE.softmax(dim=-1, dtype=torch.promote_types(scores_BTE.dtype, torch.float32))


class Experts(nn.Module):
    """The outputs of a token's `top_k` likeliest experts, weighted by their renormalised probabilities (equation 40).

    As in Mixtral (Jiang et al. 2024). `shared` experts process every token (DeepSeekMoE, Dai et al. 2024).
    An expert that no token chose gets a gradient of zeros, so that all processes exchange the same gradients.
    """

    def __init__(
        self, *, router: Router, experts: Sequence[nn.Module], shared: Sequence[nn.Module], top_k: int
    ) -> None:
        super().__init__()
        self.router = router
        self.experts = nn.ModuleList(experts)
        self.shared = nn.ModuleList(shared)
        self.top_k = top_k

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND, probabilities_NE = x_BTD.flatten(0, 1), self.router(x_BTD).flatten(0, 1)
        probabilities_NC, choices_NC = probabilities_NE.topk(self.top_k)
        shares_NC = probabilities_NC / probabilities_NC.sum(dim=-1, keepdim=True)

        by_expert_R = choices_NC.flatten().argsort(stable=True)
        token_R = by_expert_R // self.top_k
        inputs = torch.split(x_ND[token_R], rows_of_each(choices_NC, len(self.experts)))
        outputs_RD = torch.cat([expert(rows) for expert, rows in zip(self.experts, inputs, strict=True)])
        outputs_RD = outputs_RD * shares_NC.flatten()[by_expert_R, None].to(outputs_RD.dtype)
        mixture_ND = outputs_RD.new_zeros(x_ND.shape).index_add(0, token_R, outputs_RD)
        y_BTD: Tensor = mixture_ND.view_as(x_BTD)
        for expert in self.shared:
            y_BTD = y_BTD + expert(x_BTD)
        return y_BTD

    def on_one_token(self) -> OnOneToken:
        """Each expert that any token chose gets all tokens, most with a share of 0: so a row depends on no other."""
        experts, shared = (list(map(on_one_token, layers)) for layers in (self.experts, self.shared))
        router, top_k = self.router, self.top_k

        def on_one_token_(x_BD: Tensor) -> Tensor:
            scores_BE = F.linear(x_BD, router.weight)
            best_BC, choices_BC = scores_BE.to(torch.promote_types(scores_BE.dtype, torch.float32)).topk(top_k)
            # Renormalised, the probabilities of the chosen are a softmax over their scores.
            shares_BE = torch.zeros_like(scores_BE).scatter(1, choices_BC, best_BC.softmax(dim=-1).to(scores_BE.dtype))
            y_BD = sum(expert(x_BD) for expert in shared)
            for e in sorted(set(choices_BC.flatten().tolist())):
                y_BD = y_BD + shares_BE[:, e, None] * experts[e](x_BD)
            return y_BD  # type: ignore[return-value]

        return on_one_token_

    def steps(self, x_TD: Tensor) -> list[Step]:
        """Equation 40 as it is written: each expert's output times its share. Numbers of idle experts are zeros."""
        probabilities_TE = self.router(x_TD)
        is_chosen_TE = torch.zeros_like(probabilities_TE).scatter(1, probabilities_TE.topk(self.top_k).indices, 1)
        shares_TE = F.normalize(probabilities_TE * is_chosen_TE, p=1, dim=-1)
        hidden, outputs = zip(*(expert.steps(x_TD) for expert in (*self.experts, *self.shared)), strict=True)
        hidden_ETF = torch.stack([step.values for step in hidden])
        outputs_ETD = torch.stack([step.values for step in outputs])
        is_asked_ET, factors_ET = (F.pad(x_TE, (0, len(self.shared)), value=1).T for x_TE in (is_chosen_TE, shares_TE))
        output_TD = (factors_ET[..., None].to(outputs_ETD.dtype) * outputs_ETD).sum(dim=0)
        return [
            Step("shares of experts", "TE", (40,), shares_TE),
            Step("hidden", "ETF", hidden[0].equations, hidden_ETF * is_asked_ET[..., None]),
            Step("output", "TD", (40,), output_TD),
        ]

    def initialize_router(self) -> None:
        """Small weights, so that all experts are about equally likely at first."""
        nn.init.normal_(self.router.weight, std=0.02)

    def idle_parameters(self) -> int:
        """The number of parameters in the experts that a token does not use. All experts have the same size."""
        idle = list(self.experts)[self.top_k :]
        return sum(parameter.numel() for expert in idle for parameter in expert.parameters())

    @contextmanager
    def probabilities(self) -> Iterator[list[Tensor]]:
        """Inside, a forward pass appends the router's probabilities (B, T, E) to the list."""
        heard: list[Tensor] = []
        with self.router.register_forward_hook(lambda _, __, p_BTE: heard.append(p_BTE)):
            yield heard


def rows_of_each(choices_NC: Tensor, n_experts: int) -> list[int]:
    """The number of rows for each expert.

    Fake tensors hold no choices: then all experts get equally many. The FLOPs are the same for any choice.
    """
    if isinstance(choices_NC, FakeTensor):
        R = choices_NC.numel()
        return [R * (i + 1) // n_experts - R * i // n_experts for i in range(n_experts)]
    counts: list[int] = choices_NC.flatten().bincount(minlength=n_experts).tolist()
    return counts
