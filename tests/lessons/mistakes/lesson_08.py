"""Lesson 8: what students think of memory that is not so."""

from trying import also_right, mistake

# ---- rnn_states ----


@mistake("never sees the newest word")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    before = np.zeros(x_TBD.shape[1:])
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(h_BH @ W_HH.T + before @ U_HD.T + b_H)
        before = x_TBD[t]
        states.append(h_BH)
    return states


@mistake("not between -1 and 1")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H
        states.append(h_BH)
    return states


@mistake("W has met the words")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    h_BH = Tensor(np.zeros((x_TBD.shape[1], U_HD.shape[1])))
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(x_TBD[t] @ W_HH.T + h_BH @ U_HD.T + b_H)
        states.append(h_BH)
    return states


@mistake("each state begins from zero")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    return [tanh(x_TBD[t] @ U_HD.T + b_H) for t in range(x_TBD.shape[0])]


@also_right
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    read = x_TBD @ U_HD.T + b_H
    states = [tanh(read[0])]
    while len(states) < x_TBD.shape[0]:
        states.append(tanh(read[len(states)] + states[-1] @ W_HH.T))
    return states


# ---- jacobian_through_time ----


@mistake("as many numbers as W has rows")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    h_BH, states = Tensor(np.zeros(x_TBD.shape[1:])), []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states


@mistake("W gets no gradient")
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    """The words are on the tape, the weights are not."""
    W_HH, h_BH, states = W_HH.value, Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0]))), []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states


@also_right
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    """The first word apart: before it there is nothing to multiply."""
    states = []
    for t in range(x_TBD.shape[0]):
        total = x_TBD[t] @ U_HD.T + b_H
        states.append(tanh(total + states[-1] @ W_HH.T if states else total))
    return states


@mistake("in the wrong order")
def jacobian_through_time(W_HH, h_nH):
    jacobian_HH = np.eye(len(W_HH))
    for h_H in h_nH:
        jacobian_HH = jacobian_HH @ ((1 - h_H**2)[:, None] * W_HH)
    return jacobian_HH


@mistake("this is a power of W")
def jacobian_through_time(W_HH, h_nH):
    return np.linalg.matrix_power(W_HH, len(h_nH))


@mistake("on the wrong side of W")
def jacobian_through_time(W_HH, h_nH):
    jacobian_HH = np.eye(len(W_HH))
    for h_H in h_nH:
        jacobian_HH = W_HH @ np.diag(1 - h_H**2) @ jacobian_HH
    return jacobian_HH


@mistake("h is tanh already")
def jacobian_through_time(W_HH, h_nH):
    jacobian_HH = np.eye(len(W_HH))
    for h_H in h_nH:
        jacobian_HH = (1 - np.tanh(h_H) ** 2)[:, None] * W_HH @ jacobian_HH
    return jacobian_HH


@also_right
def jacobian_through_time(W_HH, h_nH):
    rows = np.eye(len(W_HH))
    for h_H in h_nH[::-1]:  # from the end, as the walk back goes
        rows = rows @ np.diag(1 - h_H**2) @ W_HH
    return rows


# ---- truncated_states ----


@mistake("without a step the Jacobian is the identity")
def jacobian_through_time(W_HH, h_nH):
    jacobian_HH = (1 - h_nH[0] ** 2)[:, None] * W_HH
    for h_H in h_nH[1:]:
        jacobian_HH = (1 - h_H**2)[:, None] * W_HH @ jacobian_HH
    return jacobian_HH


@mistake("`*=` works in place")
def jacobian_through_time(W_HH, h_nH):
    jacobian_HH = np.eye(len(W_HH))
    for h_H in h_nH:
        W_HH *= (1 - h_H**2)[:, None]
        jacobian_HH = W_HH @ jacobian_HH
    return jacobian_HH


@also_right
def jacobian_through_time(W_HH, h_nH):
    """From the last state back."""
    jacobian_HH = np.identity(len(W_HH))
    for h_H in h_nH[::-1]:
        jacobian_HH = np.einsum("ij,j,jk->ik", jacobian_HH, 1 - h_H**2, W_HH)
    return jacobian_HH


@mistake("you cut the value, too")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0]))) if t % k == 0 else states[-1]
        states.append(tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H))
    return states


@mistake("nothing is cut")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    return rnn_states(x_TBD, W_HH, U_HD, b_H)


@mistake("is cut off from W as well")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    states = []
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        if t % k == k - 1:
            h_BH = Tensor(h_BH.value)
        states.append(h_BH)
    return states


