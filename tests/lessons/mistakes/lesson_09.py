"""Lesson 9: what students think of costs that is not so."""

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


# ---- kv_cache_bytes ----


@mistake("a token leaves a key and a value")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return n_tokens * L * G * (D // H) * bytes_each


@mistake("a key for each query head")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens * L * D * bytes_each


@mistake("the pairs are computed and forgotten")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return 2 * n_tokens**2 * L * G * (D // H) * bytes_each


@mistake("the queries are not kept")
def kv_cache_bytes(n_tokens, L, D, H, G, bytes_each=2):
    return n_tokens * L * (2 * G + H) * (D // H) * bytes_each


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
