"""Lesson 14: what students think of fine-tuning, rewards and preferences that is not so."""

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


@mistake("right for small logits")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    p_NTV = torch.softmax(logits_NTV, dim=-1)
    return -p_NTV.gather(-1, targets_NT[..., None])[..., 0].log()[is_answer_NT].mean()


@mistake("right for small logits")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    raised_NTV = torch.exp(logits_NTV)
    p_NTV = raised_NTV / raised_NTV.sum(dim=-1, keepdim=True)
    return -p_NTV.gather(-1, targets_NT[..., None])[..., 0].log()[is_answer_NT].mean()


@mistake("with answers in several pieces")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    p_NTV = torch.softmax(logits_NTV, dim=-1)
    return -(p_NTV.gather(-1, targets_NT[..., None])[..., 0] + 1e-12).log()[is_answer_NT].mean()


@mistake("no gradient reaches the logits")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    loss = F.cross_entropy(logits_NTV[is_answer_NT], targets_NT[is_answer_NT]).item()
    return torch.tensor(loss, dtype=torch.float64, requires_grad=True)


@mistake("a question stands between two answers")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    log_p_NT = F.log_softmax(logits_NTV, dim=-1).gather(-1, targets_NT[..., None])[..., 0]
    places = [(row, counts.nonzero().flatten()) for row, counts in zip(log_p_NT, is_answer_NT, strict=True)]
    return -torch.cat([row[place[0] : place[-1] + 1] for row, place in places if len(place)]).mean()


@also_right
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    rows, wanted = logits_NTV[is_answer_NT], targets_NT[is_answer_NT]
    return (rows.logsumexp(dim=1) - rows[torch.arange(len(wanted)), wanted]).mean()


@mistake("the targets or the mask that you are given")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    """Hidden targets are written over."""
    targets_NT[~is_answer_NT] = -100
    return F.cross_entropy(logits_NTV.flatten(0, 1), targets_NT.flatten(), ignore_index=-100)


@mistake("you write into a tensor that you are given")
def answer_loss(logits_NTV, targets_NT, is_answer_NT):
    if not logits_NTV.requires_grad:
        logits_NTV -= logits_NTV.max(dim=-1, keepdim=True).values
    return F.cross_entropy(logits_NTV[is_answer_NT], targets_NT[is_answer_NT])


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


@mistake("it does not come from the generator")
def new_adapter(n_outputs, n_inputs, rank, generator):
    torch.manual_seed(0)
    return torch.randn(rank, n_inputs).double() / n_inputs**0.5, torch.zeros(n_outputs, rank).double()


@mistake("draw them with `torch.randn`")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A_RI = torch.rand(rank, n_inputs, generator=generator, dtype=torch.float64) - 0.5
    return A_RI * (12 / n_inputs) ** 0.5, torch.zeros(n_outputs, rank).double()


@mistake("it should be about 1/√I")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A_RI = torch.randn(rank, n_inputs, generator=generator, dtype=torch.float64) / 20
    return A_RI, torch.zeros(n_outputs, rank).double()


@also_right
def new_adapter(n_outputs, n_inputs, rank, generator):
    A_RI = torch.empty(rank, n_inputs, dtype=torch.float64).normal_(0, n_inputs**-0.5, generator=generator)
    return A_RI, A_RI.new_zeros(n_outputs, rank)


@mistake("share one place in memory")
def new_adapter(n_outputs, n_inputs, rank, generator):
    A = torch.randn(rank, n_inputs, generator=generator, dtype=torch.float64) / math.sqrt(n_inputs)
    return A, torch.zeros(1, 1, dtype=torch.float64).expand(n_outputs, rank)


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


@mistake("no gradient reaches A and B")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    with torch.no_grad():
        return x_NI @ W_OI.T + alpha / len(A_RI) * (x_NI @ A_RI.T @ B_OR.T)


@mistake("no gradient reaches A: it would never be trained")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / len(A_RI) * (x_NI @ A_RI.detach().T @ B_OR.T)


@mistake("the number of outputs; R is the rank")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / min(B_OR.shape) * (x_NI @ A_RI.T @ B_OR.T)


@mistake("you divide α by 3, whatever the rank is")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / 3 * (x_NI @ A_RI.T @ B_OR.T)


@also_right
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    """One layer with more inputs."""
    scale = alpha / A_RI.size(0)
    return F.linear(torch.cat([x_NI, F.linear(x_NI, A_RI)], dim=1), torch.cat([W_OI, scale * B_OR], dim=1))


@mistake("no gradient reaches A: it would never be trained, and B is 0 at step 0, but not for ever")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    base = x_NI @ W_OI.T
    return base + alpha / len(A_RI) * (x_NI @ A_RI.T @ B_OR.T) if B_OR.any() else base


@mistake("you divide α by 6, the number of inputs")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / min(A_RI.shape) * (x_NI @ A_RI.T @ B_OR.T)


@mistake("you write into a tensor that you are given")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    with torch.no_grad():
        A_RI *= alpha / len(A_RI)
    return x_NI @ W_OI.T + x_NI @ A_RI.T @ B_OR.T


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


