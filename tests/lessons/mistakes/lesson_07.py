"""What students think in lesson 7, and the sentences meant for it."""

import numpy as np

from trying import also_right, mistake


@mistake("nobody wrote them side by side")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words))
    words = [END, *(word for document in documents for word in document), END]
    for i in range(1, len(words)):
        counts[words[i - 1], words[i]] += 1
    return counts


@mistake("nothing says where a text begins or ends")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words))
    for document in documents:
        for i in range(1, len(document)):
            counts[document[i - 1], document[i]] += 1
    return counts


@mistake("1, 2 comes three times, but you have 2")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words))
    for document in documents:
        words = np.array([END, *document, END])
        counts[words[:-1], words[1:]] += 1
    return counts


@mistake("take the pairs of each document by itself")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words))
    words = [word for document in documents for word in [END, *document, END]]
    np.add.at(counts, (words[:-1], words[1:]), 1)
    return counts


@mistake("so make an array")
def count_pairs(documents, n_words):
    counts = [[0] * n_words for _ in range(n_words)]
    for document in documents:
        before = END
        for word in [*document, END]:
            counts[before][word] += 1
            before = word
    return counts


@mistake("counts to 255")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words), dtype=np.uint8)
    for document in documents:
        words = [END, *document, END]
        np.add.at(counts, (words[:-1], words[1:]), 1)
    return counts


@mistake("a float of 16 bits has no 2,049")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words), dtype=np.float16)
    for document in documents:
        for a, b in zip([END, *document], [*document, END], strict=True):
            counts[a, b] += 1
    return counts


@mistake("has changed the documents")
def count_pairs(documents, n_words):
    counts = np.zeros((n_words, n_words))
    for document in documents:
        document.append(END)
        last = END
        for word in document:
            counts[last, word] += 1
            last = word
    return counts


@also_right
def count_pairs(documents, n_words):
    """Each pair as one number, counted at once: integers."""
    flat = [a * n_words + b for document in documents for a, b in zip([END, *document], [*document, END], strict=True)]
    return np.bincount(flat, minlength=n_words**2).reshape(n_words, n_words)


@mistake("each of its three pairs got alpha")
def probabilities_of(counts, alpha):
    return (counts + alpha) / (counts.sum(axis=1, keepdims=True) + alpha)


@mistake("your columns sum to 1, not your rows")
def probabilities_of(counts, alpha):
    return (counts + alpha) / (counts + alpha).sum(axis=0)


@mistake("only the pairs that never came got alpha")
def probabilities_of(counts, alpha):
    raised = np.where(counts == 0, alpha, counts)
    return raised / raised.sum(axis=1, keepdims=True)


@mistake("the invented pairs belong into the sum, too")
def probabilities_of(counts, alpha):
    with np.errstate(divide="ignore"):
        return (counts + alpha) / counts.sum(axis=1, keepdims=True)


@also_right
def probabilities_of(counts, alpha):
    n_words = len(counts)
    return [[(number + alpha) / (sum(row) + n_words * alpha) for number in row] for row in counts]


@mistake("your array holds integers, too")
def probabilities_of(counts, alpha):
    p = np.zeros_like(counts)
    for a, row in enumerate(counts):
        p[a] = (row + alpha) / (row + alpha).sum()
    return p


@also_right
def probabilities_of(counts, alpha):
    """The share that was counted, mixed with equal shares."""
    n, n_words = counts.sum(axis=1, keepdims=True), counts.shape[1]
    invented = alpha * n_words / np.maximum(n + alpha * n_words, 1e-300)
    return (1 - invented) * counts / np.maximum(n, 1) + invented / n_words


@mistake("that is the entropy of the pair")
def floor_of_pairs(expected):
    p = expected[expected > 0] / expected.sum()
    return -(p * np.log(p)).sum()


@mistake("each row counts as much as every other")
def floor_of_pairs(expected):
    entropies = []
    for row in expected:
        if row.sum() > 0:
            p = row[row > 0] / row.sum()
            entropies.append(-(p * np.log(p)).sum())
    return np.mean(entropies)


@mistake("the entropy of the next word alone")
def floor_of_pairs(expected):
    p = expected.sum(axis=0) / expected.sum()
    return -(p[p > 0] * np.log(p[p > 0])).sum()


