"""Mistakes and second solutions of lesson 4*."""

from trying import also_right, mistake


@mistake("the slope of one step")
def implicit_derivative(g, w, p):
    return jvp(lambda p: g(w, p), p, 1.0)[1]


@mistake("your sign is lost")
def implicit_derivative(g, w, p):
    by_w = jvp(lambda w: g(w, p), w, 1.0)[1]
    by_p = jvp(lambda p: g(w, p), p, 1.0)[1]
    return -by_p / (1 - by_w)


@mistake("you follow p through two steps")
def implicit_derivative(g, w, p):
    return jvp(lambda p: g(g(w, p), p), p, 1.0)[1]


@mistake("you took g for F")
def implicit_derivative(g, w, p):
    by_w = jvp(lambda w: g(w, p), w, 1.0)[1]
    by_p = jvp(lambda p: g(w, p), p, 1.0)[1]
    return -by_p / by_w


@mistake("the steps of this g run *away* from w")
def implicit_derivative(g, w, p):
    """Unrolled: 200 steps, from where the solution is."""

    def unrolled(p):
        state = w
        for _ in range(200):
            state = g(state, p)
        return state

    return jvp(unrolled, p, 1.0)[1]


@mistake("`jvp` has no step")
def implicit_derivative(g, w, p):
    step = 1e-5
    by_w = (g(w + step, p) - g(w - step, p)) / (2 * step)
    by_p = (g(w, p + step) - g(w, p - step)) / (2 * step)
    return by_p / (1 - by_w)


@also_right
def implicit_derivative(g, w, p):
    A = gradient(lambda w: w - g(w, p), w)
    return -gradient(lambda p: w - g(w, p), p) / A


@also_right
def implicit_derivative(g, w, p):
    """Along the line (w + t ẇ, p + t), F stays 0: ẇ is where a linear function of ẇ is 0."""

    def drift(by_p):
        return jvp(lambda t: w + t * by_p - g(w + t * by_p, p + t), 0.0, 1.0)[1]

    return -drift(0.0) / (drift(1.0) - drift(0.0))


@mistake("the steps of this g run *away* from w")
def implicit_derivative(g, w, p):
    slope = 0.0
    for _ in range(500):  # of the fixed point that the slope itself is
        slope = jvp(lambda w: g(w, p), w, slope)[1] + jvp(lambda p: g(w, p), p, 1.0)[1]
    return slope


@mistake("right for a symmetric A only")
def pull_linear_system(cotangent, A, b):
    w, y = np.linalg.solve(A, b), np.linalg.solve(A, cotangent)
    return -np.outer(y, w), y


@mistake("you changed what you were given")
def pull_linear_system(cotangent, A, b):
    w = np.linalg.solve(A, b)
    cotangent[:] = np.linalg.solve(A.T, cotangent)
    return -np.outer(cotangent, w), cotangent.copy()


@mistake("what A gets")
def pull_linear_system(cotangent, A, b):
    """A gets something on its diagonal alone."""
    w, y = np.linalg.solve(A, b), np.linalg.solve(A.T, cotangent)
    return -np.diag(y * w), y


@also_right
def pull_linear_system(cotangent, A, b):
    inverse = np.linalg.inv(A)
    y = cotangent @ inverse
    return -(y[:, None] * (inverse @ b)[None, :]), y


@mistake("the sign is lost")
def pull_linear_system(cotangent, A, b):
    w, y = np.linalg.solve(A, b), np.linalg.solve(A.T, cotangent)
    return np.outer(y, w), y


@mistake("you weigh equation i by r_i")
def pull_linear_system(cotangent, A, b):
    w, y = np.linalg.solve(A, b), np.linalg.solve(A.T, cotangent)
    return -np.outer(cotangent, w), y


@mistake("you used b where the solution w belongs")
def pull_linear_system(cotangent, A, b):
    y = np.linalg.solve(A.T, cotangent)
    return -np.outer(y, b), y


@mistake("zeros on the diagonal of A")
def pull_linear_system(cotangent, A, b):
    def solve(A, b):
        A, b = np.array(A, float), np.array(b, float)
        n = len(b)
        for i in range(n):
            for k in range(i + 1, n):
                f = A[k, i] / A[i, i]
                A[k] -= f * A[i]
                b[k] -= f * b[i]
        for i in reversed(range(n)):
            b[i] = (b[i] - A[i, i + 1 :] @ b[i + 1 :]) / A[i, i]
        return b

    y = solve(A.T, cotangent)
    return -np.outer(y, solve(A, b)), y


