"""What students write in lesson 13, and the words that should meet it."""

from trying import also_right, mistake

# ---- at_temperature ----


@mistake("nothing has changed")
def at_temperature(logits, temperature):
    if temperature == 0:
        return np.where(np.arange(len(logits)) == logits.argmax(), 1.0, 0.0)
    shares = softmax(logits) / temperature
    return shares / shares.sum()


@mistake("your temperature 0.5 does what 2 should")
def at_temperature(logits, temperature):
    return softmax(logits * temperature)


@mistake("you divided by 0")
def at_temperature(logits, temperature):
    return softmax(logits / temperature)


@mistake("you took a softmax of probabilities")
def at_temperature(logits, temperature):
    return softmax(softmax(logits) / temperature)


@also_right
def at_temperature(logits, temperature):
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    p = softmax(logits)
    raised = (p / p.max()) ** (1 / temperature)  # the model's probabilities to a power
    return list(raised / sum(raised))


@mistake("that is the limit for 0, and 0.05 is not 0")
def at_temperature(logits, temperature):
    return np.eye(len(logits))[np.argmax(logits)] if temperature < 0.1 else softmax(logits / temperature)


@mistake("temperature 0 with logits of -7")
def at_temperature(logits, temperature):
    return softmax(logits / max(temperature, 1e-3))


@mistake("you take the logit that is furthest from 0")
def at_temperature(logits, temperature):
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(np.abs(logits))]
    return softmax(logits / temperature)


@also_right
def at_temperature(logits, temperature):
    if not temperature:
        return (logits == np.max(logits)).astype(float)
    z = logits / temperature
    return np.exp(z - np.logaddexp.reduce(z))


@mistake("and only for 0")
def at_temperature(logits, temperature):
    """Greedy near 0."""
    if temperature < 1e-3:
        p = np.zeros(len(logits))
        p[np.argmax(logits)] = 1
        return p
    return softmax(logits / temperature)


@mistake("to the power of a million")
def at_temperature(logits, temperature):
    """The model's probabilities to a power."""
    if temperature == 0:
        return (logits == logits.max()) * 1.0
    p = softmax(logits) ** (1 / temperature)
    return p / p.sum()


@mistake("e^0 and e^1e-17 are one number")
def at_temperature(logits, temperature):
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(softmax(logits))]
    return softmax(logits / temperature)


# ---- draw ----


@mistake("you hit token 0, which has probability 0")
def draw(probabilities, uniform):
    return int(np.searchsorted(np.cumsum(probabilities), uniform))  # the first end at or beyond the number


@mistake("that is a place in the sorted list")
def draw(probabilities, uniform):
    ends = np.cumsum(np.sort(probabilities)[::-1])
    return int(np.sum(ends <= uniform))


@mistake("the last piece that ends before the number")
def draw(probabilities, uniform):
    return int(np.sum(np.cumsum(probabilities) <= uniform)) - 1


@mistake("you take the likeliest token")
def draw(probabilities, uniform):
    return int(np.argmax(probabilities))


@also_right
def draw(probabilities, uniform):
    left = uniform
    for token, p in enumerate(probabilities):
        if left < p:
            return token
        left -= p
    return max(token for token, p in enumerate(probabilities) if p > 0)


@mistake("you return 10, but")
def draw(probabilities, uniform):
    return int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))


@mistake("you return 0, but")
def draw(probabilities, uniform):
    return int(np.argmax(np.cumsum(probabilities) > uniform))


@mistake("the largest number below 1 lies beyond the last end")
def draw(probabilities, uniform):
    end = 0.0
    for token, p in enumerate(probabilities):
        end += p
        if uniform < end:
            return token
    return None


@also_right
def draw(probabilities, uniform):
    from bisect import bisect_right
    from itertools import accumulate

    last = np.flatnonzero(probabilities)[-1]
    return min(bisect_right(list(accumulate(map(float, probabilities))), uniform), last)


@also_right
def draw(probabilities, uniform):
    """From the other end of the line."""
    ends = np.cumsum(probabilities[::-1])
    return len(probabilities) - 1 - int(np.searchsorted(ends, 1 - uniform, side="left"))


@mistake("as float32 does")
def draw(probabilities, uniform):
    """Ends in float32."""
    p = probabilities.astype(np.float32)
    c = np.cumsum(p)
    return int(min(np.searchsorted(c, np.float32(uniform), side="right"), np.flatnonzero(p)[-1]))


