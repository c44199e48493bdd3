"""The NumPy autodiff of the lessons against PyTorch, central differences, and the theory of colourings."""

from __future__ import annotations

import gc
import itertools
import math
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autodiff import implicit, operations, second, sparse
from autodiff.alive import counted as counted_while_alive
from autodiff.dual import jacobian_by_columns, jvp
from autodiff.tape import chain, checkpointed, gradient, jacobian_by_rows, recorded_memory, value_and_gradients, vjp

PRODUCTS = [second.forward_on_reverse, second.reverse_on_forward, second.reverse_on_reverse]
RULES = [sparse.is_proper, sparse.is_acyclic, sparse.is_star, sparse.is_distance_2]
a_few = settings(max_examples=30, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


def assert_close(ours, theirs, tolerance=1e-10):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    assert np.shape(ours) == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1.0, np.abs(theirs).max(initial=0.0)))


# ---- Random programs, each run by both ----

THEIRS = SimpleNamespace(
    sin=torch.sin,
    cos=torch.cos,
    exp=torch.exp,
    log=torch.log,
    tanh=torch.tanh,
    relu=torch.relu,
    where=lambda mask, x, y: torch.where(torch.as_tensor(mask), x, torch.as_tensor(y)),
    sum_of=lambda x, axis=None, keepdims=False: torch.sum(x, axis, keepdims),
    mean=lambda x, axis=None, keepdims=False: torch.mean(x, axis, keepdims),
    reshape=torch.reshape,
    swap_axes=torch.swapaxes,
    broadcast_to=torch.broadcast_to,
    concatenate=torch.cat,
    log_softmax=lambda x: torch.log_softmax(x, -1),
    softmax=lambda x: torch.softmax(x, -1),
    constant=torch.as_tensor,
)
OURS = SimpleNamespace(**vars(operations), constant=np.asarray)

# Each takes the operations (ours or theirs), a matrix, the program's input and a generator; the result is a matrix.
STEPS = {
    "sin": lambda o, z, x, rng: o.sin(z),
    "cos": lambda o, z, x, rng: o.cos(z),
    "tanh": lambda o, z, x, rng: o.tanh(z),
    "relu": lambda o, z, x, rng: o.relu(z),
    "exp": lambda o, z, x, rng: o.exp(o.tanh(z)),
    "log": lambda o, z, x, rng: o.log(1.5 + o.sin(z)),
    "power": lambda o, z, x, rng: (z**2 + 1.0) ** -0.5,
    "quotient": lambda o, z, x, rng: (1.0 - z) / (z * z + 2.0) + 1.0 / (z**2 + 3.0),
    "input again": lambda o, z, x, rng: z * x[1] - x[-1],
    "a row to all": lambda o, z, x, rng: z + z[0],
    "means of columns": lambda o, z, x, rng: z * o.mean(z, 0, True) - o.sum_of(z, 1, True) * 0.5,
    "repeated": lambda o, z, x, rng: o.broadcast_to(o.sum_of(z, 0, True), tuple(z.shape)) + o.sin(z),
    "matrix": lambda o, z, x, rng: z @ o.constant(rng.normal(size=(z.shape[1], 3))),
    "matrix from the left": lambda o, z, x, rng: o.constant(rng.normal(size=(2, z.shape[0]))) @ z,
    "gram": lambda o, z, x, rng: o.tanh(z @ z.T),
    "vectors": lambda o, z, x, rng: z * (z @ z[0])[0] + (z[0] @ z[-1]) + z.T[0] @ z,
    "batch": lambda o, z, x, rng: o.sum_of(o.constant(rng.normal(size=(2, 3, z.shape[0]))) @ z, 0),
    "rows": lambda o, z, x, rng: z[[0, -1, 0]],
    "places": lambda o, z, x, rng: z[np.array([[0, 0], [-1, -1]]), np.array([[0, -1], [0, 0]])],
    "reshape": lambda o, z, x, rng: o.reshape(z, (z.shape[1], z.shape[0])),
    "transposed": lambda o, z, x, rng: o.swap_axes(z, 0, 1),
    "below": lambda o, z, x, rng: o.concatenate([z, o.sin(z)], 0),
    "beside": lambda o, z, x, rng: o.concatenate([z, z * z, o.cos(z)], -1),
    "log_softmax": lambda o, z, x, rng: o.log_softmax(z),
    "softmax": lambda o, z, x, rng: o.softmax(z) * 3.0,
    "where": lambda o, z, x, rng: o.where(rng.random(tuple(z.shape)) < 0.5, z, o.cos(z) * x[0]),
    "where constant": lambda o, z, x, rng: o.where(rng.random(z.shape[1]) < 0.5, z, o.constant(0.25)),
}
programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)