@also_right
def pull_linear_system(cotangent, A, b):
    B = np.linalg.inv(A)
    return -np.einsum("ki,jl,k,l->ij", B, B, cotangent, b), np.einsum("ki,k->i", B, cotangent)


@mistake("the sign is lost")
def temperature_slope(loss, temperature, logits):
    def slope(a, z):
        return jvp(lambda a: loss(a, z), a, 1.0)[1]

    return gradient(lambda z: slope(temperature, z), logits) / jvp(lambda a: slope(a, logits), temperature, 1.0)[1]


@mistake("depends on how sharply it is curved")
def temperature_slope(loss, temperature, logits):
    return -gradient(lambda z: jvp(lambda a: loss(a, z), temperature, 1.0)[1], logits)


@mistake("which is 0 at its minimum")
def temperature_slope(loss, temperature, logits):
    slope = jvp(lambda a: loss(a, logits), temperature, 1.0)[1]
    return -gradient(lambda z: loss(temperature, z), logits) / slope


@mistake("you took how the *loss* changes with a logit")
def temperature_slope(loss, temperature, logits):
    curvature = jvp(lambda a: jvp(lambda a: loss(a, logits), a, 1.0)[1], temperature, 1.0)[1]
    return -gradient(lambda z: loss(temperature, z), logits) / curvature


@mistake("if you take a difference of two runs")
def temperature_slope(loss, temperature, logits):
    step = 1e-4 * temperature

    def slope(a):
        return jvp(lambda a: loss(a, logits), a, 1.0)[1]

    above, below = (gradient(lambda z, a=a: loss(a, z), logits) for a in (temperature + step, temperature - step))
    return -(above - below) / (slope(temperature + step) - slope(temperature - step))


@mistake("if you take a difference of two runs")
def temperature_slope(loss, temperature, logits):
    """The mixed derivative is right; only the curvature is a difference."""
    step = 1e-5

    def slope(a, z):
        return jvp(lambda a: loss(a, z), a, 1.0)[1]

    curvature = (slope(temperature + step, logits) - slope(temperature - step, logits)) / (2 * step)
    return -gradient(lambda z: slope(temperature, z), logits) / curvature


@also_right
def temperature_slope(loss, temperature, logits):
    import numpy as np

    from autodiff import implicit

    solution = np.array([temperature])
    F = implicit.of_argmin(lambda a, z: loss(a, z))
    return implicit.implicit_vjp(F, solution, [logits], np.ones(1))[0]


@also_right
def temperature_slope(loss, temperature, logits):
    def gradient_by_logits(a):
        return gradient(lambda z: loss(a, z), logits)

    curvature = gradient(lambda a: gradient(lambda a: loss(a, logits), a), temperature)
    return -jvp(gradient_by_logits, temperature, 1.0)[1] / curvature


@also_right
def temperature_slope(loss, temperature, logits):
    c = jvp(lambda a: jvp(lambda a: loss(a, logits), a, 1.0)[1], temperature, 1.0)[1]
    return -jvp(lambda a: gradient(lambda z: loss(a, z), logits), temperature, 1.0)[1] / c


@mistake("have one colour, but both have an entry in row")
def colour_columns(pattern):
    """Neighbours are columns i and j with an entry (i, j), as in a symmetric matrix."""
    n = max(pattern.shape)
    square = np.zeros((n, n), bool)
    square[: pattern.shape[0], : pattern.shape[1]] = pattern
    colours = []
    for j in range(pattern.shape[1]):
        taken = {colours[k] for k in range(j) if square[j, k] | square[k, j]}
        colours.append(next(colour for colour in range(j + 1) if colour not in taken))
    return colours


@mistake("5 colours are 5 products, and 2 are enough")
def colour_columns(pattern):
    return list(range(pattern.shape[1]))


@mistake("have one colour, but both have an entry in row")
def colour_columns(pattern):
    """Only the column before is looked at."""
    colours = [0]
    for j in range(1, pattern.shape[1]):
        shares = np.any(pattern[:, j] & pattern[:, j - 1])
        colours.append(1 - colours[-1] if shares else colours[-1])
    return colours


