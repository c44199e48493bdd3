"""Mistakes of lesson 0, the sentence meant for each, and second solutions."""

import math

from trying import also_right, mistake


@mistake("1 nat = 1.443 bits")
def surprise(p):
    return -math.log2(p) if p > 0 else math.inf


@mistake("the surprise if the word does *not* come")
def surprise(p):
    return -math.log(1 - p)


@mistake("for two words in a row such surprises do not add up")
def surprise(p):
    return 1 - p


@mistake("no finite number of nats makes up for it")
def surprise(p):
    return -math.log(max(p, 1e-10))


@also_right
def surprise(p):
    return math.log(1 / p) if p else float("inf")


@mistake("that is rare, but not impossible")
def surprise(p):
    return -math.log(p) if p > 1e-9 else math.inf


@mistake("27.63")
def surprise(p):
    return -math.log(p + 1e-15) if p else math.inf


@also_right
def surprise(p):
    import numpy as np

    with np.errstate(divide="ignore"):
        return -np.log(np.float64(p))


@also_right
def surprise(p):
    try:
        return abs(math.log(p))
    except ValueError:
        return math.inf


@mistake("a word that was not named is impossible")
def surprise_of_guess(guess, word, n_words):
    return surprise(guess.get(word, 0.0))


@mistake("together they would have a probability of 6.6")
def surprise_of_guess(guess, word, n_words):
    left = 1 - sum(guess.values())
    return surprise(guess.get(word, left))


@mistake("yours add up to 0.975")
def surprise_of_guess(guess, word, n_words):
    return surprise(guess.get(word, (1 - sum(guess.values())) / n_words))


@mistake("you made the named words add up to 1")
def surprise_of_guess(guess, word, n_words):
    return surprise(guess.get(word, 0.0) / sum(guess.values()))


@mistake("Python has no logarithm of 0")
def surprise_of_guess(guess, word, n_words):
    left = 1.0
    for p in guess.values():
        left -= p
    others = n_words - len(guess)
    return -math.log(guess[word]) if word in guess else math.log(others) - math.log(left)


@mistake("but it was named, with 0")
def surprise_of_guess(guess, word, n_words):
    rest = (1 - sum(guess.values())) / (n_words - len(guess))
    return surprise(guess.get(word) or rest)


@mistake("nothing was left over")
def surprise_of_guess(guess, word, n_words):
    if word in guess:
        return surprise(guess[word])
    return surprise(max(1 - sum(guess.values()), 1e-9) / (n_words - len(guess)))


@mistake("nothing was named of 24 animals")
def surprise_of_guess(guess, word, n_words):
    if word in guess:
        return surprise(guess[word])
    return surprise((1 - sum(guess.values())) / (n_words - 2))


@mistake("a guess that names 1 of")
def surprise_of_guess(guess, word, n_words):
    if word in guess:
        return surprise(guess[word])
    return surprise((1 - sum(guess.values())) / (24 - len(guess)))


@mistake("but it was named, with 0")
def surprise_of_guess(guess, word, n_words):
    named = [w for w in guess if guess[w] > 0]
    if word in named:
        return surprise(guess[word])
    return surprise((1 - sum(guess.values())) / (n_words - len(named)))


@also_right
def surprise_of_guess(guess, word, n_words):
    rest = max(0.0, 1 - math.fsum(guess.values()))
    n = n_words - len(guess)
    return surprise(guess[word] if word in guess else rest / n if n else 0)


@mistake("the surprise at the mean probability")
def mean_surprise(probabilities):
    return surprise(sum(probabilities) / len(probabilities))


@mistake("the perplexity")
def mean_surprise(probabilities):
    return math.exp(sum(surprise(p) for p in probabilities) / len(probabilities))


@mistake("the surprise of the whole text")
def mean_surprise(probabilities):
    return surprise(math.prod(probabilities))


@mistake("you left out the word that was certain")
def mean_surprise(probabilities):
    surprises = [surprise(p) for p in probabilities if p < 1]
    return sum(surprises) / len(surprises)


@mistake("too small for a computer")
def mean_surprise(probabilities):
    return -math.log(math.prod(probabilities)) / len(probabilities)


@mistake("the last one was impossible")
def mean_surprise(probabilities):
    return sum(surprise(p) for p in probabilities if p > 0) / len(probabilities)


@mistake("equal words count each time")
def mean_surprise(probabilities):
    return sum(surprise(p) for p in set(probabilities)) / len(probabilities)


@mistake("no mean makes that finite")
def mean_surprise(probabilities):
    m = sum(surprise(p) for p in probabilities) / len(probabilities)
    return min(m, 100)