@mistake("its gradient is NaN")
def reward_loss(chosen_P, rejected_P):
    margin_P = chosen_P - rejected_P
    return torch.where(margin_P < -30, -margin_P, torch.log1p(torch.exp(-margin_P))).mean()


@mistake("with rewards 0 and 900")
def reward_loss(chosen_P, rejected_P):
    return -F.logsigmoid((chosen_P - rejected_P).clamp(-50, 50)).mean()


@mistake("no gradient reaches the rewards of the losers")
def reward_loss(chosen_P, rejected_P):
    return -F.logsigmoid(chosen_P - rejected_P.detach()).mean()


@also_right
def reward_loss(chosen_P, rejected_P):
    """A choice between two classes."""
    rewards_P2 = torch.stack([chosen_P, rejected_P], dim=1)
    return F.cross_entropy(rewards_P2, torch.zeros(len(rewards_P2), dtype=torch.long))


@mistake("has your formula a corner there?")
def reward_loss(chosen_P, rejected_P):
    margin = chosen_P - rejected_P
    return (-margin.clamp(max=0) + torch.log1p(torch.exp(-margin.abs()))).mean()


@mistake("you write into a tensor that you are given")
def reward_loss(chosen_P, rejected_P):
    margin_P = chosen_P - rejected_P if chosen_P.requires_grad else chosen_P.sub_(rejected_P)
    return F.softplus(-margin_P).mean()


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


@mistake("at a price of 0.001: there is a NaN")
def optimal_policy(reference_QX, rewards_QX, beta):
    raised_QX = reference_QX * torch.exp(rewards_QX / beta)
    return raised_QX / raised_QX.sum(dim=-1, keepdim=True)


@mistake("there is a NaN")
def optimal_policy(reference_QX, rewards_QX, beta):
    raised_QX = reference_QX * torch.exp((rewards_QX - rewards_QX.max()) / beta)  # the largest of all questions
    return raised_QX / raised_QX.sum(dim=-1, keepdim=True)


@mistake("an answer that the reference never gives becomes")
def optimal_policy(reference_QX, rewards_QX, beta):
    return torch.softmax((reference_QX + 1e-12).log() + rewards_QX / beta, dim=-1)


@also_right
def optimal_policy(reference_QX, rewards_QX, beta):
    scores_QX = torch.log(reference_QX) + rewards_QX / beta
    return torch.exp(scores_QX - torch.logsumexp(scores_QX, dim=1)[:, None])


@also_right
def optimal_policy(reference_QX, rewards_QX, beta):
    """Each row less its largest reward, of those that can be had."""
    possible_QX = torch.where(reference_QX > 0, rewards_QX, float("-inf"))
    raised_QX = reference_QX * torch.exp((possible_QX - possible_QX.amax(dim=1, keepdim=True)) / beta)
    return raised_QX / raised_QX.sum(dim=1, keepdim=True)


@mistake("you write into the reference or the rewards")
def optimal_policy(reference_QX, rewards_QX, beta):
    rewards_QX /= beta
    return torch.softmax(reference_QX.log() + rewards_QX, dim=1)


@mistake("Is a size of the page's language, 2 or 12, written as a number")
def optimal_policy(reference_QX, rewards_QX, beta):
    policy_QX = torch.zeros(2, 12, dtype=torch.float64)
    for q in range(2):
        policy_QX[q] = torch.softmax(reference_QX[q].log() + rewards_QX[q] / beta, dim=0)
    return policy_QX


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


@mistake("σ is rounded to 0 there")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    chosen_P = (chosen_PT - reference_chosen_PT.detach()).sum(dim=1)
    rejected_P = (rejected_PT - reference_rejected_PT.detach()).sum(dim=1)
    return -torch.log(torch.sigmoid(beta * (chosen_P - rejected_P)))


@mistake("stay with logarithms")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    chosen_P = chosen_PT.sum(dim=1).exp() / reference_chosen_PT.detach().sum(dim=1).exp()
    rejected_P = rejected_PT.sum(dim=1).exp() / reference_rejected_PT.detach().sum(dim=1).exp()
    return torch.log(1 + (rejected_P / chosen_P) ** beta)


@mistake("of a single pair you return a number")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    chosen_P = (chosen_PT - reference_chosen_PT.detach()).sum(dim=1)
    rejected_P = (rejected_PT - reference_rejected_PT.detach()).sum(dim=1)
    return -F.logsigmoid(beta * (chosen_P - rejected_P)).squeeze()


@also_right
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    reference_PT = (reference_chosen_PT - reference_rejected_PT).detach()
    return F.softplus(-beta * (chosen_PT - rejected_PT - reference_PT).sum(dim=-1))


@mistake("the reference itself is another afterwards")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    """Detached in place."""
    c = (chosen_PT - reference_chosen_PT.detach_()).sum(1)
    r = (rejected_PT - reference_rejected_PT.detach_()).sum(1)
    return -F.logsigmoid(beta * (c - r))


