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


@also_right
def surprise_of_guess(guess, word, n_words):
    left = 1.0
    for p in guess.values():
        left -= p
    others = n_words - len(guess)
    return -math.log(guess[word]) if word in guess else math.log(others) - math.log(left)


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


@also_right
def mean_surprise(probabilities):
    return -math.log(math.prod(probabilities)) / len(probabilities)


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
