"""Lesson 9: what students think of attention that is not so."""

from trying import also_right, mistake

# ---- head ----


@mistake("the columns sum to 1, not the rows")
def head(x_TD, W_Q, W_K, W_V):
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    weights_TS = softmax(q_TK @ k_TK.T / np.sqrt(q_TK.shape[1]), axis=0)
    return weights_TS, weights_TS @ v_TK


@mistake("you divide by √7, the width of x")
def head(x_TD, W_Q, W_K, W_V):
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    weights_TS = softmax(q_TK @ k_TK.T / np.sqrt(x_TD.shape[1]), axis=1)
    return weights_TS, weights_TS @ v_TK


@mistake("your table is turned")
def head(x_TD, W_Q, W_K, W_V):
    q_KT, k_KT, v_KT = W_Q @ x_TD.T, W_K @ x_TD.T, W_V @ x_TD.T
    weights_ST = softmax(k_KT.T @ q_KT / np.sqrt(len(q_KT)), axis=0)
    return weights_ST, (v_KT @ weights_ST).T


@mistake("you divide after the softmax")
def head(x_TD, W_Q, W_K, W_V):
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    weights_TS = softmax(q_TK @ k_TK.T, axis=1) / np.sqrt(q_TK.shape[1])
    return weights_TS, weights_TS @ v_TK


@also_right
def head(x_TD, W_Q, W_K, W_V):
    weights, outputs = [], []
    for row in x_TD:
        scores = np.array([(W_Q @ row) @ (W_K @ other) / len(W_K) ** 0.5 for other in x_TD])
        shares = np.exp(scores - scores.max()) / np.sum(np.exp(scores - scores.max()))
        weights.append(shares)
        outputs.append(sum(share * (W_V @ other) for share, other in zip(shares, x_TD, strict=True)))
    return weights, outputs


@mistake("the one in your file first subtracts the largest score of the row")
def head(x_TD, W_Q, W_K, W_V):
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    raised = np.exp(q_TK @ k_TK.T / np.sqrt(q_TK.shape[1]))
    weights_TS = raised / raised.sum(axis=1, keepdims=True)
    return weights_TS, weights_TS @ v_TK


@mistake("the one in your file first subtracts the largest score of the row")
def head(x_TD, W_Q, W_K, W_V):
    """The largest score of the whole table is subtracted, so a row far below it is 0/0."""
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    scores_TS = q_TK @ k_TK.T / np.sqrt(q_TK.shape[1])
    raised = np.exp(scores_TS - scores_TS.max())
    weights_TS = raised / raised.sum(axis=1, keepdims=True)
    return weights_TS, weights_TS @ v_TK


@mistake("you divide by 2, which was √K in the first example")
def head(x_TD, W_Q, W_K, W_V):
    weights_TS = softmax((x_TD @ W_Q.T) @ (x_TD @ W_K.T).T / 2, axis=1)
    return weights_TS, weights_TS @ (x_TD @ W_V.T)


@also_right
def head(x_TD, W_Q, W_K, W_V):
    """One matrix for queries and keys, and the values last."""
    weights_TS = softmax(x_TD @ (W_Q.T @ W_K / len(W_K) ** 0.5) @ x_TD.T, axis=-1)
    return weights_TS, (weights_TS @ x_TD) @ W_V.T


# ---- causal_weights ----


@mistake("row 1 sums to 0.6")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return np.tril(softmax(scores_TS, axis=-1), k=S - T)


@mistake("row 0 is NaN")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    is_in_future = np.triu(np.ones((T, S), dtype=bool), k=S - T)
    return softmax(np.where(is_in_future, -np.inf, scores_TS), axis=-1)


@mistake("you hid the past")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    mask = np.tril(np.full((T, S), -np.inf), k=-1)
    return softmax(mask + scores_TS, axis=-1)


@mistake("the queries are positions 3 and 4")
def causal_weights(scores_TS):
    is_in_future = np.triu(np.ones(scores_TS.shape[-2:], dtype=bool), k=1)
    return softmax(np.where(is_in_future, -np.inf, scores_TS), axis=-1)


