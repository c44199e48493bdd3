"""Lesson 12: what students think of fine-tuning, rewards and preferences that is not so."""

from trying import also_right, mistake

# ---- answer_loss ----


@mistake("the questions and the padding are in your loss")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    return F.cross_entropy(logits_NTV.flatten(0, 1), targets_NT.flatten())


@mistake("you divide by all 21 tokens")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    nats_NT = F.cross_entropy(logits_NTV.transpose(1, 2), targets_NT, reduction="none")
    return (nats_NT * is_answer_NT).mean()


@mistake("you take the mean of the three answers' means")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    nats_NT = F.cross_entropy(logits_NTV.transpose(1, 2), targets_NT, reduction="none")
    return ((nats_NT * is_answer_NT).sum(dim=1) / is_answer_NT.sum(dim=1)).mean()


@mistake("the softmax is missing")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    return -logits_NTV.gather(-1, targets_NT[..., None])[..., 0][is_answer_NT].mean()


@also_right
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    targets_NT = torch.where(is_answer_NT, targets_NT, -100)
    return F.cross_entropy(logits_NTV.flatten(0, 1), targets_NT.flatten(), ignore_index=-100)


# ---- new_adapter ----


@mistake("step 0 is not the base")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A_RI = torch.randn(rank, n_inputs, generator=generator, dtype=torch.float64) / n_inputs**0.5
    return A_RI, torch.randn(n_outputs, rank, generator=generator, dtype=torch.float64) / n_inputs**0.5


@mistake("This adapter will never learn")
def new_adapter(n_outputs, n_inputs, rank, generator):
    return torch.zeros(rank, n_inputs).double(), torch.zeros(n_outputs, rank).double()


@mistake("A comes first")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A = torch.randn(n_outputs, rank, generator=generator, dtype=torch.float64) / n_inputs**0.5
    return A, torch.zeros(rank, n_inputs, dtype=torch.float64)


@mistake("divided by √I")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A_RI = torch.randn(rank, n_inputs, generator=generator, dtype=torch.float64) / rank**0.5
    return A_RI, torch.zeros(n_outputs, rank, dtype=torch.float64)


# ---- lora_forward ----


@mistake("α/R is missing")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ (W_OI + B_OR @ A_RI).T


@mistake("you multiply by α, not by α/R")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ (W_OI + alpha * B_OR @ A_RI).T


@mistake("A and B are swapped")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / len(A_RI) * (x_NI @ B_OR @ A_RI)


@mistake("the base is missing")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return alpha / len(A_RI) * (x_NI @ A_RI.T @ B_OR.T)


@also_right
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return torch.einsum("ni,oi->no", x_NI, W_OI + alpha / B_OR.shape[1] * torch.einsum("or,ri->oi", B_OR, A_RI))


# ---- reward_loss ----


@mistake("your difference is reversed")
def reward_loss(chosen_P, rejected_P):
    return -F.logsigmoid(rejected_P - chosen_P).mean()


@mistake("you take the mean of the probabilities before the logarithm")
def reward_loss(chosen_P, rejected_P):
    return -torch.sigmoid(chosen_P - rejected_P).mean().log()


@mistake("not the surprise")
def reward_loss(chosen_P, rejected_P):
    return 1 - torch.sigmoid(chosen_P - rejected_P).mean()


@mistake("σ is rounded to 0")
def reward_loss(chosen_P, rejected_P):
    return -torch.log(torch.sigmoid(chosen_P - rejected_P)).mean()


@also_right
def reward_loss(chosen_P, rejected_P):
    return F.softplus(rejected_P - chosen_P).mean()


# ---- optimal_policy ----


@mistake("your factor is e^{βr}")
def optimal_policy(reference_QX, rewards_QX, beta):
    return torch.softmax(reference_QX.log() + beta * rewards_QX, dim=-1)


@mistake("the reference is missing")
def optimal_policy(reference_QX, rewards_QX, beta):
    return torch.softmax(rewards_QX / beta, dim=-1)