@mistake("you cut after every word")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    h_BH = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0])))
    states = []
    for t in range(x_TBD.shape[0]):
        h_BH = tanh(Tensor(h_BH.value) @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states


@also_right
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    """Piece by piece: the old state enters a piece as a part of the first sum, a plain number."""
    states = []
    for start in range(0, x_TBD.shape[0], k):
        h_BH = states[-1].value if states else np.zeros((x_TBD.shape[1], W_HH.shape[0]))
        for t in range(start, min(start + k, x_TBD.shape[0])):
            h_BH = tanh(x_TBD[t] @ U_HD.T + b_H + h_BH @ W_HH.T)
            states.append(h_BH)
    return states


# ---- lstm_step ----


@mistake("should end at word 0, but yours ends at word 2")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    """Pieces are counted from the end."""
    h_BH, states, T = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0]))), [], x_TBD.shape[0]
    for t in range(T):
        if (T - t) % k == 0:
            h_BH = Tensor(h_BH.value)
        h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
        states.append(h_BH)
    return states


@mistake("after 8 words there are 8 states, but you have 6")
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    """Whole pieces alone."""
    h_BH, states = Tensor(np.zeros((x_TBD.shape[1], W_HH.shape[0]))), []
    for start in range(0, x_TBD.shape[0] - k + 1, k):
        h_BH = Tensor(h_BH.value)
        for t in range(start, start + k):
            h_BH = tanh(h_BH @ W_HH.T + x_TBD[t] @ U_HD.T + b_H)
            states.append(h_BH)
    return states


@mistake("your gates are between -1 and 1")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, for_f, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    c_BH = tanh(for_f) * c_BH + tanh(for_i) * tanh(for_proposal)
    return tanh(for_o) * tanh(c_BH), c_BH


@mistake("the old cells are overwritten")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, _, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    c_BH = sigmoid(for_i) * tanh(for_proposal)
    return sigmoid(for_o) * tanh(c_BH), c_BH


@mistake("the cells are shown whole")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, for_f, for_proposal, _ = (sums[:, n * H : (n + 1) * H] for n in range(4))
    c_BH = sigmoid(for_f) * c_BH + sigmoid(for_i) * tanh(for_proposal)
    return tanh(c_BH), c_BH


@mistake("what the forget gate lets go, you fill up")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    _, for_f, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    keep = sigmoid(for_f)
    c_BH = keep * c_BH + (1.0 - keep) * tanh(for_proposal)
    return sigmoid(for_o) * tanh(c_BH), c_BH


# ---- square_features ----


@mistake("has changed the h or the cells")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, for_f, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    cells = sigmoid(for_f) * c_BH + sigmoid(for_i) * tanh(for_proposal)
    c_BH.value = cells.value
    return sigmoid(for_o) * tanh(cells), cells


@mistake("loses a part of the gradient")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    for_i, for_f, for_proposal, for_o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    cells = sigmoid(for_f) * c_BH.value + sigmoid(for_i) * tanh(for_proposal)
    return sigmoid(for_o) * tanh(cells), cells


@also_right
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    """All gates at once; a list."""
    H = h_BH.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    gates = sigmoid(sums)
    cells = c_BH * gates[:, H : 2 * H] + tanh(sums[:, 2 * H : 3 * H]) * gates[:, :H]
    return [tanh(cells) * gates[:, 3 * H :], cells]


@mistake("the mixed term counts once")
def square_features(x):
    return [x[i] * x[j] for i in range(len(x)) for j in range(i, len(x))]


@mistake("only the squares")
def square_features(x):
    return x**2


@mistake("the mixed term counts four times")
def square_features(x):
    return [x[i] * x[j] * (1 if i == j else 2) for i in range(len(x)) for j in range(i, len(x))]


@mistake("one list")
def square_features(x):
    return np.outer(x, x)


@also_right
def square_features(x):
    return [x[i] * x[j] * (1 if i == j else 2**0.5) for i in range(len(x)) for j in range(i, len(x))]


# ---- attention_by_features ----


@mistake("it is NaN")
def square_features(x):
    """The direction and the length apart: zero has no direction."""
    length = np.linalg.norm(x)
    return np.outer(x, x / length).ravel() * length


@mistake("lost their sign")
def square_features(x):
    i, j = np.triu_indices(len(x), 1)
    return np.concatenate([x**2, np.sqrt(2 * (x[i] * x[j]) ** 2)])


