"""Lesson 11: what students think of costs that is not so."""

from trying import also_right, mistake

# ---- count_parameters ----


@mistake("one table of VD weights is missing")
def count_parameters(V, L, D, H, G, F, tied):
    K = D // H
    return L * (2 * D * H * K + 2 * D * G * K + 2 * D * F) + V * D


@mistake("you count the embedding twice")
def count_parameters(V, L, D, H, G, F, tied):
    K = D // H
    return L * (2 * D * H * K + 2 * D * G * K + 2 * D * F) + 2 * V * D


@mistake("every head has D columns")
def count_parameters(V, L, D, H, G, F, tied):
    return L * (2 * D * H * D + 2 * D * G * D + 2 * D * F) + (1 if tied else 2) * V * D


@mistake("as many heads as queries")
def count_parameters(V, L, D, H, G, F, tied):
    return L * (4 * D * D + 2 * D * F) + (1 if tied else 2) * V * D


@also_right
def count_parameters(V, L, D, H, G, F, tied):
    shapes = [(V, D)] if tied else [(V, D), (D, V)]
    for _ in range(L):
        shapes += [(D, D), (G * D // H, D), (G * D // H, D), (D, D), (F, D), (D, F)]
    return sum(np.prod(shape) for shape in shapes)


@mistake("you take G to be 2")
def count_parameters(V, L, D, H, G, F, tied):
    return L * (2 * D * D + 2 * D * 2 * (D // H) + 2 * D * F) + (1 if tied else 2) * V * D


@also_right
def count_parameters(V, L, D, H, G, F, tied):
    return L * D * (2 * D + 2 * G * D / H + 2 * F) + V * D * (1 + (not tied))


@mistake("too large for whole numbers of 32 bits")
def count_parameters(V, L, D, H, G, F, tied):
    """A count in 32 bits."""
    return int(np.int32(L * (2 * D * D + 2 * D * D * G // H + 2 * D * F) % 2**31) + V * D * (1 if tied else 2))


# ---- training_flops ----


@mistake("that is the way forward alone")
def training_flops(V, L, D, F, T, n_tokens):
    return 2 * (L * (4 * D * D + 2 * D * F) + V * D + L * 2 * T * D) * n_tokens


@mistake("6 FLOPs per weight, and no pairs")
def training_flops(V, L, D, F, T, n_tokens):
    return 6 * (L * (4 * D * D + 2 * D * F) + V * D) * n_tokens


@mistake("you count the T² pairs of a whole text")
def training_flops(V, L, D, F, T, n_tokens):
    return 6 * (L * (4 * D * D + 2 * D * F) + V * D + L * 2 * T * T * D) * n_tokens


@mistake("you count the embedding as a product")
def training_flops(V, L, D, F, T, n_tokens):
    return 6 * (count_parameters(V, L, D, 1, 1, F, tied=False) + L * 2 * T * D) * n_tokens


@mistake("in both a query meets all T keys, the hidden ones too")
def training_flops(V, L, D, F, T, n_tokens):
    """Half of the pairs, as the mask hides the others."""
    return 6 * (L * (4 * D * D + 2 * D * F) + V * D + L * T * D) * n_tokens


@mistake("you count only the pairs that the mask leaves")
def training_flops(V, L, D, F, T, n_tokens):
    return 6 * (L * (4 * D * D + 2 * D * F + (T + 1) * D) + V * D) * n_tokens


@mistake("it reads one row, and multiplies nothing")
def training_flops(V, L, D, F, T, n_tokens):
    """The embedding, on the way forward."""
    return 6 * (L * (4 * D * D + 2 * D * F + 2 * T * D) + V * D) * n_tokens + 2 * V * D * n_tokens


@mistake("tokens in texts of T =")
def training_flops(V, L, D, F, T, n_tokens):
    return 6 * (L * (4 * D * D + 2 * D * F + 2 * T * D) + V * D) * (n_tokens // 960) * 960


@also_right
def training_flops(V, L, D, F, T, n_tokens):
    """Text by text, product by product."""
    one_layer = 4 * 2 * T * D * D + 2 * T * T * D + 2 * T * T * D + 2 * (2 * T * D * F)
    forward = L * one_layer + 2 * T * D * V
    return n_tokens / T * 3 * forward


@mistake("you count in whole texts")
def training_flops(V, L, D, F, T, n_tokens):
    """Only whole texts."""
    return n_tokens // T * 3 * T * (2 * (L * (4 * D * D + 2 * D * F) + V * D) + 4 * L * D * T)


# ---- memory_bytes ----


@mistake("The weights alone are enough to use a model")
def memory_bytes(n_weights, n_activations, bytes_each=4):
    return n_weights * bytes_each


@mistake("Adam keeps two")
def memory_bytes(n_weights, n_activations, bytes_each=4):
    return n_weights * bytes_each, n_weights * bytes_each, n_weights * bytes_each, n_activations * bytes_each


@mistake("there is a gradient for each weight")
def memory_bytes(n_weights, n_activations, bytes_each=4):
    return n_weights * bytes_each, n_activations * bytes_each, 2 * n_weights * bytes_each, n_activations * bytes_each


@mistake("the gradients come second")
def memory_bytes(n_weights, n_activations, bytes_each=4):
    weights, activations = n_weights * bytes_each, n_activations * bytes_each
    return weights, 2 * weights, weights, activations


@mistake("each of 1 bytes")
def memory_bytes(n_weights, n_activations, bytes_each=4):
    """Adam's two never below 2 bytes."""
    adam = 2 * n_weights * max(bytes_each, 2)
    return n_weights * bytes_each, n_weights * bytes_each, adam, n_activations * bytes_each


@also_right
def memory_bytes(n_weights, n_activations, bytes_each=4):
    return bytes_each * np.array([n_weights, n_weights, 2 * n_weights, n_activations])


# ---- accumulated_gradient ----


@mistake("a mean of means")
def accumulated_gradient(gradient_of_sum, pieces):
    return np.mean([gradient_of_sum(piece) / len(piece) for piece in pieces], axis=0)


@mistake("not yet their mean")
def accumulated_gradient(gradient_of_sum, pieces):
    return sum(gradient_of_sum(piece) for piece in pieces)


@mistake("you divide by the number of pieces")
def accumulated_gradient(gradient_of_sum, pieces):
    return sum(gradient_of_sum(piece) for piece in pieces) / len(pieces)


@mistake("only one piece, of up to 6, fits into memory")
def accumulated_gradient(gradient_of_sum, pieces):
    batch = [example for piece in pieces for example in piece]
    return gradient_of_sum(batch) / len(batch)


@also_right
def accumulated_gradient(gradient_of_sum, pieces):
    n = sum(map(len, pieces))
    mean = 0.0
    for piece in pieces:
        mean = mean + len(piece) / n * (gradient_of_sum(piece) / len(piece))
    return mean


@mistake("you divide by 9")
def accumulated_gradient(gradient_of_sum, pieces):
    return sum(gradient_of_sum(piece) for piece in pieces) / 9


@mistake("the number of pieces may be any")
def accumulated_gradient(gradient_of_sum, pieces):
    first, second, third = pieces
    n = len(first) + len(second) + len(third)
    return (gradient_of_sum(first) + gradient_of_sum(second) + gradient_of_sum(third)) / n


@mistake("examples, with gradients of shape")
def accumulated_gradient(gradient_of_sum, pieces):
    """Right if the last piece has two thirds of all."""
    return sum(gradient_of_sum(piece) for piece in pieces) * 2 / 3 / len(pieces[-1])


@also_right
def accumulated_gradient(gradient_of_sum, pieces):
    """A running mean, which each piece moves by its share."""
    mean, n = 0.0, 0
    for piece in pieces:
        n += len(piece)
        mean = mean + (gradient_of_sum(piece) - len(piece) * mean) / n
    return mean


@mistake("an array that `gradient_of_sum` has returned")
def accumulated_gradient(gradient_of_sum, pieces):
    """The sum grows in the first piece's gradient."""
    total = gradient_of_sum(pieces[0])
    for piece in pieces[1:]:
        total += gradient_of_sum(piece)
    return total / sum(map(len, pieces))


@mistake("a gradient may have any shape")
def accumulated_gradient(gradient_of_sum, pieces):
    """The page's shape."""
    total = np.zeros((4, 3))
    for p in pieces:
        total = total + gradient_of_sum(p)
    return total / sum(len(p) for p in pieces)


@mistake("examples of two pieces in one call")
def accumulated_gradient(gradient_of_sum, pieces):
    """Two small pieces at once."""
    g = 0
    for i in range(0, len(pieces), 2):
        g = g + gradient_of_sum([e for p in pieces[i : i + 2] for e in p])
    return g / sum(map(len, pieces))


@mistake("you take the pieces out of the list that you are given")
def accumulated_gradient(gradient_of_sum, pieces):
    total, n = 0.0, 0
    while pieces:
        piece = pieces.pop()
        total, n = total + gradient_of_sum(piece), n + len(piece)
    return total / n


# ---- operations_to_keep ----


@mistake("you keep the slowest first")
def operations_to_keep(n_bytes, seconds, budget):
    kept = []
    for i in sorted(range(len(n_bytes)), key=lambda i: -seconds[i]):
        if n_bytes[i] <= budget:
            budget -= n_bytes[i]
            kept.append(i)
    return sorted(kept)


@mistake("you keep those that save most seconds per byte")
def operations_to_keep(n_bytes, seconds, budget):
    kept = []
    for i in sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i]):
        if n_bytes[i] <= budget:
            budget -= n_bytes[i]
            kept.append(i)
    return sorted(kept)


@mistake("these are the ones to compute again")
def operations_to_keep(n_bytes, seconds, budget):
    from itertools import combinations

    everything = range(len(n_bytes))
    fitting = [
        s for n in range(len(n_bytes) + 1) for s in combinations(everything, n) if sum(n_bytes[i] for i in s) <= budget
    ]
    best = max(fitting, key=lambda s: sum(seconds[i] for i in s))
    return [i for i in everything if i not in best]


@mistake("the budget is 5")
def operations_to_keep(n_bytes, seconds, budget):
    return range(len(n_bytes))


@also_right
def operations_to_keep(n_bytes, seconds, budget):
    from itertools import combinations

    everything = range(len(n_bytes))
    subsets = [s for n in range(len(n_bytes) + 1) for s in combinations(everything, n)]
    fitting = [s for s in subsets if sum(n_bytes[i] for i in s) <= budget]
    return list(max(fitting, key=lambda s: sum(seconds[i] for i in s)))


@mistake("you compute")
def operations_to_keep(n_bytes, seconds, budget):
    """The densest, and one exchange."""
    by_density = sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i])
    kept, left = [], budget
    for i in by_density:
        if n_bytes[i] <= left:
            kept.append(i)
            left -= n_bytes[i]
    best = kept
    for i in kept:
        for j in by_density:
            exchanged = [*(k for k in kept if k != i), j]
            if j not in kept and n_bytes[j] - n_bytes[i] <= left:
                best = max(best, exchanged, key=lambda s: sum(seconds[k] for k in s))
    return sorted(best)


@mistake("you compute")
def operations_to_keep(n_bytes, seconds, budget):
    """The densest, exchanged one for one until nothing gets better."""

    def filled(kept):
        for i in sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i]):
            if i not in kept and sum(n_bytes[k] for k in kept) + n_bytes[i] <= budget:
                kept = kept | {i}
        return kept

    kept = filled(frozenset())
    while True:
        swaps = [kept - {i} | {j} for i in kept for j in range(len(n_bytes)) if j not in kept]
        swaps = [filled(swap) for swap in swaps if sum(n_bytes[k] for k in swap) <= budget]
        better = max(swaps, key=lambda s: sum(seconds[k] for k in s), default=kept)
        if sum(seconds[k] for k in better) <= sum(seconds[k] for k in kept):
            return sorted(kept)
        kept = better


@mistake("you compute")
def operations_to_keep(n_bytes, seconds, budget):
    """Each result once as the first, then the densest."""
    best = []
    for first in range(len(n_bytes)):
        kept, left = [], budget
        for i in [first, *sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i])]:
            if i not in kept and n_bytes[i] <= left:
                kept.append(i)
                left -= n_bytes[i]
        best = max(best, kept, key=lambda s: sum(seconds[k] for k in s))
    return sorted(best)