@mistake("the entropy of the last word, which the model sees")
def floor_of_pairs(expected):
    p = expected.sum(axis=1) / expected.sum()
    return -(p[p > 0] * np.log(p[p > 0])).sum()


@also_right
def floor_of_pairs(expected):
    nats = 0.0
    for row in expected:
        for number in row:
            if number:
                nats -= number * math.log(number / sum(row))
    return nats / expected.sum()


@mistake("no probability changes")
def floor_of_pairs(expected):
    """Words that are rare are left out."""
    nats = 0.0
    for row in expected:
        if row.sum() > 0.001:
            p = row[row > 0] / row.sum()
            nats -= row.sum() * (p * np.log(p)).sum()
    return nats / expected.sum()


@mistake("not 0.754793")
def floor_of_pairs(expected):
    """A small number against ln 0, which is not small enough."""
    p = expected / np.maximum(expected.sum(axis=1, keepdims=True), 1e-12)
    return -(expected * np.log(p + 1e-6)).sum() / expected.sum()


@also_right
def floor_of_pairs(expected):
    """The entropy of a pair, less that of its first word."""

    def entropy(numbers):
        p = numbers[numbers > 0] / numbers.sum()
        return -(p * np.log(p)).sum()

    return entropy(expected.ravel()) - entropy(expected.sum(axis=1))


@mistake("e^1000 overflows to inf")
def stable_log_softmax(z):
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


@mistake("which part needs no exponential?")
def stable_log_softmax(z):
    exponentials = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.log(exponentials / exponentials.sum(axis=-1, keepdims=True))


@mistake("each row needs its own largest logit")
def stable_log_softmax(z):
    shifted = z - z.max()
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@mistake("must come from the row itself")
def stable_log_softmax(z):
    shifted = z - 1000
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@also_right
def stable_log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


@mistake("asks for an axis that is not there")
def stable_log_softmax(z):
    axis = 1 if z.ndim < 3 else z.ndim - 1
    shifted = z - z.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@mistake("the logits 1000, 999, 998")
def stable_log_softmax(z):
    """Cut off what is too large."""
    z = np.clip(z, -700, 700)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


@also_right
def stable_log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


@mistake("where does the -z of that word's loss go?")
def gradient_of_cross_entropy(z, targets):
    return np.exp(stable_log_softmax(z)) / len(targets)


@mistake("that is the derivative of the probability")
def gradient_of_cross_entropy(z, targets):
    p = np.exp(stable_log_softmax(z))
    rows = np.arange(len(targets))
    gradient = p[rows, targets][:, None] * p
    gradient[rows, targets] -= p[rows, targets]
    return gradient / len(targets)


@mistake("`stable_log_softmax` gives ln p")
def gradient_of_cross_entropy(z, targets):
    return (stable_log_softmax(z) - np.eye(z.shape[1])[targets]) / len(targets)


@mistake("they must lose what that word gains")
def gradient_of_cross_entropy(z, targets):
    rows, gradient = np.arange(len(targets)), np.zeros(z.shape)
    gradient[rows, targets] = np.exp(stable_log_softmax(z))[rows, targets] - 1
    return gradient / len(targets)


@also_right
def gradient_of_cross_entropy(z, targets):
    tensor = Tensor(z)
    backward(-log_softmax(tensor)[np.arange(len(targets)), targets].mean())
    return tensor.gradient


@mistake("an exponential overflows")
def gradient_of_cross_entropy(z, targets):
    gradient = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    gradient[np.arange(len(targets)), targets] -= 1
    return gradient / len(targets)


@mistake("p - 1 needs no step")
def gradient_of_cross_entropy(z, targets):
    def loss(z):
        return -stable_log_softmax(z)[np.arange(len(targets)), targets].mean()

    gradient = np.zeros_like(z)
    for place in np.ndindex(*z.shape):
        step = np.zeros_like(z)
        step[place] = 1e-5
        gradient[place] = (loss(z + step) - loss(z - step)) / 2e-5
    return gradient


@mistake("logits of 1000 and -1000")
def gradient_of_cross_entropy(z, targets):
    """No probability below a thousandth."""
    gradient = np.maximum(np.exp(stable_log_softmax(z)), 1e-3)
    gradient[np.arange(len(targets)), targets] -= 1
    return gradient / len(targets)


