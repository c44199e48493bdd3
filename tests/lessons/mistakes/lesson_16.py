"""Lesson 16: what students think of thoughts, votes and prices that is not so."""

from trying import also_right, mistake

# ---- way ----


@mistake("you follow the first arrow again and again")
def way(arrows_N, start, n_steps):
    return [int(arrows_N[start]) for _ in range(n_steps)]


@mistake("you begin with the name in the question")
def way(arrows_N, start, n_steps):
    names = [start]
    for _ in range(n_steps - 1):
        names.append(int(arrows_N[names[-1]]))
    return names


@mistake("not the last one alone")
def way(arrows_N, start, n_steps):
    for _ in range(n_steps):
        start = arrows_N[start]
    return int(start)


@mistake("you follow the arrows backwards")
def way(arrows_N, start, n_steps):
    names = [start]
    for _ in range(n_steps):
        names.append(list(arrows_N).index(names[-1]))
    return names[1:]


@also_right
def way(arrows_N, start, n_steps):
    return [] if n_steps == 0 else [arrows_N[start], *way(arrows_N, arrows_N[start], n_steps - 1)]


# ---- layers_needed ----


@mistake("one arrow more with each layer")
def layers_needed(n_steps):
    return n_steps - 1


@mistake("so many layers as arrows")
def layers_needed(n_steps):
    return n_steps


@mistake("you count a layer for the first arrow")
def layers_needed(n_steps):
    return n_steps.bit_length()


@mistake("nearly: the logarithm")
def layers_needed(n_steps):
    return math.ceil(math.log2(n_steps))


@mistake("after so many layers the longest way has only")
def layers_needed(n_steps):
    return int(math.log2(n_steps))