@mistake("you compute")
def operations_to_keep(n_bytes, seconds, budget):
    """A table of the least seconds for each number of bytes, and then the fullest."""
    best = {0: (0.0, [])}
    for i, (size, saved) in enumerate(zip(n_bytes, seconds, strict=True)):
        for used, (so_far, kept) in list(best.items()):
            if used + size <= budget and so_far + saved > best.get(used + size, (-1.0, []))[0]:
                best[used + size] = (so_far + saved, [*kept, i])
    return best[max(best)][1]


@also_right
def operations_to_keep(n_bytes, seconds, budget):
    """Keep it or not: the better of the two, for each result and each budget that is left."""
    from functools import cache

    @cache
    def best(i, left):
        if i == len(n_bytes):
            return 0.0, ()
        without = best(i + 1, left)
        if n_bytes[i] > left:
            return without
        saved, kept = best(i + 1, left - n_bytes[i])
        return max(without, (saved + seconds[i], (i, *kept)), key=lambda each: each[0])

    return list(best(0, budget)[1])


@mistake("you compute")
def operations_to_keep(n_bytes, seconds, budget):
    """The five best choices so far, result by result."""
    best = [(0.0, 0, [])]
    for i in sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i]):
        more = [(saved + seconds[i], used + n_bytes[i], [*kept, i]) for saved, used, kept in best]
        best = sorted([*best, *(each for each in more if each[1] <= budget)], key=lambda each: -each[0])[:5]
    return sorted(best[0][2])