@mistake("divide by Z")
def optimal_policy(reference_QX, rewards_QX, beta):
    return reference_QX * torch.exp(rewards_QX / beta)


@mistake("each question has a Z of its own")
def optimal_policy(reference_QX, rewards_QX, beta):
    raised_QX = reference_QX * torch.exp(rewards_QX / beta)
    return raised_QX / raised_QX.sum()


@also_right
def optimal_policy(reference_QX, rewards_QX, beta):
    return torch.softmax(reference_QX.log() + rewards_QX / beta, dim=-1)


# ---- dpo_loss ----


@mistake("the reference is forgotten")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    return -F.logsigmoid(beta * (chosen_PT.sum(dim=1) - rejected_PT.sum(dim=1)))


@mistake("their gradient passes through the reference")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    margin_P = (chosen_PT - reference_chosen_PT - rejected_PT + reference_rejected_PT).sum(dim=1)
    return -F.logsigmoid(beta * margin_P)


@mistake("β is outside of the logarithm")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    margin_P = (chosen_PT - rejected_PT).sum(dim=1) - (reference_chosen_PT - reference_rejected_PT).detach().sum(dim=1)
    return -beta * F.logsigmoid(margin_P)


@mistake("ln p of an answer is the *sum* over its tokens. With means")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    n_chosen_P, n_rejected_P = (chosen_PT != 0).sum(dim=1), (rejected_PT != 0).sum(dim=1)
    chosen_P = (chosen_PT - reference_chosen_PT.detach()).sum(dim=1) / n_chosen_P
    rejected_P = (rejected_PT - reference_rejected_PT.detach()).sum(dim=1) / n_rejected_P
    return -F.logsigmoid(beta * (chosen_P - rejected_P))


@also_right
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    """A choice between two, as the softmax of their implicit rewards."""
    with torch.no_grad():
        reference_P2 = torch.stack([reference_chosen_PT.sum(1), reference_rejected_PT.sum(1)], dim=1)
    rewards_P2 = beta * (torch.stack([chosen_PT.sum(1), rejected_PT.sum(1)], dim=1) - reference_P2)
    return F.cross_entropy(rewards_P2, torch.zeros(len(rewards_P2), dtype=torch.long), reduction="none")


# ---- group_advantages ----


@mistake("you compare with the mean over all questions")
def group_advantages(rewards_QG):
    return (rewards_QG - rewards_QG.mean()) / (rewards_QG.std() + 1e-4)


@mistake("three equal rewards give NaN")
def group_advantages(rewards_QG):
    return (rewards_QG - rewards_QG.mean(dim=1, keepdim=True)) / rewards_QG.std(dim=1, keepdim=True)


@mistake("your s divides by G; here it divides by G - 1")
def group_advantages(rewards_QG):
    s = rewards_QG.std(dim=1, keepdim=True, correction=0)
    return (rewards_QG - rewards_QG.mean(dim=1, keepdim=True)) / (s + 1e-4)


@mistake("you compare with the answers to the other questions")
def group_advantages(rewards_QG):
    return (rewards_QG - rewards_QG.mean(dim=0)) / (rewards_QG.std(dim=0) + 1e-4)


@also_right
def group_advantages(rewards_QG):
    return torch.stack([(row - row.mean()) / (row.var().sqrt() + 1e-4) for row in rewards_QG])


# ---- grpo_objective ----


@mistake("you clip the product of ratio and advantage")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    return (torch.exp(log_p_N - old_log_p_N) * advantages_N).clamp(1 - clip, 1 + clip)


@mistake("there is no minimum")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    return torch.exp(log_p_N - old_log_p_N).clamp(1 - clip, 1 + clip) * advantages_N


@mistake("for negative advantages you take the smaller *ratio*")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    return torch.minimum(ratio_N, ratio_N.clamp(1 - clip, 1 + clip)) * advantages_N


@mistake("you take the larger product")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    return torch.maximum(ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N)


@also_right
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    limited_N = torch.where(advantages_N > 0, ratio_N.clamp(max=1 + clip), ratio_N.clamp(min=1 - clip))
    return limited_N * advantages_N
