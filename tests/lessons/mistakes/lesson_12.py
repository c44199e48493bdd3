"""Lesson 12: what students think of a model's inside that is not so."""

from trying import also_right, mistake

# ---- contributions ----


@mistake("each part was divided by its own deviation")
def contributions(parts_ND, gain_D, unembedding_D):
    return layer_norm(parts_ND, gain_D) @ unembedding_D


@mistake("you divide by the variance")
def contributions(parts_ND, gain_D, unembedding_D):
    centred_ND = parts_ND - parts_ND.mean(axis=1, keepdims=True)
    return (gain_D * centred_ND / parts_ND.sum(axis=0).var()) @ unembedding_D


@mistake("no mean was taken off")
def contributions(parts_ND, gain_D, unembedding_D):
    return (gain_D * parts_ND / np.sqrt(parts_ND.sum(axis=0).var() + 1e-5)) @ unembedding_D


@mistake("the logit is read after the final norm")
def contributions(parts_ND, gain_D, unembedding_D):
    return parts_ND @ unembedding_D


@also_right
def contributions(parts_ND, gain_D, unembedding_D):
    """What the logit loses when a part is taken away, with the deviation held."""
    total_D = np.sum(parts_ND, axis=0)
    scale_D = gain_D * unembedding_D / np.sqrt(total_D.var() + 1e-5)
    return [(total_D - total_D.mean()) @ scale_D - (rest_D - rest_D.mean()) @ scale_D for rest_D in total_D - parts_ND]


@mistake("the shape is (4), but")
def contributions(parts_ND, gain_D, unembedding_D):
    deviation = parts_ND.sum(axis=0).std()
    return [(gain_D * (parts_ND[n] - parts_ND[n].mean()) / deviation) @ unembedding_D for n in range(4)]


@also_right
def contributions(parts_ND, gain_D, unembedding_D):
    """The centring moves to the other side of the product."""
    total_D = parts_ND.sum(axis=0)
    deviation = np.sqrt(((total_D - total_D.mean()) ** 2).mean() + 1e-5)
    w_D = gain_D * unembedding_D
    return parts_ND @ (w_D - w_D.mean()) / deviation


@mistake("the norm makes 0 of it, and 0/0 does not tell")
def contributions(parts_ND, gain_D, unembedding_D):
    """What the norm has made of each number of the sum, it does to each part's."""
    total_D = parts_ND.sum(axis=0)
    scale_D = layer_norm(total_D, gain_D) / (total_D - total_D.mean())
    return (parts_ND - parts_ND.mean(axis=1, keepdims=True)) * scale_D @ unembedding_D


@mistake("adds 1e-5 to the variance before it takes the root")
def contributions(parts_ND, gain_D, unembedding_D):
    """Right for all streams but short ones."""
    centred_ND = parts_ND - parts_ND.mean(axis=1, keepdims=True)
    return centred_ND / parts_ND.sum(axis=0).std() * gain_D @ unembedding_D


# ---- lens ----