def program(names, seed):
    """A function from six numbers to a vector, for our operations and for theirs."""

    def run(o, x):
        rng = np.random.default_rng(seed)
        z = o.reshape(x, (2, 3))
        for name in names:
            z = STEPS[name](o, z, x, rng)
        return o.reshape(z, (-1,))

    return lambda x: run(OURS, x), lambda x: run(THEIRS, x)


@a_few
@given(programs, seeds)
def test_first_derivatives_are_those_of_pytorch(names, seed):
    f, torch_f = program(names, seed)
    rng = np.random.default_rng(seed)
    x, v = rng.normal(size=(2, 6))
    J = torch.autograd.functional.jacobian(torch_f, torch.tensor(x))
    value, pushed = jvp(f, x, v)
    assert_close(value, torch_f(torch.tensor(x)))
    assert_close(pushed, J @ torch.tensor(v))
    assert_close(jacobian_by_columns(f, x), J)
    assert_close(jacobian_by_rows(f, x), J)
    value, walk = vjp(f, x)
    r = rng.normal(size=value.shape)
    assert_close(walk(r)[0], torch.tensor(r) @ J)


@a_few
@given(programs, seeds)
def test_second_derivatives_in_all_four_ways_are_those_of_pytorch(names, seed):
    f, torch_f = program(names, seed)
    x, u, v = np.random.default_rng(seed).normal(size=(3, 6))
    H = torch.autograd.functional.hessian(lambda x: torch_f(x).sum(), torch.tensor(x)).numpy()

    def total(x):
        return operations.sum_of(f(x))

    for product in PRODUCTS:
        assert_close(product(total, x, v), H @ v)
    assert_close(second.second_derivative(total, x, u, v), u @ H @ v)
    assert_close(second.hessian(total, x), H)
    assert_close(second.hessian_forward_on_forward(total, x), H)


@pytest.mark.parametrize("name", sorted(STEPS))
def test_each_operation_has_the_second_derivative_of_pytorch(name):
    f, torch_f = program([name, "sin"], 1)
    x, v = np.random.default_rng(2).normal(size=(2, 6))
    H = torch.autograd.functional.hessian(lambda x: torch_f(x).sum(), torch.tensor(x)).numpy()
    for product in PRODUCTS:
        assert_close(product(lambda x: operations.sum_of(f(x)), x, v), H @ v)


def test_several_inputs_get_their_own_gradients_and_each_has_its_shape():
    rng = np.random.default_rng(0)
    W, b, x = rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=(5, 4))
    value, gradients = value_and_gradients(lambda W, b: operations.sum_of(operations.tanh(x @ W + b) ** 2), W, b)
    theirs = [torch.tensor(each, requires_grad=True) for each in (W, b)]
    loss = (torch.tanh(torch.tensor(x) @ theirs[0] + theirs[1]) ** 2).sum()
    loss.backward()
    assert value == pytest.approx(loss.item())
    for ours, their in zip(gradients, theirs, strict=True):
        assert_close(ours, their.grad)


# ---- Derivatives inside derivatives ----


def slope(f, x):
    return jvp(f, x, 1.0)[1]


@pytest.mark.parametrize("outer", [slope, gradient])
@pytest.mark.parametrize("inner", [slope, gradient])
def test_nested_derivatives_are_not_confused(outer, inner):
    # d/dx x (d/dy (x + y)) = d/dx x = 1; a confused tangent gives 2 (Siskind and Pearlmutter 2005).
    assert outer(lambda x: x * inner(lambda y: x + y, 1.0), 1.0) == 1.0
    # d/dx [x d/dy (x y²) at y = x] = d/dx 2x³ = 6x².
    assert outer(lambda x: x * inner(lambda y: x * y * y, x), 3.0) == pytest.approx(54.0)
    # d/dx d/dy (y sin x + x y) at y = 2: cos x + 1.
    assert outer(lambda x: inner(lambda y: y * operations.sin(x) + x * y, 2.0), 0.5) == pytest.approx(1 + math.cos(0.5))