@also_right
def square_features(x):
    """A list; squares of sums and differences give the mixed terms."""
    mixed = [2**0.5 * ((a + b) ** 2 - (a - b) ** 2) / 4 for n, a in enumerate(x) for b in x[:n]]
    return [a * a for a in x] + mixed


@mistake("the weights of a position don't sum to 1")
def attention_by_features(q_TF, k_TF, v_TV):
    return np.tril(q_TF @ k_TF.T) @ v_TV


@mistake("there is a softmax on top")
def attention_by_features(q_TF, k_TF, v_TV):
    weights = np.tril(np.exp(q_TF @ k_TF.T))
    return weights @ v_TV / weights.sum(axis=1, keepdims=True)


@mistake("the future has taken its share")
def attention_by_features(q_TF, k_TF, v_TV):
    products = q_TF @ k_TF.T
    return np.tril(products / products.sum(axis=1, keepdims=True)) @ v_TV


@mistake("looks ahead")
def attention_by_features(q_TF, k_TF, v_TV):
    products = q_TF @ k_TF.T
    return products @ v_TV / products.sum(axis=1, keepdims=True)


@also_right
def attention_by_features(q_TF, k_TF, v_TV):
    outputs = []
    for t in range(len(q_TF)):
        weights = np.array([q_TF[t] @ k_TF[s] for s in range(t + 1)])
        outputs.append(weights / weights.sum() @ v_TV[: t + 1])
    return outputs


# ---- linear_attention_recurrence ----


@mistake("the sum of their *sizes*")
def attention_by_features(q_TF, k_TF, v_TV):
    products_TT = np.tril(q_TF @ k_TF.T)
    return products_TT @ v_TV / np.abs(products_TT).sum(axis=1, keepdims=True)


@mistake("you make every negative weight 0")
def attention_by_features(q_TF, k_TF, v_TV):
    products_TT = np.maximum(np.tril(q_TF @ k_TF.T), 0)
    return products_TT @ v_TV / products_TT.sum(axis=1, keepdims=True)


@mistake("you keep it above 0")
def attention_by_features(q_TF, k_TF, v_TV):
    products_TT = np.tril(q_TF @ k_TF.T)
    return products_TT @ v_TV / np.maximum(products_TT.sum(axis=1, keepdims=True), 1e-6)


@mistake("the outputs of 5 positions")
def attention_by_features(q_TF, k_TF, v_TV):
    """More in the denominator than rounding asks for."""
    products_TT = np.tril(q_TF @ k_TF.T)
    return products_TT @ v_TV / (products_TT.sum(axis=1, keepdims=True) + 1e-3)


@also_right
def attention_by_features(q_TF, k_TF, v_TV):
    """With the number that equation 38 adds to the denominator."""
    products_TT = np.tril(q_TF @ k_TF.T)
    return products_TT @ v_TV / (products_TT.sum(axis=1, keepdims=True) + 1e-6)


@mistake("never sees itself")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        outputs.append(q_F @ S_FV / max(q_F @ d_F, 1e-9))
        S_FV = S_FV + np.outer(k_F, v_V)
        d_F = d_F + k_F
    return np.array(outputs), S_FV, d_F


@mistake("you divide by the newest key's weight alone")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV = S_FV + np.outer(k_F, v_V)
        outputs.append(q_F @ S_FV / (q_F @ k_F))
    return np.array(outputs), S_FV, k_TF[-1]


@mistake("the state is the newest word's alone")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV, d_F = np.outer(k_F, v_V), k_F
        outputs.append(q_F @ S_FV / (q_F @ d_F))
    return np.array(outputs), S_FV, d_F


@mistake("each call begins from nothing")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    return attention_by_features(q_TF, k_TF, v_TV), k_TF.T @ v_TV, k_TF.sum(axis=0)


@also_right
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    """All states at once, as running sums."""
    states = S_FV + np.cumsum(np.einsum("tf,tv->tfv", k_TF, v_TV), axis=0)
    sums = d_F + np.cumsum(k_TF, axis=0)
    outputs = np.einsum("tf,tfv->tv", q_TF, states) / np.einsum("tf,tf->t", q_TF, sums)[:, None]
    return outputs, states[-1], sums[-1]


@also_right
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    """All pairs at once, and the old state beside them: how a chunk is computed in training."""
    products = np.tril(q_TF @ k_TF.T)
    above = products @ v_TV + q_TF @ S_FV
    below = products.sum(axis=1) + q_TF @ d_F
    return above / below[:, None], S_FV + k_TF.T @ v_TV, d_F + k_TF.sum(axis=0)