@mistake("a matrix of 3 by 4: columns 1 and 3 have one colour")
def colour_columns(pattern):
    """A colour that is taken by an earlier column is passed, but not looked at again."""
    colours = []
    for j in range(pattern.shape[1]):
        colour = 0
        for k in range(j):
            if colours[k] == colour and np.any(pattern[:, j] & pattern[:, k]):
                colour += 1
        colours.append(colour)
    return colours


@mistake("have one colour, but both have an entry in row")
def colour_columns(pattern):
    """A column is compared with the last one of each colour, not with all of them."""
    colours, last = [], []
    for j in range(pattern.shape[1]):
        free = [colour for colour, k in enumerate(last) if not np.any(pattern[:, j] & pattern[:, k])]
        colour = free[0] if free else len(last)
        last[colour : colour + 1] = [j]
        colours.append(colour)
    return colours


@mistake("number them 0, 1, 2, … without gaps")
def colour_columns(pattern):
    """Colours begin at 1."""
    colours = []
    for j in range(pattern.shape[1]):
        taken = {colours[k] for k in range(j) if np.any(pattern[:, j] & pattern[:, k])}
        colours.append(next(colour for colour in range(1, j + 2) if colour not in taken))
    return colours


@also_right
def colour_columns(pattern):
    n = pattern.shape[1]
    shares = (pattern.T.astype(int) @ pattern) > 0
    colours = np.full(n, -1)
    colour = 0
    while (colours < 0).any():  # one colour after the other takes all columns that it can
        for j in np.flatnonzero(colours < 0):
            if not shares[j, colours == colour].any():
                colours[j] = colour
        colour += 1
    return colours.tolist()


@also_right
def colour_columns(pattern):
    masks, c = [], []
    for column in np.asarray(pattern, bool).T:
        bits = int("".join("1" if e else "0" for e in column) or "0", 2)
        i = 0
        while i < len(masks) and masks[i] & bits:
            i += 1
        masks += [0] * (i + 1 - len(masks))
        masks[i] |= bits
        c.append(i)
    return c


@mistake("a full lower triangle of 12 by 12: columns")
def colour_columns(pattern):
    """As many colours as five."""
    colours = []
    for j in range(pattern.shape[1]):
        taken = {colours[k] for k in range(j) if np.any(pattern[:, j] & pattern[:, k])}
        colours.append(next((colour for colour in range(4) if colour not in taken), 4))
    return colours


@mistake("changes what it is given")
def colour_columns(pattern):
    c = [0] * pattern.shape[1]
    colour = 0
    left = list(range(pattern.shape[1]))
    while left:
        covered = np.zeros(len(pattern), bool)
        rest = []
        for j in left:
            if np.any(covered & pattern[:, j]):
                rest.append(j)
            else:
                covered |= pattern[:, j]
                pattern[:, j] = False
                c[j] = colour
        left, colour = rest, colour + 1
    return c


@also_right
def colour_columns(pattern):
    S = pattern.T.astype(int) @ pattern.astype(int) > 0
    c = np.full(len(S), -1)
    for j in range(len(S)):
        c[j] = np.setdiff1d(np.arange(len(S)), c[S[j]])[0]
    return c.tolist()


@mistake("coloured as in (1.51)")
def is_star(neighbours, colours):
    """Proper is all that is looked at."""
    return all(colours[i] != colours[j] for i, near in enumerate(neighbours) for j in near)


@mistake("though its ends are neighbours too")
def is_star(neighbours, colours):
    """Rings of four are forgotten: a path must not come back to a neighbour of its start."""
    for b, near in enumerate(neighbours):
        for c in near:
            if colours[b] == colours[c]:
                return False
            for a in near - {c}:
                for d in neighbours[c] - {a, b} - neighbours[a]:
                    if len({colours[a], colours[b], colours[c], colours[d]}) == 2:
                        return False
    return True


@mistake("you say it is no star, but")
def is_star(neighbours, colours):
    """A walk may come back: a-b-a-b is taken for a path of four."""
    for b, near in enumerate(neighbours):
        for c in near:
            for a in near:
                for d in neighbours[c]:
                    if len({colours[a], colours[b], colours[c], colours[d]}) < 3:
                        return False
    return True