@pytest.mark.parametrize(("a", "b", "c"), list(itertools.product([slope, gradient], repeat=3)))
def test_third_derivatives_of_any_modes(a, b, c):
    t = 0.7
    third = a(lambda x: b(lambda x: c(lambda x: operations.sin(x * x), x), x), t)
    assert third == pytest.approx(-12 * t * math.sin(t * t) - 8 * t**3 * math.cos(t * t))


@pytest.mark.parametrize("mode", [slope, gradient])
def test_a_power_has_derivatives_at_0(mode):
    assert [mode(lambda x, n=n: x**n, 0.0) for n in (0, 1, 2)] == [0.0, 1.0, 0.0]
    assert mode(lambda x: mode(lambda x: mode(lambda x: x**2, x), x), 0.0) == 0.0


@pytest.mark.parametrize("mode", [slope, gradient])
def test_what_does_not_look_at_its_input_has_derivative_0(mode):
    assert mode(lambda x: np.float64(3.0), 2.0) == 0.0
    assert mode(lambda x: mode(lambda y: x * x, 1.0), 2.0) == 0.0
    assert mode(lambda x: x, 2.0) == 1.0


# ---- What it costs ----


def counted(f):
    """f, and a list that grows by one with each pass through it."""
    passes = []

    def count(x):
        passes.append(1)
        return f(x)

    return count, passes


def test_a_jacobian_takes_a_pass_for_each_column_or_a_walk_for_each_row():
    W = np.random.default_rng(0).normal(size=(3, 7))
    f, passes = counted(lambda x: operations.tanh(W @ x))
    jacobian_by_columns(f, np.ones(7))
    assert len(passes) == 7
    passes.clear()
    jacobian_by_rows(f, np.ones(7))
    assert len(passes) == 3 + 1  # one to see how many rows there are


def test_a_hessian_takes_n_products_or_n_n_plus_1_halves_passes():
    f, passes = counted(lambda x: operations.sum_of(x**4))
    for product in PRODUCTS:
        second.hessian(f, np.ones(7), product)
        assert len(passes) == 7
        passes.clear()
    second.hessian_forward_on_forward(f, np.ones(7))
    assert len(passes) == 28


def most_held(f, x):
    with recorded_memory() as memory:
        result = gradient(f, x)
    assert memory.now == 0, "the walk back has freed the graph"
    return max(memory.history), result


@pytest.mark.parametrize("root", [4, 6, 8])
def test_checkpoints_hold_about_two_roots_of_the_layers(root):
    L, width = root**2, 10
    layers = [operations.sin] * L
    most, expected = most_held(lambda x: operations.sum_of(chain(layers, x)), np.ones(width))
    assert most == (L + 1) * width + 1
    most, gradient_ = most_held(lambda x: operations.sum_of(chain(layers, x, root)), np.ones(width))
    assert_close(gradient_, expected, 1e-15)
    assert (most - 1) / width in (2 * root + 1, 2 * root + 2)  # the starts, one segment, its input once more


@given(seeds)
@settings(max_examples=10, deadline=None, derandomize=True)
def test_checkpoints_change_no_derivative(seed):
    x, v = np.random.default_rng(seed).normal(size=(2, 6))
    layers = [operations.sin, operations.log_softmax, lambda x: x * x[0], operations.tanh, lambda x: x[[1, 1, 2, 0]]]

    def total(x, n_segments=None):
        return operations.sum_of(chain(layers, x, n_segments) ** 2)

    for product in PRODUCTS:
        assert_close(product(lambda x: total(x, 2), x, v), product(total, x, v), 1e-13)


def test_a_checkpoint_with_several_inputs_gives_each_its_share():
    rng = np.random.default_rng(3)
    W, x = rng.normal(size=(3, 4)), rng.normal(size=4)

    def layer(W, x):
        return operations.sum_of(operations.tanh(W @ x))

    _, plainly = value_and_gradients(layer, W, x)
    _, again = value_and_gradients(lambda W, x: checkpointed(layer, W, x), W, x)
    for ours, theirs in zip(again, plainly, strict=True):
        assert_close(ours, theirs, 1e-15)