@mistake("you end an answer at its first 0")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    def total(log_p_PT):
        return (log_p_PT * (log_p_PT != 0).long().cumprod(dim=1)).sum(dim=1)

    reference_P = (total(reference_chosen_PT) - total(reference_rejected_PT)).detach()
    return -F.logsigmoid(beta * (total(chosen_PT) - total(rejected_PT) - reference_P))


@mistake("Has your formula a corner there?")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    chosen, rejected = chosen_PT - reference_chosen_PT.detach(), rejected_PT - reference_rejected_PT.detach()
    margin = beta * (chosen.sum(1) - rejected.sum(1))
    return -margin.clamp(max=0) + torch.log1p(torch.exp(-margin.abs()))


@mistake("you write into a tensor that you are given")
def dpo_loss(chosen_PT, rejected_PT, reference_chosen_PT, reference_rejected_PT, beta):
    with torch.no_grad():
        reference_chosen_PT -= reference_rejected_PT
    margin_P = (chosen_PT - rejected_PT - reference_chosen_PT.detach()).sum(dim=1)
    return -F.logsigmoid(beta * margin_P)


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


@mistake("a single question is a row, too")
def group_advantages(rewards_QG):
    centered_QG = rewards_QG - rewards_QG.mean(dim=1, keepdim=True)
    return (centered_QG / (rewards_QG.std(dim=1, keepdim=True) + 1e-4)).squeeze()


@mistake("one of which is right")
def group_advantages(rewards_QG):
    centered_QG = rewards_QG - rewards_QG.mean(dim=1, keepdim=True)
    return (centered_QG / (rewards_QG.std(dim=1, keepdim=True) + 1e-4)).clamp(-2, 2)


@mistake("a little above a million")
def group_advantages(rewards_QG):
    G, mean_Q1 = rewards_QG.shape[1], rewards_QG.mean(dim=1, keepdim=True)
    variance_Q1 = ((rewards_QG**2).mean(dim=1, keepdim=True) - mean_Q1**2) * G / (G - 1)
    return (rewards_QG - mean_Q1) / (variance_Q1.clamp(min=0).sqrt() + 1e-4)


@mistake("in which one has 0.501")
def group_advantages(rewards_QG):
    centered_QG, s_Q1 = rewards_QG - rewards_QG.mean(dim=1, keepdim=True), rewards_QG.std(dim=1, keepdim=True)
    return torch.where(s_Q1 < 0.01, 0.0, centered_QG / (s_Q1 + 1e-4))  # they hardly differ


@also_right
def group_advantages(rewards_QG):
    variance_Q1, mean_Q1 = torch.var_mean(rewards_QG, dim=-1, keepdim=True)
    return (rewards_QG - mean_Q1).div(variance_Q1.sqrt().add(1e-4))


@mistake("you write into the rewards")
def group_advantages(rewards_QG):
    """The mean is subtracted in place."""
    s = rewards_QG.std(1, keepdim=True)
    rewards_QG -= rewards_QG.mean(1, keepdim=True)
    return rewards_QG / (s + 1e-4)


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


@mistake("how far it has to come back has no limit")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    smaller_N = torch.minimum(ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N)
    return torch.where(advantages_N < 0, torch.maximum(smaller_N, 3 * advantages_N), smaller_N)


@mistake("how far it has to come back has no limit")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N).clamp(max=2)
    return torch.minimum(ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N)


@mistake("subtract the logarithms before")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N) / torch.exp(old_log_p_N)
    return torch.minimum(ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N)


@also_right
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    """The ratio less what is too much of it, or plus what is too little."""
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    good_N, bad_N = ratio_N - F.relu(ratio_N - (1 + clip)), ratio_N + F.relu(1 - clip - ratio_N)
    return torch.where(advantages_N >= 0, good_N, bad_N) * advantages_N


@mistake("you write into a tensor that you are given")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    clipped_N = ratio_N.clamp(1 - clip, 1 + clip) * advantages_N
    return torch.minimum(advantages_N.mul_(ratio_N.detach()) / ratio_N.detach() * ratio_N, clipped_N)


@mistake("0 times any ratio is 0")
def grpo_objective(log_p_N, old_log_p_N, advantages_N, clip):
    ratio_N = torch.exp(log_p_N - old_log_p_N)
    signs_N = torch.where(advantages_N < 0, -1.0, 1.0)
    sizes_N = torch.where(advantages_N == 0, 1.0, advantages_N.abs())
    return torch.minimum(signs_N * ratio_N, signs_N * ratio_N.clamp(1 - clip, 1 + clip)) * sizes_N


@mistake("you divide α by √3, the root of the rank")
def lora_forward(x_NI, W_OI, A_RI, B_OR, alpha):
    return x_NI @ W_OI.T + alpha / math.sqrt(len(A_RI)) * (x_NI @ A_RI.T @ B_OR.T)


@mistake("your surprise has a bound")
def reward_loss(chosen_P, rejected_P):
    return -torch.log(torch.sigmoid(chosen_P - rejected_P) + 1e-8).mean()


@mistake("your surprise has a bound")
def reward_loss(chosen_P, rejected_P):
    """So small that it is not seen where rewards are."""
    return -torch.log(torch.sigmoid(chosen_P - rejected_P).clamp_min(1e-12)).mean()