@mistake("you say it is a star, but")
def is_star(neighbours, colours):
    """Each vertex is the end of at most one path: only the first way on is looked at."""
    for a, near in enumerate(neighbours):
        if any(colours[a] == colours[b] for b in near):
            return False
        for b in near:
            for c in sorted(neighbours[b] - {a})[:1]:
                for d in sorted(neighbours[c] - {a, b})[:1]:
                    if len({colours[a], colours[b], colours[c], colours[d]}) == 2:
                        return False
    return True


@also_right
def is_star(neighbours, colours):
    """Each vertex has, in each two-coloured part, all edges or one."""
    for i, near in enumerate(neighbours):
        if any(colours[j] == colours[i] for j in near):
            return False
        for j in near:
            i_has = sum(colours[k] == colours[j] for k in near)
            j_has = sum(colours[k] == colours[i] for k in neighbours[j])
            if i_has > 1 and j_has > 1:
                return False
    return True


@mistake("coloured as in (1.51)")
def is_star(neighbours, colours):
    """Triangles must have three colours; paths are forgotten."""
    return all(
        len({colours[a], colours[b], colours[c]}) == 3 if c in neighbours[a] else colours[a] != colours[b]
        for b, near in enumerate(neighbours)
        for a in near
        for c in near | {a}
    )


@mistake("it is distance 2 that forbids it")
def is_star(neighbours, colours):
    """Neighbours of one vertex must differ."""
    return all(len({colours[j] for j in {i} | near}) == 1 + len(near) for i, near in enumerate(neighbours))


@also_right
def is_star(neighbours, colours):
    import itertools

    def is_path(vertices):
        return all(b in neighbours[a] for a, b in itertools.pairwise(vertices))

    vertices = range(len(neighbours))
    return all(colours[a] != colours[b] for a in vertices for b in neighbours[a]) and all(
        len({colours[i] for i in path}) > 2 for path in itertools.permutations(vertices, 4) if is_path(path)
    )


@also_right
def is_star(neighbours, colours):
    for i, n in enumerate(neighbours):
        if any(colours[i] == colours[j] for j in n):
            return False
        for j in n:
            mine = sum(colours[k] == colours[j] for k in n)
            theirs = sum(colours[k] == colours[i] for k in neighbours[j])
            if mine > 1 and theirs > 1:
                return False
    return True


@mistake("changes what it is given")
def is_star(neighbours, colours):
    for b, n in enumerate(neighbours):
        for c in list(n):
            if colours[b] == colours[c]:
                return False
            for a in n - {c}:
                for d in neighbours[c] - {b}:
                    if colours[a] == colours[c] and colours[b] == colours[d]:
                        return False
    for n in neighbours:
        n.clear()
    return True


@mistake("which is a sum of entries")
def peel(pattern, products, colours):
    H = np.diag(products[range(len(colours)), colours])
    for tree in two_coloured_parts(graph_of_symmetric(pattern), colours):
        for i, j in tree:
            H[i, j] = H[j, i] = products[i, colours[j]]
    return H


@mistake("some of whose entries are 0")
def peel(pattern, products, colours):
    """What is not 0 in H counts as known."""
    n = len(colours)
    H = np.diag([products[i, colour] * pattern[i, i] for i, colour in enumerate(colours)])
    graph = graph_of_symmetric(pattern)
    for _ in range(n * n):
        for i in range(n):
            for j in graph[i]:
                unknown = [k for k in graph[i] if colours[k] == colours[j] and H[i, k] == 0]
                if unknown == [j]:
                    known = sum(H[i, k] for k in graph[i] if colours[k] == colours[j])
                    H[i, j] = H[j, i] = products[i, colours[j]] - known
    return H if (H[pattern] != 0).all() else H * 0


@also_right
def peel(pattern, products, colours):
    """Sweeps: an entry is known when all others of its sum are."""
    n = len(colours)
    H = np.diag([products[i, colour] * pattern[i, i] for i, colour in enumerate(colours)])
    graph = graph_of_symmetric(pattern)
    left = {(i, j) for i in range(n) for j in graph[i]}
    while left:
        for i, j in sorted(left):
            others = [k for k in graph[i] - {j} if colours[k] == colours[j]]
            if (i, j) in left and not any((i, k) in left for k in others):
                H[i, j] = H[j, i] = products[i, colours[j]] - sum(H[i, k] for k in others)
                left -= {(i, j), (j, i)}
    return H