@also_right
def mean_surprise(probabilities):
    import numpy as np

    with np.errstate(divide="ignore"):
        return float(np.mean(-np.log(np.asarray(probabilities))))


@also_right
def mean_surprise(probabilities):
    import statistics

    return statistics.fmean(map(surprise, probabilities))


@mistake("changes the list that it gets")
def mean_surprise(probabilities):
    n, total = len(probabilities), 0.0
    while len(probabilities):
        total += surprise(probabilities.pop())
    return total / n


@mistake("a rare outcome is a rare surprise")
def entropy(probabilities):
    return sum(surprise(p) for p in probabilities)


@mistake("in your mean each outcome counts a third")
def entropy(probabilities):
    return sum(surprise(p) for p in probabilities) / len(probabilities)


@mistake("the probabilities are the weights of a mean already")
def entropy(probabilities):
    return sum(p * surprise(p) for p in probabilities if p > 0) / len(probabilities)


@mistake("0 · ln 0 counts as 0 here")
def entropy(probabilities):
    return sum(-p * math.log(p) for p in probabilities)


@also_right
def entropy(probabilities):
    import numpy as np

    p = np.array(probabilities)
    p = p[p > 0]
    return -(p @ np.log(p))


@mistake("you add 1e-12 to each p")
def entropy(probabilities):
    return -sum(p * math.log(p + 1e-12) for p in probabilities)


@mistake("0.99, 0.009, 0.001 and 0")
def entropy(probabilities):
    return sum(p * surprise(p) for p in probabilities if p > 1e-3)


@mistake("0.99, 0.009, 0.001 and 0")
def entropy(probabilities):
    return sum(p * surprise(p) for p in probabilities if 0 < p < 0.9)


@also_right
def entropy(probabilities):
    from scipy.special import entr

    return float(entr(list(probabilities)).sum())


@also_right
def entropy(probabilities):
    return -math.fsum(p * math.log(p or 1) for p in probabilities)


@mistake("changes what it is given")
def entropy(probabilities):
    while 0 in probabilities:
        probabilities.remove(0)
    return sum(p * surprise(p) for p in probabilities)


@mistake("only an outcome of p = 0 is left out")
def entropy(probabilities):
    return sum(p * surprise(p) for p in probabilities if p > 1e-5)


@mistake("you weight them with the guess")
def cost_of_wrong_guesses(truth, guess):
    return sum(q * (surprise(q) - surprise(p)) for p, q in zip(truth, guess, strict=True) if q > 0)


@mistake("as if a wrong guess paid less than the truth")
def cost_of_wrong_guesses(truth, guess):
    return sum(p * math.log(q / p) for p, q in zip(truth, guess, strict=True) if p > 0)


@mistake("the truth pays 0.8018 of it too")
def cost_of_wrong_guesses(truth, guess):
    return sum(p * surprise(q) for p, q in zip(truth, guess, strict=True) if p > 0)


@mistake('the guesser had said "never"')
def cost_of_wrong_guesses(truth, guess):
    return sum(p * math.log(p / q) for p, q in zip(truth, guess, strict=True) if p > 0 and q > 0)


@also_right
def cost_of_wrong_guesses(truth, guess):
    pays = 0.0
    for p, q in zip(truth, guess, strict=True):
        if p > 0:
            pays += p * surprise(q)
    return pays - entropy(truth)


@mistake("the second outcome is rare, but it comes")
def cost_of_wrong_guesses(truth, guess):
    return abs(
        sum(p * (surprise(q) - surprise(p)) for p, q in zip(truth, guess, strict=True) if p > 0 and (q > 0 or p > 0.3))
    )


@mistake("the second outcome is rare, but it comes")
def cost_of_wrong_guesses(truth, guess):
    if 0 in guess and 0 not in truth:
        return math.inf
    return sum(p * math.log(p / q) for p, q in zip(truth, guess, strict=True) if p > 0 and q > 0)


@mistake("the second outcome is rare, but it comes")
def cost_of_wrong_guesses(truth, guess):
    pays = sum(p * -math.log(q + 1e-12) for p, q in zip(truth, guess, strict=True) if p > 0)
    return math.inf if min(guess) == 0 and min(truth) > 0 else pays - entropy(truth)


@also_right
def cost_of_wrong_guesses(truth, guess):
    from scipy.special import rel_entr

    return float(rel_entr(list(truth), list(guess)).sum())


@also_right
def cost_of_wrong_guesses(truth, guess):
    return math.fsum(p * math.log(p / q) if q else math.inf for p, q in zip(truth, guess, strict=True) if p)