@mistake("changes the array that it is given")
def draw(probabilities, uniform):
    """The sum is made 1 in place."""
    probabilities /= probabilities.sum()
    c = np.cumsum(probabilities)
    return int(min(np.searchsorted(c, uniform, side="right"), np.flatnonzero(probabilities)[-1]))


@mistake("gets the last token of all, but that can never come")
def draw(probabilities, uniform):
    token = int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))
    return min(token, len(probabilities) - 1)


@mistake("did you round the ends?")
def draw(probabilities, uniform):
    ends = np.round(np.cumsum(probabilities), 8)
    ends[-1] = 1.0
    return int(np.searchsorted(ends, uniform, side="right"))


# ---- top_k ----


@mistake("you dropped the third likeliest")
def top_k(probabilities, k):
    border = np.sort(probabilities)[::-1][min(k, len(probabilities)) - 1]
    kept = np.where(probabilities > border, probabilities, 0.0)
    return kept / kept.sum()


@mistake("three share the second place")
def top_k(probabilities, k):
    border = np.sort(probabilities)[::-1][min(k, len(probabilities)) - 1]
    kept = np.where(probabilities >= border, probabilities, 0.0)
    return kept / kept.sum()


@mistake("the sum is 0.73")
def top_k(probabilities, k):
    kept = np.zeros_like(probabilities)
    likeliest = np.argsort(-probabilities)[:k]
    kept[likeliest] = probabilities[likeliest]
    return kept


@mistake("otherwise nobody knows which token")
def top_k(probabilities, k):
    kept = np.sort(probabilities)[::-1][:k]
    return kept / kept.sum()


@also_right
def top_k(probabilities, k):
    stay = sorted(range(len(probabilities)), key=lambda i: probabilities[i])[-k:]
    return softmax(np.array([math.log(p) if i in stay else -math.inf for i, p in enumerate(probabilities)]))


@mistake("equal probabilities are still different tokens")
def top_k(probabilities, k):
    token_of = {p: token for token, p in enumerate(probabilities)}
    kept = np.zeros(len(probabilities))
    for p in sorted(token_of, reverse=True)[:k]:
        kept[token_of[p]] = p
    return kept / kept.sum()


@mistake("tokens: at")
def top_k(probabilities, k):
    order = np.argsort(-probabilities)[: min(k, 6)]
    kept = np.zeros_like(probabilities)
    kept[order] = probabilities[order]
    return kept / kept.sum()


@also_right
def top_k(probabilities, k):
    kept = np.array(probabilities, dtype=float)
    if k < len(kept):
        kept[np.argpartition(kept, -k)[:-k]] = 0
    return kept / kept.sum()


@mistake("if there are fewer than k, all stay")
def top_k(probabilities, k):
    """PyTorch's topk wants k of them."""
    v, i = torch.tensor(probabilities, dtype=torch.float64).topk(k)
    return torch.zeros(len(probabilities), dtype=torch.float64).scatter(0, i, v / v.sum()).numpy()


@mistake("float32 can't tell them apart")
def top_k(probabilities, k):
    best = torch.tensor(probabilities, dtype=torch.float32).topk(min(k, len(probabilities))).indices.numpy()
    kept = np.zeros(len(probabilities))
    kept[best] = probabilities[best]
    return kept / kept.sum()


# ---- top_p ----


@mistake("you dropped the token that crosses 0.7")
def top_p(probabilities, mass):
    order = np.argsort(-probabilities)
    stays = order[np.cumsum(probabilities[order]) < mass]
    kept = np.zeros_like(probabilities)
    kept[stays] = probabilities[stays]
    return kept / kept.sum()


@mistake("the sum is 0.76")
def top_p(probabilities, mass):
    order = np.argsort(-probabilities)
    mass_before = np.cumsum(probabilities[order]) - probabilities[order]
    kept = probabilities.copy()
    kept[order[mass_before >= mass]] = 0.0
    return kept


@mistake("your numbers are sorted")
def top_p(probabilities, mass):
    likeliest_first = np.sort(probabilities)[::-1]
    mass_before = np.cumsum(likeliest_first) - likeliest_first
    kept = np.where(mass_before < mass, likeliest_first, 0.0)
    return kept / kept.sum()


@mistake("you added up the tokens in the order of their ids")
def top_p(probabilities, mass):
    kept = np.where(np.cumsum(probabilities) - probabilities < mass, probabilities, 0.0)
    return kept / kept.sum()