def test_forward_on_reverse_holds_twice_a_gradient_and_the_others_more():
    def f(x):
        return operations.sum_of(chain([operations.sin] * 20, x))

    most = {}
    for product in (None, *PRODUCTS):
        with recorded_memory() as memory:
            gradient(f, np.ones(5)) if product is None else product(f, np.ones(5), np.ones(5))
        most[product] = max(memory.history)
    assert most[second.forward_on_reverse] == 2 * most[None]
    assert min(most[second.reverse_on_forward], most[second.reverse_on_reverse]) > 1.3 * most[second.forward_on_reverse]
    with recorded_memory() as memory:
        second.second_derivative(f, np.ones(5), np.ones(5), np.ones(5))
    assert not memory.history


# ---- Implicit differentiation ----


def central(solve, parameters, tangents, step=1e-5):
    """The change of a solver's answer along the tangents."""
    ahead, behind = (
        solve(*[p + sign * step * t for p, t in zip(parameters, tangents, strict=True)]) for sign in (1, -1)
    )
    return (ahead - behind) / (2 * step)


def assert_implicit(F, solve, parameters, rng):
    """Both rules against the solver's own differences, and against each other."""
    solution = solve(*parameters)
    assert_close(F(solution, *parameters), np.zeros(len(solution)), 1e-12)
    tangents = [rng.normal(size=np.shape(p)) for p in parameters]
    pushed = implicit.implicit_jvp(F, solution, parameters, tangents)
    assert_close(pushed, central(solve, parameters, tangents), 1e-6)
    r = rng.normal(size=len(solution))
    pulled = implicit.implicit_vjp(F, solution, parameters, r)
    assert [np.shape(each) for each in pulled] == [np.shape(p) for p in parameters]
    assert_close(r @ pushed, sum(np.sum(a * b) for a, b in zip(pulled, tangents, strict=True)), 1e-10)


@a_few
@given(seeds)
def test_through_a_fixed_point(seed):
    rng = np.random.default_rng(seed)
    M, b = 0.3 * rng.normal(size=(4, 4)) / 2, rng.normal(size=4)

    def g(w, M, b):
        return operations.tanh(M @ w + b)

    assert_implicit(implicit.of_fixed_point(g), lambda *p: implicit.iterate(g, np.zeros(4), *p), [M, b], rng)


def test_through_newtons_square_root():
    def g(w, a):
        return (w + a / w) * 0.5

    a = np.array([2.0, 9.0])
    root = implicit.iterate(g, np.ones(2), a, n_steps=20)
    F = implicit.of_fixed_point(g)
    assert_close(implicit.implicit_vjp(F, root, [a], np.ones(2))[0], 0.5 / np.sqrt(a), 1e-15)
    assert_close(implicit.implicit_jvp(F, root, [a], [np.array([1.0, 0.0])]), [0.5 / math.sqrt(2), 0.0], 1e-15)


@a_few
@given(seeds)
def test_through_an_argmin(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)

    def loss(w, X, y, decay):  # strictly convex, and not quadratic
        gap = X @ w - y
        return operations.sum_of(gap * gap) + operations.sum_of(gap**4) * 0.1 + decay * operations.sum_of(w * w)

    F = implicit.of_argmin(loss)

    def solve(*parameters):
        w = np.zeros(3)
        while np.abs(slope := F(w, *parameters)).max() > 1e-12:
            w = w - np.linalg.solve(jacobian_by_columns(lambda w: F(w, *parameters), w), slope)
        return w

    assert_implicit(F, solve, [X, y, np.array(0.5)], rng)


@pytest.mark.parametrize("curvature", [0.0, 1.0], ids=["LP", "QP"])
@a_few
@given(seed=seeds)
def test_through_the_solution_of_a_program(curvature, seed):
    rng = np.random.default_rng(seed)
    n, m = 5, 2
    A = np.vstack([np.ones(n), rng.normal(size=n)])  # the first row keeps x bounded
    # A pair of solutions that we know: some x are positive, the others have a positive slope.
    free = rng.permutation(n)[: m + int(curvature)]
    x, slack = np.zeros(n), rng.uniform(0.5, 1.5, size=n)
    x[free], slack[free] = rng.uniform(0.5, 1.5, size=len(free)), 0.0
    y, root = rng.normal(size=m), rng.normal(size=(n, n))
    Q = curvature * (root @ root.T / n + np.eye(n))
    b, c = A @ x, A.T @ y + slack - Q @ x
    if curvature == 0 and abs(np.linalg.det(A[:, free])) < 0.2:
        return
    assert_close(implicit.solve_program(Q, c, A, b), np.concatenate([x, y]), 1e-9)
    F = implicit.of_program(n)
    if curvature:
        assert_implicit(F, implicit.solve_program, [Q, c, A, b], rng)
    else:  # Q stays 0
        assert_implicit(lambda w, *p: F(w, Q, *p), lambda *p: implicit.solve_program(Q, *p), [c, A, b], rng)