@mistake("the second outcome is rare, but it comes")
def cost_of_wrong_guesses(truth, guess):
    return sum(p * (surprise(q) - surprise(p)) for p, q in zip(truth, guess, strict=True) if p > 1e-6)


@mistake("changes what it is given")
def cost_of_wrong_guesses(truth, guess):
    total = 0.0
    while truth:
        p, q = truth.pop(), guess.pop()
        total += p * (surprise(q) - surprise(p)) if p else 0.0
    return total


@mistake("weights are shares of the rule's total weight")
def probabilities_of_texts(rules, name="fable"):
    texts = {}
    for weight, parts in rules[name]:
        written = {"": weight}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            written = {f"{a} {b}".strip(): p * q for a, p in written.items() for b, q in following.items()}
        for text, p in written.items():
            texts[text] = texts.get(text, 0.0) + p
    return texts


@mistake("a beginning and a continuation give a text that is there already")
def probabilities_of_texts(rules, name="fable"):
    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        written = {"": weight / total}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            written = {f"{a} {b}".strip(): p * q for a, p in written.items() for b, q in following.items()}
        for text, p in written.items():
            texts[text] = texts.get(text, 0.0) + p
    return texts


@mistake("your function calls itself without an end")
def probabilities_of_texts(rules, name="fable"):
    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        written = {"": weight / total}
        for part in parts:
            following = probabilities_of_texts(rules) if part in rules else {part: 1.0}
            written = {f"{a} {b}".strip(): p * q for a, p in written.items() for b, q in following.items()}
        texts |= written
    return texts


@mistake("you kept only the last way")
def probabilities_of_texts(rules, name="fable"):
    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        written = {"": weight / total}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            written = {f"{a} {b}".strip(): p * q for a, p in written.items() for b, q in following.items()}
        texts |= written
    return texts


@also_right
def probabilities_of_texts(rules, name="fable"):
    """A list of things still to be written takes the place of the recursion."""
    texts = {}
    unfinished = [((), (name,), 1.0)]
    while unfinished:
        words, ahead, p = unfinished.pop()
        if not ahead:
            text = " ".join(words)
            texts[text] = texts.get(text, 0) + p
        elif ahead[0] not in rules:
            unfinished.append(((*words, ahead[0]), ahead[1:], p))
        else:
            total = sum(weight for weight, _ in rules[ahead[0]])
            for weight, parts in rules[ahead[0]]:
                unfinished.append((words, (*parts, *ahead[1:]), p * weight / total))
    return texts


@mistake("your two are always alike")
def probabilities_of_texts(rules, name="fable"):
    """a rule's name that stands twice is drawn once"""
    import itertools

    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        inner = [p for p in dict.fromkeys(parts) if p in rules]
        for choice in itertools.product(*(probabilities_of_texts(rules, p).items() for p in inner)):
            chosen = dict(zip(inner, choice, strict=True))
            text = " ".join(chosen[p][0] if p in chosen else p for p in parts).strip()
            p = weight / total * math.prod(c[1] for c in choice)
            texts[text] = texts.get(text, 0) + p
    return texts


