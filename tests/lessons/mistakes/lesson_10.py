"""Lesson 10: what students think of a model's inside that is not so."""

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
    scale_D = gain_D * unembedding_D / total_D.std()
    return [(total_D - total_D.mean()) @ scale_D - (rest_D - rest_D.mean()) @ scale_D for rest_D in total_D - parts_ND]


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


@also_right
def attention_flow_step(x_TD, beta, step, is_causal):
    """Token by token. Where a token is going has the same direction whatever its shares are divided by."""
    moved = []
    for t, x in enumerate(x_TD):
        raised = [np.exp(beta * sum(x * other)) for other in (x_TD[: t + 1] if is_causal else x_TD)]
        pull = [share * other for share, other in zip(raised, x_TD, strict=False)]
        towards = sum(raised) * x + step * sum(pull)
        moved.append(towards / np.linalg.norm(towards))
    return moved
