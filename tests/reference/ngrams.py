"""Interpolated Kneser-Ney smoothing by its definition, with lists."""


def probability(
    token: int, before: tuple[int, ...], text: list[int], vocab_size: int, is_longest: bool = True
) -> float:
    """p(token | the tokens before it) by equation 50, from the n-grams of a text; n - 1 tokens are before it."""
    n = len(before) + 1

    def count(gram: tuple[int, ...]) -> int:
        places = [i for i in range(len(text) - n + 1) if tuple(text[i : i + n]) == gram]
        return len(places) if is_longest else len({text[i - 1] for i in places if i > 0})

    counts = [count((*before, each)) for each in range(vocab_size)]
    all_counts = [count(gram) for gram in {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}]
    once, twice = max(1, all_counts.count(1)), all_counts.count(2)
    discount = once / (once + 2 * twice)
    shorter = 1 / vocab_size if n == 1 else probability(token, before[1:], text, vocab_size, is_longest=False)
    if sum(counts) == 0:
        return shorter
    different = sum(each > 0 for each in counts)
    return (max(counts[token] - discount, 0) + discount * different * shorter) / sum(counts)