@also_right
def layers_needed(n_steps):
    return 0 if n_steps == 1 else 1 + layers_needed((n_steps + 1) // 2)


# ---- answer_log_p ----


@mistake("the mean of ln p(answer | thought)")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    return (np.exp(log_p_thoughts_Z) * log_p_answer_Z).sum()


@mistake("its logarithm is asked for")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    return np.exp(log_p_thoughts_Z + log_p_answer_Z).sum()


@mistake("all thoughts count alike")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    return np.log(np.exp(log_p_answer_Z).mean())


@mistake("the likeliest thought alone is not all")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    return (log_p_thoughts_Z + log_p_answer_Z).max()


@mistake("right for short thoughts")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    return np.log((np.exp(log_p_thoughts_Z) * np.exp(log_p_answer_Z)).sum())


@mistake("your function changes what it is given")
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    log_p_answer_Z += log_p_thoughts_Z
    return np.logaddexp.reduce(log_p_answer_Z)


@also_right
def answer_log_p(log_p_thoughts_Z, log_p_answer_Z):
    total = -math.inf
    for a, b in zip(log_p_thoughts_Z, log_p_answer_Z, strict=True):
        total = np.logaddexp(total, a + b)
    return total


# ---- sampled_log_p ----


@mistake("the mean of the logarithms")
def sampled_log_p(log_p_answer_S):
    return log_p_answer_S.mean()


@mistake("you add the nine probabilities")
def sampled_log_p(log_p_answer_S):
    return np.logaddexp.reduce(log_p_answer_S)


@mistake("right for short answers")
def sampled_log_p(log_p_answer_S):
    return np.log(np.exp(log_p_answer_S).mean())


@mistake("the best of the thoughts")
def sampled_log_p(log_p_answer_S):
    return log_p_answer_S.max()


@also_right
def sampled_log_p(log_p_answer_S):
    largest = log_p_answer_S.max()
    return largest + np.log(np.exp(log_p_answer_S - largest).mean())


# ---- any_right ----


@mistake("you take the mean of the questions first")
def any_right(p_right_Q, n):
    return 1 - (1 - p_right_Q.mean()) ** n


@mistake("all n answers are right")
def any_right(p_right_Q, n):
    return (p_right_Q**n).mean()


@mistake("do not add up")
def any_right(p_right_Q, n):
    return n * p_right_Q.mean()


@also_right
def any_right(p_right_Q, n):
    return sum(p * sum((1 - p) ** k for k in range(n)) for p in p_right_Q) / len(p_right_Q)


# ---- majority ----


@mistake("you give every tie to answer 0")
def majority(p_A, n):
    total = 0.0
    for answers in itertools.product(range(len(p_A)), repeat=n):
        votes = np.bincount(answers, minlength=len(p_A))
        total += np.prod(p_A[list(answers)]) * (votes.argmax() == 0)
    return total


@mistake("most votes are not more than half")
def majority(p_A, n):
    return sum(math.comb(n, k) * p_A[0] ** k * (1 - p_A[0]) ** (n - k) for k in range(n // 2 + 1, n + 1))


@mistake("how often one answer is right")
def majority(p_A, n):
    return p_A[0]


@also_right
def majority(p_A, n):
    """One vote after the other: how likely is each count of votes?"""
    counts = {(0,) * len(p_A): 1.0}
    for _ in range(n):
        later = {}
        for votes, p in counts.items():
            for answer, share in enumerate(p_A):
                key = tuple(v + (i == answer) for i, v in enumerate(votes))
                later[key] = later.get(key, 0.0) + p * share
        counts = later
    return sum(p / votes.count(votes[0]) for votes, p in counts.items() if votes[0] == max(votes))


# ---- best_length ----


@mistake("the most often right answer is not the one that earns most")
def best_length(p_right_K, price):
    return int(np.argmax(p_right_K))


@mistake("of lengths that earn the same, the smallest")
def best_length(p_right_K, price):
    return max(range(len(p_right_K)), key=lambda k: (p_right_K[k] - price * k, k))


@mistake("steps are counted from 0")
def best_length(p_right_K, price):
    return 1 + int(np.argmax([p - price * k for k, p in enumerate(p_right_K)]))


@also_right
def best_length(p_right_K, price):
    return max(range(len(p_right_K)), key=lambda k: p_right_K[k] - price * k)


# ---- thinks ----


@mistake("your policy forgets what it did before")
def thinks(p_before, gain, length, price, beta):
    return 1 / (1 + math.exp(-(gain - price * length) / beta))


@mistake("the price is that of one step")
def thinks(p_before, gain, length, price, beta):
    a, b = p_before * math.exp((gain - price) / beta), 1 - p_before
    return a / (a + b)


@mistake("divided by beta, not multiplied")
def thinks(p_before, gain, length, price, beta):
    a, b = p_before * math.exp((gain - price * length) * beta), 1 - p_before
    return a / (a + b)


@mistake("divided by their sum")
def thinks(p_before, gain, length, price, beta):
    return p_before * math.exp((gain - price * length) / beta)


@mistake("for a small beta")
def thinks(p_before, gain, length, price, beta):
    a, b = p_before * math.exp((gain - price * length) / beta), 1 - p_before
    return a / (a + b)


@also_right
def thinks(p_before, gain, length, price, beta):
    logs = np.log([p_before, 1 - p_before]) + np.array([gain - price * length, 0.0]) / beta
    return np.exp(logs[0] - np.logaddexp.reduce(logs))


# ---- followed ----


@mistake("both ways end at the same name")
def followed(arrows_QN, thoughts_QK, answers_Q, place):
    K, counts = thoughts_QK.shape[1], [0, 0, 0]
    for arrows_N, thought_K, answer in zip(arrows_QN, thoughts_QK, answers_Q, strict=True):
        before, now = way(arrows_N, 0, K + 1)[-1], way(arrows_N, thought_K[place], K - place)[-1]
        counts[0 if answer == now else 1 if answer == before else 2] += 1
    return tuple(count / len(answers_Q) for count in counts)


@mistake("divide by the number of all")
def followed(arrows_QN, thoughts_QK, answers_Q, place):
    K, counts = thoughts_QK.shape[1], [0, 0, 0]
    for arrows_N, thought_K, answer in zip(arrows_QN, thoughts_QK, answers_Q, strict=True):
        before, now = way(arrows_N, 0, K + 1)[-1], way(arrows_N, thought_K[place], K - place)[-1]
        if before != now:
            counts[0 if answer == now else 1 if answer == before else 2] += 1
    return tuple(count / len(answers_Q) for count in counts)


@mistake("the first share is that of the changed thought")
def followed(arrows_QN, thoughts_QK, answers_Q, place):
    K, counts = thoughts_QK.shape[1], np.zeros(3)
    for arrows_N, thought_K, answer in zip(arrows_QN, thoughts_QK, answers_Q, strict=True):
        before, now = way(arrows_N, 0, K + 1)[-1], way(arrows_N, thought_K[place], K - place)[-1]
        if before != now:
            counts[1 if answer == now else 0 if answer == before else 2] += 1
    return counts / counts.sum()


@also_right
def followed(arrows_QN, thoughts_QK, answers_Q, place):
    Q, K = thoughts_QK.shape
    before, now, rows = np.zeros(Q, int), thoughts_QK[:, place], np.arange(Q)
    for _ in range(K + 1):
        before = arrows_QN[rows, before]
    for _ in range(K - place):
        now = arrows_QN[rows, now]
    tells = before != now
    shares = [(answers_Q == now)[tells].mean(), (answers_Q == before)[tells].mean()]
    return *shares, 1 - sum(shares)