@also_right
def operations_to_keep(n_bytes, seconds, budget):
    """The table of all budgets, and the way back through it."""
    n = len(n_bytes)
    table = np.zeros((n + 1, budget + 1))
    for i in range(n):
        for left in range(budget + 1):
            table[i + 1, left] = table[i, left]
            if n_bytes[i] <= left:
                table[i + 1, left] = max(table[i, left], table[i, left - n_bytes[i]] + seconds[i])
    kept, left = [], budget
    for i in reversed(range(n)):
        if table[i + 1, left] > table[i, left]:
            kept.append(i)
            left -= n_bytes[i]
    return kept[::-1]


@mistake("within a thousandth of a second")
def operations_to_keep(n_bytes, seconds, budget):
    """Whole seconds."""
    best = {0: (0.0, ())}
    for i in range(len(seconds)):
        for used, (saved, kept) in list(best.items()):
            u, s = used + n_bytes[i], saved + int(seconds[i])
            if u <= budget and s > best.get(u, (-1.0,))[0]:
                best[u] = (s, (*kept, i))
    return list(max(best.values())[1])


@mistake("a budget of 0: nothing can be kept, so the answer is []")
def operations_to_keep(n_bytes, seconds, budget):
    from itertools import combinations

    everything = range(len(seconds))
    subsets = [s for n in range(1, len(seconds) + 1) for s in combinations(everything, n)]
    fitting = [s for s in subsets if sum(n_bytes[i] for i in s) <= budget]
    return list(max(fitting, key=lambda s: sum(seconds[i] for i in s)))