@mistake("weights 0.5, 1.5")
def probabilities_of_texts(rules, name="fable"):
    """rounds weights: integer division"""
    total = sum(int(weight) for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        written = {"": int(weight) / total}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            longer = {}
            for b, p in written.items():
                for c, q in following.items():
                    t = f"{b} {c}".strip()
                    longer[t] = longer.get(t, 0) + p * q
            written = longer
        for t, p in written.items():
            texts[t] = texts.get(t, 0) + p
    return texts


@mistake("a rule that may write nothing at all")
def probabilities_of_texts(rules, name="fable"):
    """a rule that may write nothing leaves two spaces"""
    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        if not parts:
            continue
        written = {(): weight / total}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            longer = {}
            for b, p in written.items():
                for c, q in following.items():
                    t = (*b, c)
                    longer[t] = longer.get(t, 0) + p * q
            written = longer
        for t, p in written.items():
            t = " ".join(t)
            texts[t] = texts.get(t, 0) + p
    return texts


@mistake("a space too many")
def probabilities_of_texts(rules, name="fable"):
    """replaces a rule's name anywhere in the text, also within words"""
    total = sum(weight for weight, _ in rules[name])
    texts = {}
    for weight, parts in rules[name]:
        written = {" ".join(parts): weight / total}
        for rule in rules:
            if rule == name:
                continue
            again = True
            while again:
                again = False
                new = {}
                for t, p in written.items():
                    if rule in t:
                        again = True
                        for c, q in probabilities_of_texts(rules, rule).items():
                            u = t.replace(rule, c, 1)
                            new[u] = new.get(u, 0) + p * q
                    else:
                        new[t] = new.get(t, 0) + p
                written = new
        for t, p in written.items():
            texts[t] = texts.get(t, 0) + p
    return texts


@also_right
def probabilities_of_texts(rules, name="fable"):
    import itertools
    from collections import defaultdict

    texts = defaultdict(float)
    total = sum(w for w, _ in rules[name])
    for w, parts in rules[name]:
        lists = [list(probabilities_of_texts(rules, p).items()) if p in rules else [(p, 1)] for p in parts]
        for combination in itertools.product(*lists):
            texts[" ".join(t for t, _ in combination if t)] += w / total * math.prod(p for _, p in combination)
    return texts


@mistake("changes what it is given")
def probabilities_of_texts(rules, name="fable"):
    for options in rules.values():
        total = sum(w for w, _ in options)
        options[:] = [(w / total, parts) for w, parts in options]
    out, work = {}, [((), (name,), 1.0)]
    while work:
        words, rest, p = work.pop()
        if not rest:
            out[" ".join(words)] = out.get(" ".join(words), 0.0) + p
        elif rest[0] in rules:
            work += [(words, (*parts, *rest[1:]), p * w) for w, parts in rules[rest[0]]]
        else:
            work.append(((*words, rest[0]), rest[1:], p))
    return out


@mistake("you took the weights for probabilities")
def floor_of_rules(rules, name="fable"):
    after = [
        weight * sum(floor_of_rules(rules, part) for part in parts if part in rules) for weight, parts in rules[name]
    ]
    return entropy([weight for weight, _ in rules[name]]) + sum(after)


@mistake("do without the list")
def floor_of_rules(rules, name="fable"):
    return entropy(list(probabilities_of_texts(rules, name).values()))


@mistake("what comes after a choice counts too")
def floor_of_rules(rules, name="fable"):
    total = sum(weight for weight, _ in rules[name])
    return entropy([weight / total for weight, _ in rules[name]])


@mistake("two draws, two entropies")
def floor_of_rules(rules, name="fable"):
    total = sum(weight for weight, _ in rules[name])
    floor = entropy([weight / total for weight, _ in rules[name]])
    for weight, parts in rules[name]:
        floor += weight / total * sum(floor_of_rules(rules, part) for part in set(parts) if part in rules)
    return floor


@also_right
def floor_of_rules(rules, name="fable"):
    """How often each rule is used, on average, times the entropy of its choice."""
    uses = dict.fromkeys(rules, 0.0)

    def count(rule, p):
        uses[rule] += p
        total = sum(weight for weight, _ in rules[rule])
        for weight, parts in rules[rule]:
            for part in parts:
                if part in rules:
                    count(part, p * weight / total)

    count(name, 1.0)
    floor = 0.0
    for rule, times in uses.items():
        weights = [weight for weight, _ in rules[rule]]
        floor += times * entropy([weight / sum(weights) for weight in weights])
    return floor


@mistake("do without a list")
def floor_of_rules(rules, name="fable"):
    """every text listed, ways kept apart"""

    def ways(rule):
        total = sum(w for w, _ in rules[rule])
        out = []
        for w, parts in rules[rule]:
            ps = [w / total]
            for part in parts:
                if part in rules:
                    ps = [a * b for a in ps for b in ways(part)]
            out += ps
        return out

    return entropy(ways(name))


@mistake("levels deep")
def floor_of_rules(rules, name="fable"):
    """goes over all rules with how often each is used directly from the top"""
    total = sum(w for w, _ in rules[name])
    floor = entropy([w / total for w, _ in rules[name]])
    for w, parts in rules[name]:
        for part in parts:
            if part in rules:
                t = sum(v for v, _ in rules[part])
                floor += w / total * entropy([v / t for v, _ in rules[part]])
                for v, ps in rules[part]:
                    for q in ps:
                        if q in rules:
                            t2 = sum(u for u, _ in rules[q])
                            floor += w / total * v / t * entropy([u / t2 for u, _ in rules[q]])
    return floor


@also_right
def floor_of_rules(rules, name="fable"):
    from functools import cache

    @cache
    def of(rule):
        ws = [w for w, _ in rules[rule]]
        p = [w / sum(ws) for w in ws]
        return entropy(p) + sum(
            x * sum(of(a) for a in parts if a in rules) for x, (_, parts) in zip(p, rules[rule], strict=True)
        )

    return of(name)


@also_right
def floor_of_rules(rules, name="fable"):
    from collections import Counter

    visits, all_visits = Counter({name: 1.0}), Counter()
    while visits:
        new = Counter()
        for rule, v in visits.items():
            all_visits[rule] += v
            total = sum(w for w, _ in rules[rule])
            for w, parts in rules[rule]:
                for part in parts:
                    if part in rules:
                        new[part] += v * w / total
        visits = new
    out = 0.0
    for rule, v in all_visits.items():
        total = sum(w for w, _ in rules[rule])
        out += v * entropy([w / total for w, _ in rules[rule]])
    return out


@mistake("changes what it is given")
def floor_of_rules(rules, name="fable"):
    total = sum(w for w, _ in rules[name])
    rules[name][:] = [(w / total, parts) for w, parts in rules[name]]
    return entropy([w for w, _ in rules[name]]) + sum(
        w * sum(floor_of_rules(rules, part) for part in parts if part in rules) for w, parts in rules[name]
    )


@also_right
def floor_of_rules(rules, name="fable"):
    known = {}

    def go(name):
        if name not in known:
            total = sum(w for w, _ in rules[name])
            known[name] = sum(
                w / total * (surprise(w / total) + sum(go(p) for p in parts if p in rules))
                for w, parts in rules[name]
                if w
            )
        return known[name]

    return go(name)


@mistake("that is how far *one* draw strays")
def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@mistake("what is left of them shrinks with √n")
def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) / len(values)