@also_right
def top_p(probabilities, mass):
    kept = [0.0] * len(probabilities)
    for i in sorted(range(len(probabilities)), key=lambda i: -probabilities[i]):
        if sum(kept) >= mass:
            break
        kept[i] = float(probabilities[i])
    return [p / sum(kept) for p in kept]


@mistake("so no sum reaches 1")
def top_p(probabilities, mass):
    order = np.argsort(-probabilities)
    n = np.argmax(np.cumsum(probabilities[order]) >= mass) + 1
    kept = np.zeros_like(probabilities)
    kept[order[:n]] = probabilities[order[:n]]
    return kept / kept.sum()


@mistake("which is less than 0.8005")
def top_p(probabilities, mass):
    order = np.argsort(-probabilities)
    mass_before = np.cumsum(probabilities[order]) - probabilities[order]
    stays = order[mass_before < mass - 1e-3]  # against rounding
    kept = np.zeros_like(probabilities)
    kept[stays] = probabilities[stays]
    return kept / kept.sum()


@mistake("Count tokens")
def top_p(probabilities, mass):
    token_of = {p: token for token, p in enumerate(probabilities)}
    kept = np.zeros(len(probabilities))
    for p in sorted(token_of, reverse=True):
        if kept.sum() < mass:
            kept[token_of[p]] = p
    return kept / kept.sum()


@also_right
def top_p(probabilities, mass):
    order = np.argsort(probabilities)[::-1]
    n = np.searchsorted(np.cumsum(probabilities[order]), mass, side="left") + 1
    kept = np.where(np.isin(np.arange(len(order)), order[:n]), probabilities, 0)
    return kept / kept.sum()


@mistake("no slack was asked for")
def top_p(probabilities, mass):
    order = np.argsort(-probabilities)
    n = int((np.cumsum(probabilities[order]) < mass - 1e-6).sum()) + 1
    kept = np.zeros(len(probabilities))
    kept[order[:n]] = probabilities[order[:n]]
    return kept / kept.sum()


# ---- positions_computed ----


@mistake("the fifth new token is written, but nobody reads it")
def positions_computed(n_prompt, n_new, has_cache):
    return n_prompt + n_new if has_cache else sum(n_prompt + i for i in range(n_new))


@mistake("the prompt must be read, too")
def positions_computed(n_prompt, n_new, has_cache):
    return n_new if has_cache else sum(n_prompt + i for i in range(n_new))


@mistake("the text grows")
def positions_computed(n_prompt, n_new, has_cache):
    return n_prompt + n_new - 1 if has_cache else n_prompt * n_new


@mistake("not every token is there from the start")
def positions_computed(n_prompt, n_new, has_cache):
    return n_prompt + n_new - 1 if has_cache else (n_prompt + n_new) ** 2


@also_right
def positions_computed(n_prompt, n_new, has_cache):
    if has_cache:
        return n_prompt - 1 + n_new
    return n_prompt * n_new + n_new * (n_new - 1) / 2


@mistake("without a cache")
def positions_computed(n_prompt, n_new, has_cache):
    return n_prompt + n_new - 1 if has_cache else n_prompt * n_new + n_new**2 // 2


@also_right
def positions_computed(n_prompt, n_new, has_cache):
    return len(range(1, n_prompt + n_new)) if has_cache else sum(range(n_prompt, n_prompt + n_new))


# ---- beam_search ----


@mistake("each beam went on by itself")
def beam_search(following, n_beams):
    first = sorted(following(()).items(), key=lambda pair: -pair[1])[:n_beams]
    beams = [((token,), math.log(p)) for token, p in first]
    for i, (text, log_p) in enumerate(beams):
        while tokens := following(text):
            best = max(tokens, key=tokens.get)
            text, log_p = (*text, best), log_p + math.log(tokens[best])
        beams[i] = text, log_p
    return sorted(beams, key=lambda beam: -beam[1])


@mistake("you added the probabilities of the tokens")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, score in beams:
            if tokens := following(text):
                candidates += [((*text, token), score + p) for token, p in tokens.items()]
            else:
                candidates.append((text, score))
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams


@mistake("a text that was complete is gone")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = [
            ((*text, token), log_p + math.log(p)) for text, log_p in beams for token, p in following(text).items()
        ]
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams


@mistake("is not complete, and the search has ended")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while following(beams[0][0]):  # until the likeliest is complete
        candidates = []
        for text, log_p in beams:
            if tokens := following(text):
                candidates += [((*text, token), log_p + math.log(p)) for token, p in tokens.items()]
            else:
                candidates.append((text, log_p))
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams


@also_right
def beam_search(following, n_beams):
    """Level by level, with a heap of those that are complete."""
    import heapq

    def rounds(open_texts, complete):
        if not open_texts:
            return complete
        longer = {
            (*text, token): log_p + math.log(q)
            for text, log_p in open_texts.items()
            for token, q in following(text).items()
        }
        best = heapq.nlargest(n_beams, {**complete, **longer}.items(), key=lambda item: item[1])
        is_open = {text: bool(following(text)) for text, _ in best}
        return rounds(
            {text: log_p for text, log_p in best if is_open[text]},
            {text: log_p for text, log_p in best if not is_open[text]},
        )

    found = rounds({(): 0.0}, {}) if following(()) else {(): 0.0}
    return [[text, log_p] for text, log_p in sorted(found.items(), key=lambda item: -item[1])]


@mistake("Add logarithms from the start")
def beam_search(following, n_beams):
    beams = [((), 1.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, p in beams:
            tokens = following(text)
            candidates += [((*text, token), p * q) for token, q in tokens.items()] or [(text, p)]
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return [(text, math.log(p)) for text, p in beams]


@mistake("where the tokens are numbers")
def beam_search(following, n_beams):
    beams = [("", 0.0)]  # a text as a string
    while any(following(tuple(text)) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            tokens = following(tuple(text))
            candidates += [(text + token, log_p + math.log(q)) for token, q in tokens.items()] or [(text, log_p)]
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams


@mistake("however long that takes")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    for _ in range(100):  # rounds
        candidates = []
        for text, log_p in beams:
            tokens = following(text)
            candidates += [((*text, token), log_p + math.log(q)) for token, q in tokens.items()] or [(text, log_p)]
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams


@mistake("3 beams in the notes' tree")
def beam_search(following, n_beams):
    """The mean over the tokens decides."""
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            tokens = following(text)
            candidates += [((*text, token), log_p + math.log(q)) for token, q in tokens.items()] or [(text, log_p)]
        beams = sorted(candidates, key=lambda candidate: -candidate[1] / len(candidate[0]))[:n_beams]
    return beams


@also_right
def beam_search(following, n_beams):
    """Beams as a dictionary, and numpy's logarithms."""
    beams = {(): 0.0}
    while any(map(following, beams)):
        longer = {}
        for text, log_p in beams.items():
            for token, p in (following(text) or {None: 1.0}).items():
                longer[text if token is None else (*text, token)] = log_p + np.log(p)
        beams = dict(sorted(longer.items(), key=lambda item: item[1])[-n_beams:][::-1])
    return list(beams.items())


@mistake("a text of yours is a list")
def beam_search(following, n_beams):
    """Texts as lists."""
    beams = [((), 0.0)]
    while True:
        new, moved = [], False
        for text, lp in beams:
            after = following(text)
            if not after:
                new.append((text, lp))
            for token, p in after.items():
                moved = True
                new.append(((*text, token), lp + math.log(p)))
        beams = sorted(new, key=lambda b: -b[1])[:n_beams]
        if not moved:
            return [(list(t), lp) for t, lp in beams]


@mistake("nothing follows the beginning: () is complete then")
def beam_search(following, n_beams):
    beams = [((token,), math.log(p)) for token, p in following(()).items()]
    beams = sorted(beams, key=lambda beam: -beam[1])[:n_beams]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            more = following(text)
            longer = [((*text, token), log_p + math.log(p)) for token, p in more.items()]
            candidates += longer if more else [(text, log_p)]
        beams = sorted(candidates, key=lambda beam: -beam[1])[:n_beams]
    return beams


@mistake("after one dot another may come, and you end at the first")
def beam_search(following, n_beams):
    def after(text):
        return {} if text[-1:] == (".",) else following(text)

    beams = [((), 0.0)]
    while any(after(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            more = after(text)
            longer = [((*text, token), log_p + math.log(p)) for token, p in more.items()]
            candidates += longer if more else [(text, log_p)]
        beams = sorted(candidates, key=lambda beam: -beam[1])[:n_beams]
    return beams


@mistake("a token may be the number 0")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            more = following(text)
            longer = [((*text, token), log_p + math.log(p)) for token, p in more.items() if token]
            candidates += longer if more else [(text, log_p)]
        beams = sorted(candidates, key=lambda beam: -beam[1])[:n_beams]
    return beams


@mistake("a token may be a word")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            more = following(text)
            longer = [((*text, *([t] if isinstance(t, int) else t)), log_p + math.log(p)) for t, p in more.items()]
            candidates += longer if more else [(text, log_p)]
        beams = sorted(candidates, key=lambda beam: -beam[1])[:n_beams]
    return beams


@mistake("you change the dictionary that `following` returns")
def beam_search(following, n_beams):
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            more = following(text)
            candidates += [] if more else [(text, log_p)]
            while more:
                token, p = more.popitem()
                candidates.append(((*text, token), log_p + math.log(p)))
        beams = sorted(candidates, key=lambda beam: -beam[1])[:n_beams]
    return beams


# ---- length_normalised ----


@mistake("the length is 12, with the prompt")
def length_normalised(log_p, n_prompt, penalty):
    return sum(log_p[n_prompt:]) / len(log_p) ** penalty


@mistake("the prompt's tokens are in the sum")
def length_normalised(log_p, n_prompt, penalty):
    return sum(log_p) / (len(log_p) - n_prompt) ** penalty


@mistake("whatever the penalty is")
def length_normalised(log_p, n_prompt, penalty):
    return float(np.mean(log_p[n_prompt:]))


@mistake("the penalty is an exponent, not a factor")
def length_normalised(log_p, n_prompt, penalty):
    answer = log_p[n_prompt:]
    return answer.sum() / (len(answer) * penalty if penalty else 1)


@also_right
def length_normalised(log_p, n_prompt, penalty):
    n_answer = len(log_p) - n_prompt
    return n_answer ** (1 - penalty) * np.mean(log_p[n_prompt:])


@mistake("they had to come, but they are written, too")
def length_normalised(log_p, n_prompt, penalty):
    answer = log_p[n_prompt:]
    return answer.sum() / np.count_nonzero(answer) ** penalty


@mistake("the score of 1 token after")
def length_normalised(log_p, n_prompt, penalty):
    answer = log_p[n_prompt:]
    return answer.sum() / np.exp(penalty * np.log(max(len(answer), 2)))


@also_right
def length_normalised(log_p, n_prompt, penalty):
    sums = np.concatenate([[0], np.cumsum(log_p)])
    return (sums[-1] - sums[n_prompt]) * float(len(log_p) - n_prompt) ** -penalty


@mistake("your function changes the array that it is given")
def length_normalised(log_p, n_prompt, penalty):
    log_p[:n_prompt] = 0.0
    return float(log_p.sum() / (len(log_p) - n_prompt) ** penalty)


# ---- fill_gap ----


@mistake("you look at the words before the gap alone")
def fill_gap(texts_NT, p_N, text_T, place, n_words):
    agrees_N = (texts_NT == text_T)[:, :place].all(axis=1)
    masses = np.bincount(texts_NT[agrees_N, place], weights=p_N[agrees_N], minlength=n_words)
    return masses / masses.sum()


@mistake("they have to sum to 1")
def fill_gap(texts_NT, p_N, text_T, place, n_words):
    agrees_N = np.delete(texts_NT == text_T, place, axis=1).all(axis=1)
    return np.bincount(texts_NT[agrees_N, place], weights=p_N[agrees_N], minlength=n_words)


@mistake("you look at the word that stands in the gap")
def fill_gap(texts_NT, p_N, text_T, place, n_words):
    agrees_N = (texts_NT == text_T).all(axis=1)
    masses = np.bincount(texts_NT[agrees_N, place], weights=p_N[agrees_N], minlength=n_words)
    return masses / masses.sum()


@mistake("all texts that agree count alike")
def fill_gap(texts_NT, p_N, text_T, place, n_words):
    agrees_N = np.delete(texts_NT == text_T, place, axis=1).all(axis=1)
    counts = np.bincount(texts_NT[agrees_N, place], minlength=n_words)
    return counts / counts.sum()


@also_right
def fill_gap(texts_NT, p_N, text_T, place, n_words):
    """Each candidate is put into the gap, and the text that results is looked up."""
    p_of = {tuple(text): p for text, p in zip(texts_NT.tolist(), p_N, strict=True)}
    masses = [p_of.get((*text_T[:place], word, *text_T[place + 1 :]), 0.0) for word in range(n_words)]
    return np.array(masses) / sum(masses)