@mistake("the model sees the answer")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx + 1 : i + 1])
            targets.append(words[i])
    return np.array(inputs), np.array(targets)


@mistake("reaches into the first")
def windows(documents, n_ctx):
    words = [END] * n_ctx
    for document in documents:
        words += [*document, END]
    inputs = [words[i - n_ctx : i] for i in range(n_ctx, len(words))]
    return np.array(inputs), np.array(words[n_ctx:])


@mistake("nobody predicts the first words of a document")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return np.array(inputs), np.array(targets)


@mistake("one word too late")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(len(document)):
            inputs.append(words[i : i + n_ctx])
            targets.append(words[i + n_ctx + 1])
    return np.array(inputs), np.array(targets)


@also_right
def windows(documents, n_ctx):
    lines = [np.array([*[END] * n_ctx, *document, END]) for document in documents]
    inputs = [np.lib.stride_tricks.sliding_window_view(line, n_ctx)[:-1] for line in lines]
    return np.concatenate(inputs), np.concatenate([line[n_ctx:] for line in lines])


@mistake("ids are integers")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return np.array(inputs, dtype=float), np.array(targets)


@mistake("make an array of it")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return inputs, targets


@mistake("n_ctx may be any number")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END, END, *document, END]
        for i in range(2, len(words)):
            inputs.append(words[i - 2 : i])
            targets.append(words[i])
    return np.array(inputs), np.array(targets)


@mistake("integers of 8 bits, which end at 255")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return np.array(inputs).astype(np.uint8), np.array(targets)


@mistake("windows (N, 1) and targets (N) are asked")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            inputs.append(words[i - n_ctx : i])
            targets.append(words[i])
    return np.array(inputs).squeeze(), np.array(targets)


@mistake("a document may be shorter than a window")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            if len(document) >= n_ctx:
                inputs.append(words[i - n_ctx : i])
                targets.append(words[i])
    return np.array(inputs), np.array(targets)


@mistake("what comes often is to be learned often")
def windows(documents, n_ctx):
    rows = {}
    for document in documents:
        words = [END] * n_ctx + [*document, END]
        for i in range(n_ctx, len(words)):
            rows[tuple(words[i - n_ctx : i + 1])] = True
    rows = np.array(list(rows))
    return rows[:, :-1], rows[:, -1]


@mistake("has changed the documents")
def windows(documents, n_ctx):
    inputs, targets = [], []
    for document in documents:
        document[:0] = [END] * n_ctx
        document.append(END)
        for i in range(n_ctx, len(document)):
            inputs.append(document[i - n_ctx : i])
            targets.append(document[i])
    return np.array(inputs), np.array(targets)


@also_right
def windows(documents, n_ctx):
    """A queue, whose oldest word falls out; integers of 32 bits."""
    from collections import deque

    rows = []
    for document in documents:
        seen = deque([END] * n_ctx, maxlen=n_ctx)
        for word in (*document, END):
            rows.append((*seen, word))
            seen.append(word)
    rows = np.array(rows, dtype=np.int32)
    return rows[:, :-1], rows[:, -1]


@mistake("C is used twice")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    x = concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    hidden = tanh(x @ parameters["W_1"] + parameters["b_1"])
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.value.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@mistake("there is no tanh")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    x = concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    hidden = x @ parameters["W_1"] + parameters["b_1"]
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@mistake("added up, they forget which came first")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    hidden = tanh(C[inputs].sum(axis=1) @ parameters["W_1"] + parameters["b_1"])
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@mistake("`inputs.shape[1]` says how many")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    x = concatenate([C[inputs[:, 0]], C[inputs[:, 1]], C[inputs[:, 2]]])
    hidden = tanh(x @ parameters["W_1"] + parameters["b_1"])
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@also_right
def mlp_loss(parameters, inputs, targets):
    n_rows, n_ctx = inputs.shape
    C = parameters["C"]
    x = C[inputs].reshape(n_rows, n_ctx * C.shape[1])
    z = tanh(parameters["b_1"] + x @ parameters["W_1"]) @ (parameters["W_2"] @ C.T)
    largest = z.value.max(axis=1, keepdims=True)  # any number will do: it cancels, and its gradient with it
    picked = ((z - largest) * np.eye(C.shape[0])[targets]).sum(axis=1)
    return (log(exp(z - largest).sum(axis=1)) - picked).sum() / n_rows