@mistake("you change the lists that you are given")
def operations_to_keep(n_bytes, seconds, budget):
    """What is too large for the budget is set to 0 seconds first."""
    from itertools import combinations

    for i, n in enumerate(n_bytes):
        if n > budget:
            seconds[i] = 0.0
    subsets = [s for n in range(len(seconds) + 1) for s in combinations(range(len(seconds)), n)]
    fitting = [s for s in subsets if sum(n_bytes[i] for i in s) <= budget]
    return list(max(fitting, key=lambda s: sum(seconds[i] for i in s)))


# ---- kv_cache_bytes ----


@mistake("a token leaves a key and a value")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return n_tokens * L * G * (D // H) * bytes_each


@mistake("either you keep one for each query head")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens * L * D * bytes_each


@mistake("the pairs are computed and forgotten")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens**2 * L * G * (D // H) * bytes_each


@mistake("the queries are not kept")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return n_tokens * L * (2 * G + H) * (D // H) * bytes_each


@mistake("a head has K = D/H numbers, however many share it")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens * L * G * (D // G) * bytes_each


@mistake("1 bytes each")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens * L * G * (D // H) * max(bytes_each, 2)


@mistake("only the keys, or only the values, are shared here")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return n_tokens * L * (G + H) * (D // H) * bytes_each


@mistake("the newest token leaves a key and a value, too")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * (n_tokens - 1) * L * G * (D // H) * bytes_each


# ---- fit_with_known_floor ----


@mistake("you fitted the logarithm of the loss itself")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(sizes), np.log(losses), 1)
    return np.exp(height), -slope


@mistake("A is still a logarithm")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(sizes), np.log(losses - floor), 1)
    return height, -slope


@mistake("one logarithm only")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(sizes, np.log(losses - floor), 1)
    return np.exp(height), -slope


@mistake("first subtract the floor")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(sizes), np.log(losses) - floor, 1)
    return np.exp(height), -slope


@also_right
def fit_with_known_floor(sizes, losses, floor):
    x, y = np.log10(sizes), np.log10(losses - floor)
    alpha = -((x - x.mean()) @ (y - y.mean())) / ((x - x.mean()) @ (x - x.mean()))
    return 10 ** (y.mean() + alpha * x.mean()), alpha


@mistake("you take the floor to be 0.7")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(sizes), np.log(np.maximum(losses - 0.7, 1e-9)), 1)
    return np.exp(height), -slope


@mistake("A and alpha: at [0]")
def fit_with_known_floor(sizes, losses, floor):
    """The large runs count more."""
    slope, height = np.polyfit(np.log(sizes), np.log(losses - floor), 1, w=np.sqrt(sizes))
    return np.exp(height), -slope


@also_right
def fit_with_known_floor(sizes, losses, floor):
    table = np.stack([np.ones(len(sizes)), -np.log(sizes)], axis=1)
    log_A, alpha = np.linalg.lstsq(table, np.log(losses - floor), rcond=None)[0]
    return np.array([np.exp(log_A), alpha])


@mistake("you write into the arrays")
def fit_with_known_floor(sizes, losses, floor):
    """The floor is subtracted in place."""
    losses -= floor
    s, h = np.polyfit(np.log(sizes), np.log(losses), 1)
    return float(np.exp(h)), float(-s)


@mistake("you sort sizes and losses, each by itself")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(np.sort(sizes)), np.log(np.sort(losses - floor)[::-1]), 1)
    return np.exp(height), -slope


@mistake("you sort the sizes, but not the losses with them")
def fit_with_known_floor(sizes, losses, floor):
    slope, height = np.polyfit(np.log(np.sort(sizes)), np.log(losses - floor), 1)
    return float(np.exp(height)), float(-slope)
