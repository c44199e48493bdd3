"""What students write in lesson 11, and the words that should meet it."""

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
    raised = softmax(logits) ** (1 / temperature)  # the model's probabilities to a power
    return list(raised / sum(raised))


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
    return len(probabilities) - 1


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
    """Level by level, with a heap of those that are complete and products of probabilities."""
    import heapq

    def rounds(open_texts, complete):
        if not open_texts:
            return complete
        longer = {(*text, token): p * q for text, p in open_texts.items() for token, q in following(text).items()}
        best = heapq.nlargest(n_beams, {**complete, **longer}.items(), key=lambda item: item[1])
        is_open = {text: bool(following(text)) for text, _ in best}
        return rounds(
            {text: p for text, p in best if is_open[text]}, {text: p for text, p in best if not is_open[text]}
        )

    found = rounds({(): 1.0}, {})
    return [[list(text), np.log(p)] for text, p in sorted(found.items(), key=lambda item: -item[1])]


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