def test_a_program_without_one_clear_solution_is_refused():
    with pytest.raises(ValueError, match="strict complementarity"):
        implicit.solve_program(np.zeros((2, 2)), np.ones(2), np.ones((1, 2)), np.array([1.0]))


# ---- Sparse ----

PATH = [(0, 1), (0, 2), (1, 3)]  # of the lecture notes' matrix (1.50)
ARROW = [(0, i) for i in range(1, 6)]
CYCLE = [(0, 1), (1, 2), (2, 3), (0, 3)]
CHAIN = [(i, i + 1) for i in range(1, 5)]
graphs = st.integers(1, 5).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(list(itertools.combinations(range(max(n, 2)), 2)))))
)


def graph_of(n, edges):
    return [{j for edge in edges if i in edge for j in edge if j != i} for i in range(n)]


@pytest.mark.parametrize(
    ("n", "edges", "numbers"),
    [
        (4, PATH, [2, 2, 3, 3]),
        (6, ARROW, [2, 2, 2, 6]),
        (4, CYCLE, [2, 3, 3, 4]),
        (6, ARROW + CHAIN, [3, 3, 4, 6]),
    ],
    ids=["path", "arrow", "cycle", "arrow and chain"],
)
def test_chromatic_numbers(n, edges, numbers):
    graph = graph_of(n, edges)
    assert [sparse.fewest_colours(graph, rule) for rule in RULES] == numbers
    assert numbers == [brute_force(graph, rule) for rule in RULES]


def brute_force(graph, rule):
    """The number by the definition in words: every colouring is tried."""
    for n_colours in itertools.count(1):
        for colours in itertools.product(range(n_colours), repeat=len(graph)):
            if DEFINITIONS[rule](graph, colours):
                return n_colours
    raise AssertionError


def paths(graph, n_vertices):
    """Every path of n different vertices."""
    found = [(i,) for i in range(len(graph))]
    for _ in range(n_vertices - 1):
        found = [(*path, j) for path in found for j in graph[path[-1]] if j not in path]
    return found


def is_proper_in_words(graph, colours):
    return all(colours[i] != colours[j] for i, j in paths(graph, 2))


def every_cycle_has_three_colours(graph, colours):
    cycles = [p for n in range(3, len(graph) + 1) for p in paths(graph, n) if p[0] in graph[p[-1]]]
    return is_proper_in_words(graph, colours) and all(len({colours[i] for i in cycle}) > 2 for cycle in cycles)


def every_path_of_four_has_three_colours(graph, colours):
    return is_proper_in_words(graph, colours) and all(len({colours[i] for i in p}) > 2 for p in paths(graph, 4))


def ends_of_paths_of_three_differ(graph, colours):
    return is_proper_in_words(graph, colours) and all(colours[i] != colours[k] for i, _, k in paths(graph, 3))


DEFINITIONS = {
    sparse.is_proper: is_proper_in_words,
    sparse.is_acyclic: every_cycle_has_three_colours,
    sparse.is_star: every_path_of_four_has_three_colours,
    sparse.is_distance_2: ends_of_paths_of_three_differ,
}