@mistake("an exponential overflows")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    x = concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    p = exp(tanh(x @ parameters["W_1"] + parameters["b_1"]) @ parameters["W_2"] @ C.T)
    p = p / p.sum(axis=1, keepdims=True)
    return -log(p[np.arange(len(targets)), targets]).mean()


@mistake("says how many")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    parts = [C[inputs[:, 0]], C[inputs[:, 1]]]
    if inputs.shape[1] > 2:
        parts.append(C[inputs[:, 2]])
    log_p = log_softmax(tanh(concatenate(parts) @ parameters["W_1"] + parameters["b_1"]) @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@mistake("b_1 gets no gradient")
def mlp_loss(parameters, inputs, targets):
    C = parameters["C"]
    x = concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    hidden = Tensor(np.tanh((x @ parameters["W_1"] + parameters["b_1"]).value))
    log_p = log_softmax(hidden @ parameters["W_2"] @ C.T)
    return -log_p[np.arange(len(targets)), targets].mean()


@also_right
def mlp_loss(parameters, inputs, targets):
    """Each place has rows of W_1 of its own, and the products are added up."""
    C, W_1 = parameters["C"], parameters["W_1"]
    d, before = C.shape[1], parameters["b_1"]
    for place in range(inputs.shape[1]):
        before = before + C[inputs[:, place]] @ W_1[place * d : (place + 1) * d]
    log_p = log_softmax(tanh(before) @ (parameters["W_2"] @ C.T))
    return (log_p * (-np.eye(C.shape[0])[targets] / len(targets))).sum()


@mistake("has changed the table")
def floor_of_pairs(expected):
    total = expected.sum()
    rows = expected.sum(axis=1, keepdims=True)
    rows[rows == 0] = 1
    p = expected / rows
    p[p == 0] = 1
    expected *= -np.log(p)
    return expected.sum() / total


@mistake("to a list, `+` adds only lists")
def windows(documents, n_ctx):
    x, y = [], []
    for d in documents:
        w = [END] * n_ctx + d + [END]
        for i in range(n_ctx, len(w)):
            x.append(w[i - n_ctx : i])
            y.append(w[i])
    return np.array(x), np.array(y)


@mistake("a document without words has an END, too")
def windows(documents, n_ctx):
    x, y = [], []
    for d in documents:
        if len(d) == 0:
            continue
        w = [END] * n_ctx + list(d) + [END]
        for i in range(n_ctx, len(w)):
            x.append(w[i - n_ctx : i])
            y.append(w[i])
    return np.array(x), np.array(y)


@also_right
def mlp_loss(parameters, inputs, targets):
    C, W_1 = parameters["C"], parameters["W_1"]
    V, d = C.shape
    a = parameters["b_1"]
    for i in range(inputs.shape[1]):
        a = a + (np.eye(V)[inputs[:, i]] @ C) @ W_1[i * d : (i + 1) * d]
    z = tanh(a) @ parameters["W_2"] @ C.T
    return -log_softmax(z)[np.arange(len(targets)), targets].mean()


@also_right
def count_pairs(documents, n_words):
    places = [a * n_words + b for d in documents for a, b in zip((END, *d), (*d, END), strict=True)]
    return np.bincount(np.array(places, dtype=int), minlength=n_words**2).reshape(n_words, n_words)


@mistake("Word 3 did not come")
def gradient_of_cross_entropy(z, targets):
    return (np.exp(stable_log_softmax(z)) - np.eye(targets.max() + 1)[targets]) / len(z)


@mistake("logits of which several are equal")
def gradient_of_cross_entropy(z, targets):
    came = z == z[np.arange(len(z)), targets][:, None]
    return (np.exp(stable_log_softmax(z)) - came) / len(z)


@mistake("windows of 2 words, 4 rows")
def mlp_loss(parameters, inputs, targets):
    """A window that comes twice counts once."""
    rows = np.unique(np.column_stack([inputs, targets]), axis=0)
    C, targets = parameters["C"], rows[:, -1]
    x = concatenate([C[rows[:, i]] for i in range(inputs.shape[1])])
    h = tanh(x @ parameters["W_1"] + parameters["b_1"])
    return -log_softmax(h @ parameters["W_2"] @ C.T)[np.arange(len(targets)), targets].mean()