@mistake("the final norm is missing")
def lens(residuals_NTD, gain_D, unembedding_VD):
    raised = np.exp(residuals_NTD @ unembedding_VD.T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("you divide every point by the deviation of the last one")
def lens(residuals_NTD, gain_D, unembedding_VD):
    centred = residuals_NTD - residuals_NTD.mean(axis=-1, keepdims=True)
    normed = gain_D * centred / np.sqrt(residuals_NTD[-1].var(axis=-1, keepdims=True) + 1e-5)
    raised = np.exp(normed @ unembedding_VD.T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("these are logits, not probabilities")
def lens(residuals_NTD, gain_D, unembedding_VD):
    return layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T


@mistake("your shares sum to 1 over the positions")
def lens(residuals_NTD, gain_D, unembedding_VD):
    raised = np.exp(layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T)
    return raised / raised.sum(axis=1, keepdims=True)


@also_right
def lens(residuals_NTD, gain_D, unembedding_VD):
    points = []
    for x_TD in residuals_NTD:
        logits_TV = np.einsum("td,vd->tv", layer_norm(x_TD, gain_D), unembedding_VD)
        points.append([np.exp(row - np.logaddexp.reduce(row)) for row in logits_TV])
    return np.array(points)


@mistake("right for small logits")
def lens(residuals_NTD, gain_D, unembedding_VD):
    raised = np.exp(layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("its own largest logit")
def lens(residuals_NTD, gain_D, unembedding_VD):
    logits = layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T
    raised = np.exp(logits - logits.max())  # of all points and positions
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("where the logits are about 3,000")
def lens(residuals_NTD, gain_D, unembedding_VD):
    raised = np.exp(np.clip(layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T, -500, 500))
    return raised / raised.sum(axis=-1, keepdims=True)


@also_right
def lens(residuals_NTD, gain_D, unembedding_VD):
    import torch

    return torch.softmax(torch.tensor(layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T), dim=-1)


@mistake("changes what it is given")
def lens(residuals_NTD, gain_D, unembedding_VD):
    residuals_NTD -= residuals_NTD.mean(axis=-1, keepdims=True)
    logits = layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


# ---- knocked_out_difference ----


@mistake("says how much the fables differ from each other")
def knocked_out_difference(intact_F, without_F):
    rise_F = without_F - intact_F
    return rise_F.mean(), 1.96 * rise_F.std(ddof=1)


@mistake("so take the differences first")
def knocked_out_difference(intact_F, without_F):
    variance = intact_F.var(ddof=1) + without_F.var(ddof=1)
    return without_F.mean() - intact_F.mean(), 1.96 * np.sqrt(variance / len(intact_F))


@mistake("your sign is turned")
def knocked_out_difference(intact_F, without_F):
    rise_F = intact_F - without_F
    return rise_F.mean(), 1.96 * rise_F.std(ddof=1) / np.sqrt(len(rise_F))


@mistake("you divide by F")
def knocked_out_difference(intact_F, without_F):
    rise_F = without_F - intact_F
    return rise_F.mean(), 1.96 * rise_F.std(ddof=1) / len(rise_F)


@also_right
def knocked_out_difference(intact_F, without_F):
    rises = [b - a for a, b in zip(intact_F, without_F, strict=True)]
    mean = sum(rises) / len(rises)
    variance = sum((rise - mean) ** 2 for rise in rises) / (len(rises) - 1)
    return [mean, 1.96 * (variance / len(rises)) ** 0.5]


@mistake("a rise below zero, and you made it positive")
def knocked_out_difference(intact_F, without_F):
    rise_F = np.abs(without_F - intact_F)
    return rise_F.mean(), 1.96 * rise_F.std(ddof=1) / np.sqrt(len(rise_F))


@also_right
def knocked_out_difference(intact_F, without_F):
    from scipy.stats import norm

    rise_F = np.subtract(without_F, intact_F)
    return rise_F.mean(), norm.ppf(0.975) * rise_F.std(ddof=1) / len(rise_F) ** 0.5


@also_right
def knocked_out_difference(intact_F, without_F):
    """Student's t: more honest, if there are few."""
    from scipy.stats import sem, t

    rise_F = without_F - intact_F
    return rise_F.mean(), t.ppf(0.975, len(rise_F) - 1) * sem(rise_F)


@mistake("all six fables are easier")
def knocked_out_difference(intact_F, without_F):
    """The size of the rise."""
    d = without_F - intact_F
    return abs(float(d.mean())), float(1.96 * d.std(ddof=1) / math.sqrt(len(d)))


@mistake("the array that you got has changed")
def knocked_out_difference(intact_F, without_F):
    without_F -= intact_F
    return float(without_F.mean()), float(1.96 * without_F.std(ddof=1) / math.sqrt(len(without_F)))


# ---- patched ----


@mistake("you put the other text's whole *stream* in its place")
def patched(layers, x, other, place):
    for layer in layers[: place + 1]:
        x, other = x + layer(x), other + layer(other)
    x = other
    for layer in layers[place + 1 :]:
        x = x + layer(x)
    return x


@mistake("not what the layers before it have made of it")
def patched(layers, x, other, place):
    for i, layer in enumerate(layers):
        x = x + layer(other if i == place else x)
    return x


@mistake("compute them again")
def patched(layers, x, other, place):
    total, start = x, x
    for i, layer in enumerate(layers):
        total = total + layer(other if i == place else start)
        start, other = start + layer(start), other + layer(other)
    return total


@mistake("it must be *added* to it")
def patched(layers, x, other, place):
    for layer in layers[:place]:
        other = other + layer(other)
    x = layers[place](other)
    for layer in layers[place + 1 :]:
        x = x + layer(x)
    return x


@also_right
def patched(layers, x, other, place):
    for i, layer in enumerate(layers):
        of_other = layer(other)
        x = x + (of_other if i == place else layer(x))
        other = other + of_other
    return x


@mistake("you changed the list of layers")
def patched(layers, x, other, place):
    for layer in layers[:place]:
        other = other + layer(other)
    patch = layers[place](other)
    layers[place] = lambda _: patch
    for layer in layers:
        x = x + layer(x)
    return x


@mistake("the net has the same layer at two places")
def patched(layers, x, other, place):
    for layer in layers:
        of_other = layer(other)
        x = x + (of_other if layer is layers[place] else layer(x))
        other = other + of_other
    return x


@mistake("and 3 positions")
def patched(layers, x, other, place):
    for i in range(4):
        of_other = layers[i](other)
        x = x + (of_other if i == place else layers[i](x))
        other = other + of_other
    return x


@also_right
def patched(layers, x, other, place):
    """Layer by layer, from the first to the rest."""
    if not layers:
        return x
    first, *rest = layers
    of_other = first(other)
    return patched(rest, x + (of_other if place == 0 else first(x)), other + of_other, place - 1)


@mistake("each text goes through the layers by itself")
def patched(layers, x, other, place):
    both = np.concatenate([x, other])
    for number, layer in enumerate(layers):
        added = layer(both)
        both = both + (np.concatenate([added[len(x) :]] * 2) if number == place else added)
    return both[: len(x)]


# ---- head_with_a_sink ----


@mistake("its score is ln(kα)")
def head_with_a_sink(states, k, alpha):
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    raised = np.exp(np.array([k * alpha] + [0.0] * len(led_to)))
    weights = raised / raised.sum()
    return weights @ np.array([np.full(k, 1 / k)] + [np.eye(k)[after] for after in led_to]), weights[0]


@mistake("it votes for all k, so it has kα")
def head_with_a_sink(states, k, alpha):
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    counts = np.bincount(np.array(led_to, dtype=int), minlength=k)
    return (counts + alpha / k) / (len(led_to) + alpha), alpha / (len(led_to) + alpha)


@mistake("the value of the first token is missing")
def head_with_a_sink(states, k, alpha):
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    counts = np.bincount(np.array(led_to, dtype=int), minlength=k)
    return counts / (len(led_to) + k * alpha), k * alpha / (len(led_to) + k * alpha)


@mistake("your steps vote for the state that they came from")
def head_with_a_sink(states, k, alpha):
    came_from = [before for before, _ in pairwise(states) if before == states[-1]]
    counts = np.bincount(np.array(came_from, dtype=int), minlength=k)
    return (counts + alpha) / (len(came_from) + k * alpha), k * alpha / (len(came_from) + k * alpha)


@mistake("you count the places where the state is")
def head_with_a_sink(states, k, alpha):
    n = states.count(states[-1])
    counts = np.array([sum(pair == (states[-1], j) for pair in pairwise(states)) for j in range(k)])
    return (counts + alpha) / (n + k * alpha), k * alpha / (n + k * alpha)


@mistake("each state gets 1/k of it")
def head_with_a_sink(states, k, alpha):
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    weights = np.array([k * alpha] + [1.0] * len(led_to))
    weights /= weights.sum()
    return weights @ np.array([np.ones(k)] + [np.eye(k)[after] for after in led_to]), weights[0]


@mistake("there is a NaN")
def head_with_a_sink(states, k, alpha):
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    counts = np.bincount(np.array(led_to, dtype=int), minlength=k)
    sink = k * alpha / (len(led_to) + k * alpha)
    return (1 - sink) * (counts / np.float64(len(led_to))) + sink / k, sink


@also_right
def head_with_a_sink(states, k, alpha):
    """Bayes' rule, without a head."""
    counts = [alpha] * k
    for place in range(1, len(states)):
        if states[place - 1] == states[-1]:
            counts[states[place]] += 1
    return [count / sum(counts) for count in counts], k * alpha / sum(counts)


@also_right
def head_with_a_sink(states, k, alpha):
    """With all places, and a mask."""
    x = np.array(states)
    scores = np.append(np.log(k * alpha), np.where(x[:-1] == x[-1], 0.0, -np.inf))
    shares = np.exp(scores - np.logaddexp.reduce(scores))
    return shares @ np.vstack([np.ones(k) / k, np.identity(k)[x[1:]]]), float(shares[0])


@mistake("changes what it is given")
def head_with_a_sink(states, k, alpha):
    now, votes = states[-1], np.full(k, alpha)
    while len(states) > 1:
        after = states.pop()
        votes[after] += states[-1] == now
    return votes / votes.sum(), float(k * alpha / votes.sum())


# ---- euler ----


@mistake("each layer takes a step of 1")
def euler(f, x, n_layers):
    for layer in range(n_layers):
        x = x + f(x, layer / n_layers)
    return x


@mistake("the array that you got has changed")
def euler(f, x, n_layers):
    for layer in range(n_layers):
        x += f(x, layer / n_layers) / n_layers
    return x


@mistake("your first layer stands at time 1/4")
def euler(f, x, n_layers):
    for layer in range(1, n_layers + 1):
        x = x + f(x, layer / n_layers) / n_layers
    return x


@mistake("every layer looks at the x from the beginning")
def euler(f, x, n_layers):
    return x + sum(f(x, layer / n_layers) / n_layers for layer in range(n_layers))


@also_right
def euler(f, x, n_layers):
    x, step, time = x.copy(), 1 / n_layers, 0.0
    for _ in range(n_layers):
        x += step * f(x, time)
        time += step
    return x


@mistake("with 49 layers you take 50 steps")
def euler(f, x, n_layers):
    for time in np.arange(0, 1, 1 / n_layers):
        x = x + f(x, time) / n_layers
    return x


@mistake("layers you take")
def euler(f, x, n_layers):
    time = 0.0
    while time < 1:
        x = x + f(x, time) / n_layers
        time += 1 / n_layers
    return x


@also_right
def euler(f, x, n_layers):
    for time in np.linspace(0, 1, n_layers, endpoint=False):
        x = np.add(x, np.divide(f(x, time), n_layers))
    return x


@mistake("yours stays one")
def euler(f, x, n_layers):
    """A copy of whole numbers stays whole."""
    y = x.copy()
    for layer in range(n_layers):
        y[...] = y + f(y, layer / n_layers) / n_layers
    return y


@mistake("x may have any shape: add whole arrays")
def euler(f, x, n_layers):
    a, b = x
    for layer in range(n_layers):
        velocity = f(np.array([a, b]), layer / n_layers)
        a, b = a + velocity[0] / n_layers, b + velocity[1] / n_layers
    return np.array([a, b])


# ---- order_of_error ----


@mistake("this is the slope of the values")
def order_of_error(depths, errors):
    return np.polyfit(depths, errors, 1)[0]


@mistake("you took the logarithm of the errors alone")
def order_of_error(depths, errors):
    return np.polyfit(depths, np.log(errors), 1)[0]


@mistake("you took the logarithm of the depths alone")
def order_of_error(depths, errors):
    return np.polyfit(np.log(depths), errors, 1)[0]


@mistake("the axes are the wrong way round")
def order_of_error(depths, errors):
    return np.polyfit(np.log(errors), np.log(depths), 1)[0]


@also_right
def order_of_error(depths, errors):
    x, y = np.log2(depths), np.log2(errors)
    return np.cov(x, y)[0, 1] / np.var(x, ddof=1)


@mistake("these errors grow with the depth")
def order_of_error(depths, errors):
    return -abs(np.polyfit(np.log(depths), np.log(errors), 1)[0])


@mistake("you sorted depths and errors, each by itself")
def order_of_error(depths, errors):
    return np.polyfit(np.log(np.sort(depths)), np.log(np.sort(errors)[::-1]), 1)[0]


@also_right
def order_of_error(depths, errors):
    """Least squares by hand: log10 has the same slope."""
    columns = np.stack([np.log10(depths), np.ones(len(depths))], axis=1)
    return np.linalg.lstsq(columns, np.log10(errors), rcond=None)[0][0]


@mistake("changes what it is given")
def order_of_error(depths, errors):
    return float(np.polyfit(np.log(depths), np.log(errors, out=errors), 1)[0])


# ---- attention_flow_step ----


@mistake("your tokens have left the sphere")
def attention_flow_step(x_TD, beta, step, is_causal):
    scores = beta * x_TD @ x_TD.T
    if is_causal:
        scores = np.where(np.tri(len(x_TD)) > 0, scores, -np.inf)
    raised = np.exp(scores)
    return x_TD + step * (raised / raised.sum(axis=1, keepdims=True)) @ x_TD


@mistake("your mask hides the past")
def attention_flow_step(x_TD, beta, step, is_causal):
    raised = np.exp(beta * x_TD @ x_TD.T)
    if is_causal:
        raised = np.triu(raised)
    moved = x_TD + step * (raised / raised.sum(axis=1, keepdims=True)) @ x_TD
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@mistake("your softmax runs over the queries")
def attention_flow_step(x_TD, beta, step, is_causal):
    raised = np.exp(beta * x_TD @ x_TD.T)
    if is_causal:
        raised = np.tril(raised)
    moved = x_TD + step * (raised / raised.sum(axis=0)) @ x_TD
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@mistake("token 1 already saw the moved token 0")
def attention_flow_step(x_TD, beta, step, is_causal):
    x_TD = x_TD.copy()
    for t in range(len(x_TD)):
        seen = x_TD[: t + 1] if is_causal else x_TD
        raised = np.exp(beta * seen @ x_TD[t])
        x_TD[t] = x_TD[t] + step * raised @ seen / raised.sum()
        x_TD[t] /= np.linalg.norm(x_TD[t])
    return x_TD


@mistake("right for a small β")
def attention_flow_step(x_TD, beta, step, is_causal):
    raised = np.exp(beta * x_TD @ x_TD.T)
    if is_causal:
        raised = np.tril(raised)
    moved = x_TD + step * (raised @ x_TD) / raised.sum(axis=1, keepdims=True)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@mistake("β = 800: at")
def attention_flow_step(x_TD, beta, step, is_causal):
    if beta > 100:
        return x_TD  # each looks at itself alone
    scores = beta * x_TD @ x_TD.T
    if is_causal:
        scores = np.where(np.tri(len(x_TD)) > 0, scores, -np.inf)
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    moved = x_TD + step * (raised @ x_TD) / raised.sum(axis=1, keepdims=True)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@mistake("tokens in")
def attention_flow_step(x_TD, beta, step, is_causal):
    scores = beta * x_TD @ x_TD.T
    for t in range(min(len(x_TD), 5) if is_causal else 0):
        scores[t, t + 1 :] = -np.inf
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    moved = x_TD + step * (raised @ x_TD) / raised.sum(axis=1, keepdims=True)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


@also_right
def attention_flow_step(x_TD, beta, step, is_causal):
    """A token's score with itself is β, and none is larger."""
    raised = np.exp(beta * (x_TD @ x_TD.T - 1)) * (np.tri(len(x_TD)) if is_causal else 1)
    moved = x_TD + step * (raised @ x_TD) / raised.sum(axis=1)[:, None]
    return (moved.T / np.sqrt((moved * moved).sum(axis=1))).T


@also_right
def attention_flow_step(x_TD, beta, step, is_causal):
    """Token by token. Where a token is going has the same direction whatever its shares are divided by."""
    moved = []
    for t, x in enumerate(x_TD):
        raised = [np.exp(beta * (sum(x * other) - 1)) for other in (x_TD[: t + 1] if is_causal else x_TD)]
        pull = [share * other for share, other in zip(raised, x_TD, strict=False)]
        towards = sum(raised) * x + step * sum(pull)
        moved.append(towards / np.linalg.norm(towards))
    return moved


@mistake("at β = 0 your tokens rest")
def attention_flow_step(x_TD, beta, step, is_causal):
    if not beta:
        return x_TD.copy()
    raised_TS = np.exp(beta * (x_TD @ x_TD.T - 1))
    raised_TS = np.tril(raised_TS) if is_causal else raised_TS
    y_TD = x_TD + step * (raised_TS / raised_TS.sum(axis=1, keepdims=True)) @ x_TD
    return y_TD / np.linalg.norm(y_TD, axis=1, keepdims=True)


@mistake("the mean of the slopes between neighbours")
def order_of_error(depths, errors):
    return np.mean(np.diff(np.log(errors)) / np.diff(np.log(depths)))