@mistake("with its sign")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV, d_F = S_FV + np.outer(k_F, v_V), d_F + k_F
        outputs.append(q_F @ S_FV / abs(q_F @ d_F))
    return np.array(outputs), S_FV, d_F


@mistake("the outputs of a text read in two pieces")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    """Takes up S, but begins d anew."""
    outputs, d_F = [], 0 * d_F
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV, d_F = S_FV + np.outer(k_F, v_V), d_F + k_F
        outputs.append(q_F @ S_FV / (q_F @ d_F))
    return np.array(outputs), S_FV, d_F


@also_right
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    """With the number that equation 38 adds to the denominator."""
    outputs = []
    for q_F, k_F, v_V in zip(q_TF, k_TF, v_TV, strict=True):
        S_FV, d_F = S_FV + np.outer(k_F, v_V), d_F + k_F
        outputs.append(q_F @ S_FV / (q_F @ d_F + 1e-6))
    return np.array(outputs), S_FV, d_F


@mistake("All four sums have as many numbers as h")
def lstm_step(x_BD, h_BH, c_BH, W_x, W_h, b):
    H = x_BD.shape[1]
    sums = x_BD @ W_x.T + h_BH @ W_h.T + b
    i, f, p, o = (sums[:, n * H : (n + 1) * H] for n in range(4))
    c = sigmoid(f) * c_BH + sigmoid(i) * tanh(p)
    return sigmoid(o) * tanh(c), c


@mistake("has changed the x")
def square_features(x):
    f = np.outer(x, x).ravel()
    x *= x
    return f


@mistake("has changed the q, k or v")
def attention_by_features(q_TF, k_TF, v_TV):
    w = np.tril(q_TF @ k_TF.T)
    v_TV[...] = w / w.sum(axis=1, keepdims=True) @ v_TV
    return v_TV


@mistake("an output as many numbers as a value")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    y = np.zeros_like(q_TF)
    for t in range(len(q_TF)):
        S_FV = S_FV + np.outer(k_TF[t], v_TV[t])
        d_F = d_F + k_TF[t]
        y[t] = q_TF[t] @ S_FV / (q_TF[t] @ d_F)
    return y, S_FV, d_F


@also_right
def truncated_states(x_TBD, W_HH, U_HD, b_H, k):
    on, states = Tensor(np.zeros((x_TBD.shape[1], len(W_HH.value)))), []
    for t in range(x_TBD.shape[0]):
        states.append(tanh(on @ W_HH.T + x_TBD[t] @ U_HD.T + b_H))
        on = Tensor(states[-1].value) if (t + 1) % k == 0 else states[-1]
    return states


@also_right
def rnn_states(x_TBD, W_HH, U_HD, b_H):
    a = x_TBD @ U_HD.T + b_H
    h, states = Tensor(np.zeros((a.shape[1], a.shape[2]))), []
    for t in range(a.shape[0]):
        h = tanh((W_HH @ h.T).T + a[t])
        states.append(h)
    return states


@mistake("for each of the 4 numbers")
def jacobian_through_time(W_HH, h_nH):
    result = np.eye(len(h_nH))
    for h in h_nH:
        result = (1 - h**2)[:, None] * W_HH @ result
    return result


@mistake("an array of integers would cut it off")
def square_features(x):
    a, b = np.triu_indices(len(x))
    result = np.empty(len(a), dtype=x.dtype)
    result[:] = x[a] * x[b] * np.where(a == b, 1, 2**0.5)
    return result


@mistake("an array made like v holds no others")
def linear_attention_recurrence(q_TF, k_TF, v_TV, S_FV, d_F):
    y = np.zeros_like(v_TV)
    for t in range(len(q_TF)):
        S_FV, d_F = S_FV + np.outer(k_TF[t], v_TV[t]), d_F + k_TF[t]
        y[t] = q_TF[t] @ S_FV / (q_TF[t] @ d_F)
    return y, S_FV, d_F


@mistake("The sums of the rows of weights")
def attention_by_features(q_TF, k_TF, v_TV):
    weights = np.tril(q_TF @ k_TF.T)
    return weights @ v_TV / weights.sum(axis=1)


@mistake("the Jacobian of")
def jacobian_through_time(W_HH, h_nH):
    """States near 1 are taken for flat."""
    result = np.eye(len(W_HH))
    for h in h_nH:
        result = np.where(np.abs(h) < 0.99, 1 - h**2, 0.0)[:, None] * W_HH @ result
    return result