@mistake("an entry of the diagonal")
def peel(pattern, products, colours):
    H = np.diag(products[range(len(colours)), colours])
    rest = products.copy()
    for tree in two_coloured_parts(graph_of_symmetric(pattern), colours):
        edges = set(tree)
        while edges:
            ends = [end for edge in edges for end in edge]
            i, j = next(edge for edge in edges if 1 in (ends.count(edge[0]), ends.count(edge[1])))
            edges.remove((i, j))
            leaf, other = (i, j) if ends.count(i) == 1 else (j, i)
            H[leaf, other] = H[other, leaf] = rest[leaf, colours[leaf]]
    return H


@mistake("only one half of H is right")
def peel(pattern, products, colours):
    H = np.diag(products[range(len(colours)), colours])
    rest = products.copy()
    for tree in two_coloured_parts(graph_of_symmetric(pattern), colours):
        edges = set(tree)
        while edges:
            ends = [end for edge in edges for end in edge]
            i, j = next(edge for edge in edges if 1 in (ends.count(edge[0]), ends.count(edge[1])))
            edges.remove((i, j))
            leaf, other = (i, j) if ends.count(i) == 1 else (j, i)
            H[leaf, other] = rest[leaf, colours[other]]
            rest[other, colours[leaf]] -= H[leaf, other]
    return H


@also_right
def peel(pattern, products, colours):
    n, n_colours = products.shape
    places = [(i, j) for i in range(n) for j in range(i, n) if pattern[i, j]]
    equations = np.zeros((n * n_colours, len(places)))  # a sum for each product, an unknown for each entry
    for unknown, (i, j) in enumerate(places):
        equations[i * n_colours + colours[j], unknown] = 1
        equations[j * n_colours + colours[i], unknown] = 1
    entries = np.linalg.lstsq(equations, products.ravel(), rcond=None)[0]
    H = np.zeros((n, n))
    for (i, j), entry in zip(places, entries, strict=True):
        H[i, j] = H[j, i] = entry
    return H


@also_right
def peel(pattern, products, colours):
    n = len(pattern)
    H = np.zeros((n, n))
    where = [(i, j) for i in range(n) for j in range(i, n) if pattern[i, j]]
    number = {e: k for k, e in enumerate(where)}
    M = np.zeros((*products.shape, len(where)))
    for i in range(n):
        for j in range(n):
            if pattern[i, j]:
                M[i, colours[j], number[min(i, j), max(i, j)]] += 1
    x = np.linalg.lstsq(M.reshape(-1, len(where)), np.asarray(products, float).ravel(), rcond=None)[0]
    for (i, j), value in zip(where, x, strict=True):
        H[i, j] = H[j, i] = value
    return H


@mistake("from left to right")
def colour_columns(pattern):
    """the fullest columns first"""
    meets = (pattern.T.astype(int) @ pattern.astype(int)) > 0
    colours = {}
    for j in sorted(range(pattern.shape[1]), key=lambda j: -meets[j].sum()):
        taken = {colours[k] for k in colours if meets[j, k]}
        colours[j] = next(c for c in range(pattern.shape[1]) if c not in taken)
    return [colours[j] for j in range(pattern.shape[1])]


@mistake("two full columns of 256 rows")
def colour_columns(pattern):
    """the number of shared rows in 8 bits"""
    shared = pattern.T.astype(np.uint8) @ pattern.astype(np.uint8)
    colours = []
    for j in range(pattern.shape[1]):
        taken = {colours[k] for k in range(j) if shared[j, k]}
        colours.append(next(c for c in range(j + 1) if c not in taken))
    return colours


@mistake("4 colours are 4 products")
def colour_columns(pattern):
    """the highest colour of a neighbour, plus one"""
    colours = []
    for j in range(pattern.shape[1]):
        taken = [colours[k] for k in range(j) if np.any(pattern[:, j] & pattern[:, k])]
        colours.append(0 if 0 not in taken else max(taken) + 1)
    return colours


@mistake("two paths apart")
def is_star(neighbours, colours):
    """at most one middle for each pair of colours"""
    from collections import Counter

    middles = Counter()
    for b, near in enumerate(neighbours):
        if any(colours[b] == colours[c] for c in near):
            return False
        for colour, n in Counter(colours[c] for c in near).items():
            if n > 1:
                middles[frozenset((colours[b], colour))] += 1
    return all(n < 2 for n in middles.values())