@a_few
@given(graphs, st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_each_rule_is_its_definition(drawn, colours):
    n, edges = drawn
    graph = graph_of(n, [edge for edge in edges if max(edge) < n])
    for rule in RULES:
        assert rule(graph, colours[:n]) == DEFINITIONS[rule](graph, colours[:n])


@a_few
@given(graphs)
def test_the_chain_of_inequalities_1_56(drawn):
    n, edges = drawn
    graph = graph_of(n, [edge for edge in edges if max(edge) < n])
    numbers = [sparse.fewest_colours(graph, rule) for rule in RULES]
    assert numbers == sorted(numbers)
    for rule, number in zip(RULES, numbers, strict=True):
        colours = sparse.greedy_colouring(graph, rule)
        assert rule(graph, colours)
        assert number <= len(set(colours)) == max(colours) + 1


def energy(n, edges, diagonal, o=operations):
    """A function whose Hessian has these entries, and no others."""

    def f(x):
        terms = [o.sin(x[i] * x[j] + i) for i, j in edges] + [o.sin(x[i] * 1.3) for i in diagonal]
        return sum(terms, 0.0 * x[0])

    return f


@a_few
@given(graphs, seeds)
def test_hessians_by_three_colourings_are_those_of_pytorch(drawn, seed):
    n, edges = drawn
    edges = sorted(edge for edge in edges if max(edge) < n)
    diagonal = [i for i in range(n) if (seed >> i) & 1]
    f = energy(n, edges, diagonal)
    x = np.random.default_rng(seed).normal(size=n)
    H = torch.autograd.functional.hessian(energy(n, edges, diagonal, torch), torch.tensor(x))
    pattern = sparse.detect_pattern(lambda x: gradient(f, x), n)
    expected = np.zeros((n, n), bool)
    for i, j in edges + [(i, i) for i in diagonal]:
        expected[[i, j], [j, i]] = True
    expected |= np.diag([any(i in edge for edge in edges) for i in range(n)])
    np.testing.assert_array_equal(pattern, expected)
    for rule in sparse.RECOVERIES:
        passes_of_f, passes = counted(f)
        found, n_products = sparse.sparse_hessian(passes_of_f, x, pattern, rule)
        assert_close(found, H)
        assert len(passes) == n_products == len(set(sparse.greedy_colouring(graph_of(n, edges), rule)))


@a_few
@given(st.integers(1, 6), st.integers(2, 7), seeds)
def test_sparse_jacobians_are_those_of_pytorch(m, n, seed):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.35)
    x = rng.normal(size=n)
    pattern = sparse.detect_pattern(lambda x: operations.sin(W @ x), n)
    np.testing.assert_array_equal(pattern, W != 0)
    f, passes = counted(lambda x: operations.sin(W @ x))
    J, n_products = sparse.sparse_jacobian(f, x, pattern)
    assert_close(J, torch.autograd.functional.jacobian(lambda x: torch.sin(torch.tensor(W) @ x), torch.tensor(x)))
    assert len(passes) == n_products
    assert max(pattern.sum(axis=1).max(), 1) <= n_products <= n  # a row's entries all need products of their own


@pytest.mark.parametrize(
    ("n", "edges", "products"),
    [(4, PATH, [3, 3, 2]), (6, ARROW, [6, 2, 2]), (9, [(i, i + 1) for i in range(8)], [3, 3, 2])],
    ids=["path", "arrow", "chain"],
)
def test_products_used_by_each_colouring(n, edges, products):
    f = energy(n, edges, range(n))
    pattern = sparse.detect_pattern(lambda x: gradient(f, x), n)
    x = np.random.default_rng(0).normal(size=n)
    used = [sparse.sparse_hessian(f, x, pattern, rule)[1] for rule in sparse.RECOVERIES]
    assert used == products


def test_the_pattern_of_a_kink_is_that_of_both_sides():
    f = operations.relu
    assert sparse.detect_pattern(f, 1)[0, 0]
    np.testing.assert_array_equal(sparse.detect_pattern(lambda x: operations.relu(x[:2] * x[1:]), 3).sum(), 4)


# ---- What is alive ----


class Thing:
    def __init__(self, *held: object) -> None:
        self.held = list(held)


def test_things_are_counted_while_they_live_and_those_that_hold_each_other_too():
    with counted_while_alive(Thing) as alive:
        first = Thing()
        Thing(first)
        assert (alive.now, alive.most) == (1, 2)
        first.held.append(first)  # nobody else will ever see it again, and it stays
        del first
        assert (alive.now, alive.most) == (1, 2)
        block = Thing(np.zeros(100_000))
    assert 800_000 < alive.most_bytes < 900_000
    Thing(block)
    assert alive.most == 2, "what is made afterwards does not count"
    assert gc.isenabled()


def test_a_count_ends_with_an_error_too():
    init = Thing.__init__
    with pytest.raises(KeyError), counted_while_alive(Thing):
        raise KeyError
    assert Thing.__init__ is init
    assert not tracemalloc.is_tracing()