@mistake("You hide the future after the softmax")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    raised = np.tril(np.exp(scores_TS - scores_TS.max(axis=-1, keepdims=True)), k=S - T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("which number is below all others?")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return softmax(scores_TS + np.triu(np.full((T, S), -100.0), k=S - T + 1), axis=-1)


@mistake("which number is below all others?")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return softmax(np.where(np.tri(T, S, S - T) > 0, scores_TS, -50.0), axis=-1)


@mistake("which number is below all others?")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return softmax(np.where(np.tri(T, S, S - T) > 0, scores_TS, scores_TS.min() - 20), axis=-1)


@mistake("which number is below all others?")
def causal_weights(scores_TS):
    """Enough in half precision, and not here."""
    T, S = scores_TS.shape[-2:]
    return softmax(np.where(np.tri(T, S, S - T) > 0, scores_TS, -1e4), axis=-1)


@mistake("with 20,000 more on each score of the future")
def causal_weights(scores_TS):
    """Added, not put in its place."""
    T, S = scores_TS.shape[-2:]
    return softmax(scores_TS + np.triu(np.full((T, S), -1e4), k=S - T + 1), axis=-1)


@mistake("e^1000000 is inf")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    raised = np.tril(np.exp(scores_TS), k=S - T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("e^-1000000 is 0")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    raised = np.tril(np.exp(scores_TS - scores_TS.max()), k=S - T)
    return raised / raised.sum(axis=-1, keepdims=True)


@mistake("with 300 more on each score of the future, which must not matter")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    raised = np.tril(np.exp(scores_TS - scores_TS.max(axis=-1, keepdims=True)), k=S - T)
    return raised / (raised.sum(axis=-1, keepdims=True) + 1e-12)


@mistake("in an array with 3 axes")
def causal_weights(scores_TS):
    """Tables alone, or texts and heads of them."""
    T, S = scores_TS.shape[-2:]
    mask = np.where(np.tri(T, S, S - T) > 0, 0, -np.inf)
    return softmax(scores_TS + (mask if scores_TS.ndim == 2 else mask[None, None]), axis=-1)


@mistake("You hide the future after the softmax")
def causal_weights(scores_TS):
    """A softmax over all, of which the past is made a whole again."""
    T, S = scores_TS.shape[-2:]
    weights = softmax(scores_TS, axis=-1) * np.tri(T, S, S - T)
    return weights / weights.sum(axis=-1, keepdims=True)


@also_right
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return softmax(scores_TS + np.triu(np.full((T, S), -1e9), k=S - T + 1), axis=-1)


@also_right
def causal_weights(scores_TS):
    """Row by row, the future is left out."""
    weights = np.zeros(scores_TS.shape)
    T, S = scores_TS.shape[-2:]
    for t in range(T):
        weights[..., t, : S - T + t + 1] = softmax(scores_TS[..., t, : S - T + t + 1], axis=-1)
    return weights


# ---- split_heads ----


@mistake("head 0 got positions, not channels")
def split_heads(x_BTD, n_heads):
    B, T, D = x_BTD.shape
    return x_BTD.reshape(B, n_heads, T, D // n_heads)


@mistake("you dealt them out like cards")
def split_heads(x_BTD, n_heads):
    B, T, D = x_BTD.shape
    return x_BTD.reshape(B, T, D // n_heads, n_heads).transpose(0, 3, 1, 2)


@mistake("the heads still stand behind the positions")
def split_heads(x_BTD, n_heads):
    B, T, D = x_BTD.shape
    return x_BTD.reshape(B, T, n_heads, D // n_heads)


@also_right
def split_heads(x_BTD, n_heads):
    return np.stack(np.split(x_BTD, n_heads, axis=2), axis=1)


@mistake("which size, or number of axes, is written as a number")
def split_heads(x_BTD, n_heads):
    B, T, _ = x_BTD.shape
    return x_BTD.reshape(B, T, n_heads, 4).transpose(0, 2, 1, 3)


@also_right
def split_heads(x_BTD, n_heads):
    K = x_BTD.shape[-1] // n_heads
    return np.moveaxis(x_BTD.reshape(*x_BTD.shape[:2], -1, K), 2, 1)


# ---- heads_by_einsum ----


@mistake("you mixed with the weights turned")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores_BHTS = np.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[-1])
    return np.einsum("bhst,bshk->bthk", causal_weights(scores_BHTS), v_BSHK)


@mistake("every head mixed the values of all heads")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores_BHTS = np.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[-1])
    return np.einsum("bhts,bsgk->bthk", causal_weights(scores_BHTS), v_BSHK)


@mistake("yours are heads and keys")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores_BTHS = np.einsum("bthk,bshk->bths", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[-1])
    return np.einsum("bths,bshk->bthk", causal_weights(scores_BTHS), v_BSHK)


@mistake("the scores have no letter for the heads")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores_BTS = np.einsum("bthk,bshk->bts", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[-1])
    return np.einsum("bts,bshk->bthk", causal_weights(scores_BTS), v_BSHK)


@also_right
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores = np.einsum("...thk,...shk->...hts", q_BTHK / q_BTHK.shape[-1] ** 0.5, k_BSHK)
    return np.einsum("nast,ntad->nsad", causal_weights(scores), v_BSHK)


@mistake("you divide by 2, which was √K in the first example")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    scores_BHTS = np.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / 2
    return np.einsum("bhts,bshk->bthk", causal_weights(scores_BHTS), v_BSHK)


@mistake("2 queries after 3 others: 5 keys and values")
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    """A mask that knows no cache."""
    scores_BHTS = np.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[3])
    hidden = np.where(np.tri(*scores_BHTS.shape[-2:]) > 0, scores_BHTS, -np.inf)
    return np.einsum("bhts,bshk->bthk", softmax(hidden, axis=-1), v_BSHK)


@also_right
def heads_by_einsum(q_BTHK, k_BSHK, v_BSHK):
    """Numbers for letters, and the root shared out between queries and keys."""
    quarter = q_BTHK.shape[-1] ** -0.25
    scores = np.einsum(q_BTHK * quarter, [0, 1, 2, 3], k_BSHK * quarter, [0, 4, 2, 3], [0, 2, 1, 4])
    return np.einsum(causal_weights(scores), [0, 2, 1, 4], v_BSHK, [0, 4, 2, 3], [0, 1, 2, 3])


# ---- rotate ----


@mistake("your pairs are neighbours")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    turned = np.empty_like(x_TK)
    a, b = x_TK[..., 0::2], x_TK[..., 1::2]
    turned[..., 0::2] = a * np.cos(angles) - b * np.sin(angles)
    turned[..., 1::2] = b * np.cos(angles) + a * np.sin(angles)
    return turned


@mistake("you count positions from 1")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start + 1, start + T + 1), 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = np.split(x_TK, 2, axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@mistake("`start` is the position of the first row")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = np.split(x_TK, 2, axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@mistake("the exponent is negative")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (np.arange(0, K, 2) / K))
    a, b = np.split(x_TK, 2, axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@also_right
def rotate(x_TK, start=0):
    K = x_TK.shape[-1]
    hands = x_TK[..., : K // 2] + 1j * x_TK[..., K // 2 :]
    t = np.arange(start, start + x_TK.shape[-2])[:, None]
    hands = hands * np.exp(1j * t / 10_000 ** (2 * np.arange(K // 2) / K))
    return np.concatenate([hands.real, hands.imag], axis=-1)


@mistake("which size, or number of axes, is written as a number")
def rotate(x_TK, start=0):
    _, T, K = x_TK.shape
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = x_TK[:, :, : K // 2], x_TK[:, :, K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=2)


@mistake("you took the axis of the heads for that of the positions")
def rotate(x_TK, start=0):
    K = x_TK.shape[-1]
    T = x_TK.shape[-2] if x_TK.ndim == 2 else x_TK.shape[1]
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    angles = angles[:, None] if x_TK.ndim == 4 else angles
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@mistake("changes what it is given")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = x_TK[..., : K // 2].copy(), x_TK[..., K // 2 :].copy()
    x_TK[..., : K // 2] = a * np.cos(angles) - b * np.sin(angles)
    x_TK[..., K // 2 :] = b * np.cos(angles) + a * np.sin(angles)
    return x_TK


@mistake("that starts at position")
def rotate(x_TK, start=0):
    """A table of eight positions."""
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(8), 10_000.0 ** (-np.arange(0, K, 2) / K))[start : start + T]
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@mistake("that starts at position")
def rotate(x_TK, start=0):
    """The speeds of a row of six numbers."""
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T), 10_000.0 ** (-np.arange(3) / 3))
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@also_right
def rotate(x_TK, start=0):
    """As in Llama: each angle twice, and a copy that is turned by a quarter."""
    T, K = x_TK.shape[-2:]
    angles = np.tile(np.outer(np.arange(T) + start, 1.0 / 10_000 ** (np.arange(0, K, 2) / K)), 2)
    quarter = np.concatenate([-x_TK[..., K // 2 :], x_TK[..., : K // 2]], axis=-1)
    return x_TK * np.cos(angles) + quarter * np.sin(angles)


@mistake("that starts at position")
def rotate(x_TK, start=0):
    """A text that begins again after 64 words."""
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T) % 64, 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


# ---- cross_attention ----


@mistake("the source has asked")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    q_SK, k_TK, v_TK = source_SD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    return softmax(q_SK @ k_TK.T / np.sqrt(q_SK.shape[1]), axis=1) @ v_TK


@mistake("you hid a part of the source")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    q_TK, k_SK, v_SK = x_TD @ W_Q.T, source_SD @ W_K.T, source_SD @ W_V.T
    return causal_weights(q_TK @ k_SK.T / np.sqrt(q_TK.shape[1])) @ v_SK


@mistake("your softmax runs over the queries")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    q_TK, k_SK, v_SK = x_TD @ W_Q.T, source_SD @ W_K.T, source_SD @ W_V.T
    return softmax(q_TK @ k_SK.T / np.sqrt(q_TK.shape[1]), axis=0) @ v_SK


@mistake("each share is for a word of the source")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    q_TK, k_SK, v_TK = x_TD @ W_Q.T, source_SD @ W_K.T, x_TD @ W_V.T
    return softmax(q_TK @ k_SK.T / np.sqrt(q_TK.shape[1]), axis=1) @ v_TK


@mistake("the one in your file first subtracts the largest score of the row")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    raised = np.exp(x_TD @ W_Q.T @ (source_SD @ W_K.T).T / np.sqrt(len(W_Q)))
    return raised / raised.sum(axis=1, keepdims=True) @ (source_SD @ W_V.T)


@mistake("you divide by 2, which was √K in the first example")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    return softmax(x_TD @ W_Q.T @ (source_SD @ W_K.T).T / 2, axis=1) @ (source_SD @ W_V.T)


@mistake("the root is one of the number of words in the source")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    root = np.sqrt(len(source_SD) - 1)
    return softmax(x_TD @ W_Q.T @ (source_SD @ W_K.T).T / root, axis=1) @ (source_SD @ W_V.T)


@mistake("the shape is")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    """Only as many queries as there are words in the source."""
    scores_TS = x_TD @ W_Q.T @ (source_SD @ W_K.T).T / np.sqrt(len(W_Q))
    return softmax(scores_TS[: len(source_SD)], axis=1) @ (source_SD @ W_V.T)


@also_right
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    outputs = []
    for row in x_TD:
        outputs.append(softmax(source_SD @ W_K.T @ (W_Q @ row) / len(W_Q) ** 0.5, axis=0) @ source_SD @ W_V.T)
    return np.array(outputs)


# ---- multi_head_attention ----


@mistake("position 0 got head 0's outputs of three positions")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (split_heads(x_BTD @ W.T, n_heads) for W in (W_Q, W_K, W_V))
    weights = causal_weights(rotate(q) @ rotate(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights @ v).reshape(x_BTD.shape) @ W_O.T


@mistake("you turned the values, too")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (rotate(split_heads(x_BTD @ W.T, n_heads)) for W in (W_Q, W_K, W_V))
    weights = causal_weights(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights @ v).transpose(0, 2, 1, 3).reshape(x_BTD.shape) @ W_O.T


@mistake("you turned before you cut")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    q, k = (split_heads(rotate(x_BTD @ W.T), n_heads) for W in (W_Q, W_K))
    weights = causal_weights(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights @ split_heads(x_BTD @ W_V.T, n_heads)).transpose(0, 2, 1, 3).reshape(x_BTD.shape) @ W_O.T


@mistake("you turned x, before W_Q and W_K")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    turned = rotate(x_BTD)
    q, k, v = (split_heads(x @ W.T, n_heads) for x, W in ((turned, W_Q), (turned, W_K), (x_BTD, W_V)))
    weights = causal_weights(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights @ v).transpose(0, 2, 1, 3).reshape(x_BTD.shape) @ W_O.T


@also_right
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    """Head by head: W_O's columns are cut as well, and what the heads add to the stream is summed."""
    K = len(W_Q) // n_heads
    total = 0.0
    for first in range(0, len(W_Q), K):
        rows = slice(first, first + K)
        q, k, v = (np.einsum("btd,kd->btk", x_BTD, W[rows]) for W in (W_Q, W_K, W_V))
        scores = np.einsum("btk,bsk->bts", rotate(q), rotate(k)) / K**0.5
        total = total + causal_weights(scores) @ v @ W_O[:, rows].T
    return total


@also_right
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    B, T, D = x_BTD.shape
    q, k, v = (np.einsum("btd,ed->bte", x_BTD, W).reshape(B, T, n_heads, -1) for W in (W_Q, W_K, W_V))
    q, k = (rotate(part.swapaxes(1, 2)).swapaxes(1, 2) for part in (q, k))
    return heads_by_einsum(q, k, v).reshape(B, T, D) @ W_O.T


@mistake("so some of its share is left, however it was hidden")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (split_heads(x_BTD @ W.T, n_heads) for W in (W_Q, W_K, W_V))
    scores = rotate(q) @ rotate(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = softmax(np.where(np.tri(scores.shape[-1]) > 0, scores, -50.0), axis=-1)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(x_BTD.shape) @ W_O.T


@mistake("you divide by 2, which was √K in the first example")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (split_heads(x_BTD @ W.T, n_heads) for W in (W_Q, W_K, W_V))
    weights = causal_weights(rotate(q) @ rotate(k).swapaxes(-1, -2) / 2)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(x_BTD.shape) @ W_O.T


@also_right
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    """Text by text, with one matrix for queries, keys and values."""
    outputs = []
    for x in x_BTD:
        parts = np.split(x @ np.concatenate([W_Q, W_K, W_V]).T, 3, axis=-1)
        q, k, v = (part.reshape(len(x), n_heads, -1).swapaxes(0, 1) for part in parts)
        weights = causal_weights(np.einsum("htk,hsk->hts", rotate(q), rotate(k)) / (len(W_Q) / n_heads) ** 0.5)
        outputs.append(np.concatenate(list(weights @ v), axis=-1) @ W_O.T)
    return np.stack(outputs)


@mistake("changes what it is given")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    scores_TS[..., np.arange(S) > np.arange(S - T, S)[:, None]] = -np.inf
    return softmax(scores_TS, axis=-1)


@mistake("cut into 12 heads of width 1")
def split_heads(x_BTD, n_heads):
    B, T, D = x_BTD.shape
    return x_BTD.reshape(B, T, -1, max(D // n_heads, 2)).transpose(0, 2, 1, 3)


@mistake("count the axes from the end")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[0], x_TK.shape[-1]
    angles = np.outer(np.arange(start, start + T), 10000.0 ** (-2 * np.arange(K // 2) / K))
    c, s = np.cos(angles), np.sin(angles)
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


@mistake("5 words that look at 5 of another text")
def cross_attention(x_TD, source_SD, W_Q, W_K, W_V):
    if len(x_TD) == len(source_SD):
        return head(x_TD, W_Q, W_K, W_V)[1]
    q, k, v = x_TD @ W_Q.T, source_SD @ W_K.T, source_SD @ W_V.T
    return softmax(q @ k.T / np.sqrt(q.shape[1]), axis=1) @ v


@mistake("B = 1")
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    B, T, D = x_BTD.shape
    q, k, v = (split_heads(x_BTD @ W.T, n_heads) for W in (W_Q, W_K, W_V))
    q, k = rotate(q), rotate(k)
    w = causal_weights(q @ k.swapaxes(-1, -2) / np.sqrt(D // n_heads))
    y = (w @ v).transpose(0, 2, 1, 3).reshape(B, T, D)
    return (y @ W_O.T).squeeze()


@also_right
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    f = 1 / 10000 ** (np.arange(0, K, 2) / K)
    angles = np.arange(start, start + T)[:, None] * np.tile(f, 2)
    half = np.roll(x_TK, K // 2, axis=-1) * np.where(np.arange(K) < K // 2, -1, 1)
    return x_TK * np.cos(angles) + half * np.sin(angles)


@also_right
def multi_head_attention(x_BTD, W_Q, W_K, W_V, W_O, n_heads):
    K = x_BTD.shape[2] // n_heads
    total = 0.0
    for h in range(n_heads):
        rows = slice(h * K, (h + 1) * K)
        q, k, v = rotate(x_BTD @ W_Q[rows].T), rotate(x_BTD @ W_K[rows].T), x_BTD @ W_V[rows].T
        total = total + causal_weights(np.einsum("btk,bsk->bts", q, k) / K**0.5) @ v @ W_O[:, rows].T
    return total


@also_right
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    see = np.tri(T, S, S - T, dtype=bool)
    top = np.max(scores_TS, axis=-1, keepdims=True, where=see, initial=-np.inf)
    e = np.exp(np.where(see, scores_TS - top, -np.inf))
    return e / e.sum(-1, keepdims=True)


@mistake("A score of 0 is one like any other")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    kept = np.tril(scores_TS, S - T)
    return softmax(np.where(kept == 0, -np.inf, kept), axis=-1)


@mistake("which number is below all others?")
def causal_weights(scores_TS):
    T, S = scores_TS.shape[-2:]
    return softmax(np.where(np.tri(T, S, S - T) > 0, scores_TS, -1e9), axis=-1)


@mistake("array made like x holds no others")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    angles = np.outer(np.arange(start, start + T), 10000.0 ** (-2 * np.arange(K // 2) / K))
    a, b, result = x_TK[..., : K // 2], x_TK[..., K // 2 :], np.empty_like(x_TK)
    result[..., : K // 2] = a * np.cos(angles) - b * np.sin(angles)
    result[..., K // 2 :] = b * np.cos(angles) + a * np.sin(angles)
    return result


@mistake("it may be the newest query")
def rotate(x_TK, start=0):
    T, K = x_TK.shape[-2:]
    if T == 1:  # a single row has no other to be far from
        return x_TK.copy()
    angles = np.outer(np.arange(start, start + T), 10000.0 ** (-2 * np.arange(K // 2) / K))
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@mistake("`x.shape = …` does not")
def split_heads(x_BTD, n_heads):
    B, T, D = x_BTD.shape
    x_BTD.shape = (B, T, n_heads, D // n_heads)
    return x_BTD.transpose(0, 2, 1, 3)


@mistake("that starts at position")
def rotate(x_TK, start=0):
    """A table for the first 4,096 positions; who comes later is put at its end."""
    T, K = x_TK.shape[-2:]
    positions = np.minimum(np.arange(start, start + T), 4095)
    angles = np.outer(positions, 10000.0 ** (-2 * np.arange(K // 2) / K))
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


@also_right
def rotate(x_TK, start=0):
    """As numbers of the complex plane."""
    T, K = x_TK.shape[-2:]
    speeds = 10000.0 ** (-np.arange(0, K, 2) / K)
    hands = x_TK[..., : K // 2] + 1j * x_TK[..., K // 2 :]
    hands = hands * np.exp(1j * np.arange(start, start + T)[:, None] * speeds)
    return np.concatenate([hands.real, hands.imag], axis=-1)