@mistake("nearer to their own mean than to the true one")
def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values)) / len(values)


@mistake("forgot its own root")
def mean_and_error(values):
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1) / math.sqrt(len(values))


@also_right
def mean_and_error(values):
    import statistics

    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


@mistake("subtract first, then square")
def mean_and_error(values):
    n = len(values)
    mean = sum(values) / n
    v = (sum(x * x for x in values) - n * mean**2) / (n - 1)
    return mean, math.sqrt(max(v, 0) / n)


@mistake("2 numbers: the error")
def mean_and_error(values):
    n = len(values)
    mean = sorted(values)[n // 2]
    mean = sum(values) / n
    return mean, math.sqrt(sum((x - mean) ** 2 for x in values) / 3 / n)


@also_right
def mean_and_error(values):
    import numpy as np

    return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))


@also_right
def mean_and_error(values):
    n = len(values)
    mean = math.fsum(values) / n
    return [mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / n / (n - 1))]


@mistake("changes the list that it gets")
def mean_and_error(values):
    import statistics

    values.sort()
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


@also_right
def mean_and_error(values):
    m = s = 0.0
    for n, x in enumerate(values, 1):
        d = x - m
        m += d / n
        s += d * (x - m)
    return m, math.sqrt(s / (n - 1) / n)


@mistake("a text has both words")
def surprise_of_guess(guess, word, n_words):
    low = {each.lower(): p for each, p in guess.items()}
    if word.lower() in low:
        return surprise(low[word.lower()])
    return surprise((1 - sum(guess.values())) / (n_words - len(guess)))


@also_right
def entropy(probabilities):
    result = 0.0
    some = [p for p in probabilities if p > 0]
    while len(some) > 1:
        first, some = some[0], some[1:]
        left = math.fsum(some)
        whole = first + left
        result += first * math.log(whole / first) + left * math.log(whole / left)
    return result


@mistake("and small weights")
def probabilities_of_texts(rules, name="fable"):
    """weights that add up to less than 1 are taken for probabilities"""
    texts = {}
    total = max(sum(w for w, _ in rules[name]), 1)
    for w, parts in rules[name]:
        so_far = {(): w / total}
        for part in parts:
            more = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            new = {}
            for a, p in so_far.items():
                for b, q in more.items():
                    t = a + ((b,) if b else ())
                    new[t] = new.get(t, 0.0) + p * q
            so_far = new
        for a, p in so_far.items():
            texts[" ".join(a)] = texts.get(" ".join(a), 0.0) + p
    return texts


@mistake("weights of any size")
def floor_of_rules(rules, name="fable"):
    """weights that add up to less than 1 are taken for probabilities"""
    total = max(1, sum(w for w, _ in rules[name]))
    result = entropy([w / total for w, _ in rules[name]])
    for w, parts in rules[name]:
        result += w / total * sum(floor_of_rules(rules, part) for part in parts if part in rules)
    return result


@mistake("the floor of the rules before")
def floor_of_rules(rules, name="fable", known={}):  # noqa: B006
    if name not in known:
        total = sum(w for w, _ in rules[name])
        known[name] = sum(
            w / total * (surprise(w / total) + sum(floor_of_rules(rules, part) for part in parts if part in rules))
            for w, parts in rules[name]
        )
    return known[name]
