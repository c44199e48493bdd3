"""Mistakes and second solutions of lesson 3*."""

from trying import also_right, mistake


@mistake("even where x and y are straight lines")
def push_product_twice(x, y):
    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_ij * y + x * y_ij


@mistake("the slopes are multiplied in two ways")
def push_product_twice(x, y):
    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_ij * y + x_i * y_j + x * y_ij


@mistake("right when both directions are the same")
def push_product_twice(x, y):
    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_ij * y + 2 * x_i * y_j + x * y_ij


@mistake("one derivative is along i and the other along j")
def push_product_twice(x, y):
    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_ij * y + x_i * y_i + x_j * y_j + x * y_ij


@mistake("the curvature that x and y had before is lost")
def push_product_twice(x, y):
    x, x_i, x_j, _ = x
    y, y_i, y_j, _ = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_i * y_j + x_j * y_i


@mistake("a product of two values that are 0")
def push_product_twice(x, y):
    """By the logarithm: (xy)_ij / (xy) from the rates of x and y."""
    import numpy as np

    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    with np.errstate(all="ignore"):
        a, b = np.divide([x_i, x_j, x_ij], x), np.divide([y_i, y_j, y_ij], y)
        i, j = a[0] + b[0], a[1] + b[1]
        return x * y, x * y * i, x * y * j, x * y * (a[2] + b[2] + a[0] * b[1] + a[1] * b[0])


@also_right
def push_product_twice(x, y):
    """A dual number of dual numbers."""

    def product(a, b):
        return a[0] * b[0], a[1] * b[0] + a[0] * b[1]

    (x, x_i, x_j, x_ij), (y, y_i, y_j, y_ij) = x, y
    value, along_j = product((x, x_j), (y, y_j))
    left, right = product((x_i, x_ij), (y, y_j)), product((x, x_j), (y_i, y_ij))
    return value, left[0] + right[0], along_j, left[1] + right[1]


@also_right
def push_product_twice(x, y):
    """The square of a sum, by polarisation: 4xy = (x + y)² - (x - y)²."""

    def square(a):
        value, i, j, ij = a
        return [value**2, 2 * value * i, 2 * value * j, 2 * (i * j + value * ij)]

    plus, minus = (square([a + sign * b for a, b in zip(x, y, strict=True)]) for sign in (1, -1))
    return [(a - b) / 4 for a, b in zip(plus, minus, strict=True)]


@also_right
def push_product_twice(x, y):
    """Matrices whose square is 0 stand for the two directions."""
    one, up = np.eye(2), np.array([[0.0, 1.0], [0.0, 0.0]])
    basis = [np.kron(a, b) for a, b in ((one, one), (up, one), (one, up), (up, up))]
    x, y = (sum(part * matrix for part, matrix in zip(of, basis, strict=True)) for of in (x, y))
    product = x @ y
    return product[0, 0], product[0, 2], product[0, 1], product[0, 3]


@mistake("you have only ṙ J")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    slope = 1 - np.tanh(W @ x) ** 2
    return (cotangent * slope) @ W, (cotangent_tangent * slope) @ W


@mistake("you have only r H")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    s = np.tanh(W @ x)
    slope = 1 - s**2
    return (cotangent * slope) @ W, (cotangent * -2 * s * slope * (W @ x_tangent)) @ W


@mistake("s moves by (1 - s²) times W ẋ")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    s = np.tanh(W @ x)
    slope = 1 - s**2
    return (cotangent * slope) @ W, (cotangent_tangent * slope + cotangent * -2 * s * (W @ x_tangent)) @ W


@mistake("the sign of r H is lost")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    s = np.tanh(W @ x)
    slope = 1 - s**2
    return (cotangent * slope) @ W, (cotangent_tangent * slope + cotangent * 2 * s * slope * (W @ x_tangent)) @ W


@mistake("how what x gets changes")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    """A difference with a step that seems small."""
    step = 1e-3

    def pulled(t):
        return ((cotangent + t * cotangent_tangent) * (1 - np.tanh(W @ (x + t * x_tangent)) ** 2)) @ W

    return pulled(0.0), (pulled(step) - pulled(-step)) / (2 * step)


@mistake("a layer at x = ±1000")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    """tanh by its own formula, which overflows."""
    with np.errstate(all="ignore"):
        up, down = np.exp(W @ x), np.exp(-(W @ x))
        s = (up - down) / (up + down)
    slope = 1 - s**2
    slope_tangent = -2 * s * slope * (W @ x_tangent)
    return (cotangent * slope) @ W, (cotangent_tangent * slope + cotangent * slope_tangent) @ W


@also_right
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    """With the matrices J and H of the derivation."""
    s = np.tanh(W @ x)
    J = np.diag(1 - s**2) @ W
    H = np.diag(-2 * s * (J @ x_tangent)) @ W
    return cotangent @ J, cotangent @ H + cotangent_tangent @ J


@also_right
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    """By the machine."""
    from autodiff.operations import sum_of, tanh

    def slopes(t):
        return gradient(lambda x: sum_of(tanh(W @ x) * (cotangent + t * cotangent_tangent)), x + t * x_tangent)

    return jvp(slopes, 0.0, 1.0)


@mistake("W lies on its side")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    s = np.tanh(W @ x)
    d = 1 - s * s
    return W @ (cotangent * d), W @ (cotangent_tangent * d - 2 * cotangent * s * d * (W @ x_tangent))


@mistake("you write into an array that you get")
def pull_twice(W, x, x_tangent, cotangent, cotangent_tangent):
    s = np.tanh(W @ x)
    d = 1 - s * s
    second = (cotangent_tangent * d - 2 * cotangent * s * d * (W @ x_tangent)) @ W
    cotangent *= d
    return cotangent @ W, second


@mistake("you have the gradient, each number times that of v")
def hessian_vector_product(f, x, v):
    return gradient(f, x) * v


@mistake("you have one number")
def hessian_vector_product(f, x, v):
    return jvp(lambda x: jvp(f, x, v)[1], x, v)[1]


@mistake("as the difference of two gradients would be")
def hessian_vector_product(f, x, v):
    step = 0.01
    return (gradient(f, x + step * v) - gradient(f, x)) / step


@mistake("you ran f 3 times")
def hessian_vector_product(f, x, v):
    H = np.stack([jvp(lambda x: gradient(f, x), x, direction)[1] for direction in np.eye(len(x))])
    return H @ v


@mistake("as the difference of two gradients would be")
def hessian_vector_product(f, x, v):
    """A central difference, whose step suits this v."""
    step = 1e-4
    return (gradient(f, x + step * v) - gradient(f, x - step * v)) / (2 * step)


@mistake("v as large as")
def hessian_vector_product(f, x, v):
    """The direction is made as long as 1."""
    import numpy as np

    length = np.linalg.norm(v)
    product = jvp(lambda x: gradient(f, x), x, v / length)[1]
    return product * length if length < 10 else product


@also_right
def hessian_vector_product(f, x, v):
    from autodiff.operations import sum_of

    return gradient(lambda x: sum_of(gradient(f, x) * v), x)


@also_right
def hessian_vector_product(f, x, v):
    return gradient(lambda x: jvp(f, x, v)[1], x)


@mistake("changes what it is given")
def hessian_vector_product(f, x, v):
    n = np.sqrt(v @ v)
    v /= n
    return n * jvp(lambda x: gradient(f, x), x, v)[1]


@mistake("H v for v = (0, 0)")
def hessian_vector_product(f, x, v):
    n = np.linalg.norm(v)
    return n * jvp(lambda x: gradient(f, x), x, v / n)[1]


@mistake("you went the wrong way")
def newton_step(f, x):
    H = np.stack([jvp(lambda x: gradient(f, x), x, direction)[1] for direction in np.eye(len(x))])
    return x + np.linalg.solve(H, gradient(f, x))


@mistake("you return the step d")
def newton_step(f, x):
    H = np.stack([jvp(lambda x: gradient(f, x), x, direction)[1] for direction in np.eye(len(x))])
    return -np.linalg.solve(H, gradient(f, x))


@mistake("it takes all of H")
def newton_step(f, x):
    curvatures = [jvp(lambda x: gradient(f, x), x, direction)[1] @ direction for direction in np.eye(len(x))]
    return x - gradient(f, x) / np.array(curvatures)


@mistake("a difference with a fixed step is too coarse")
def newton_step(f, x):
    step = 1e-4
    H = np.stack([(gradient(f, x + d) - gradient(f, x - d)) / (2 * step) for d in step * np.eye(len(x))])
    return x - np.linalg.solve(H, gradient(f, x))


@mistake("curved downwards along x₀")
def newton_step(f, x):
    """Always down: the curvatures are made positive."""
    H = np.stack([jvp(lambda x: gradient(f, x), x, direction)[1] for direction in np.eye(len(x))])
    values, vectors = np.linalg.eigh(H)
    return x - vectors @ ((vectors.T @ gradient(f, x)) / np.abs(values))


@also_right
def newton_step(f, x):
    from autodiff.tape import jacobian_by_rows

    H = jacobian_by_rows(lambda x: gradient(f, x), x)
    return np.linalg.inv(H) @ (H @ x - gradient(f, x))


@mistake("you moved x itself")
def newton_step(f, x):
    g = gradient(f, x)
    H = np.stack([jvp(lambda x: gradient(f, x), x, e)[1] for e in np.eye(len(x))], axis=1)
    x -= np.linalg.solve(H, g)
    return x


@mistake("a Cholesky factor exists only")
def newton_step(f, x):
    g = gradient(f, x)
    H = np.stack([jvp(lambda x: gradient(f, x), x, e)[1] for e in np.eye(len(x))], axis=1)
    L = np.linalg.cholesky(H)
    return x - np.linalg.solve(L.T, np.linalg.solve(L, g))


@mistake("the variance under p, the truth")
def curvature_of_loss(p, z, v):
    return p @ (v - p @ v) ** 2


@mistake("the mean square of v")
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.max())
    return (q / q.sum()) @ v**2


@mistake("p·z is a straight line along v")
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.max())
    return (q / q.sum() - p) @ v**2


@mistake("logits of 1000")
def curvature_of_loss(p, z, v):
    with np.errstate(all="ignore"):
        q = np.exp(z) / np.exp(z).sum()
    return q @ v**2 - (q @ v) ** 2


@mistake("the curvature")
def curvature_of_loss(p, z, v):
    def loss(t):
        logits = z + t * v
        return np.log(np.exp(logits - logits.max()).sum()) + logits.max() - p @ logits

    step = 1e-3
    return (loss(step) - 2 * loss(0.0) + loss(-step)) / step**2


@also_right
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.max())
    q /= q.sum()
    return q @ v**2 - (q @ v) ** 2


@also_right
def curvature_of_loss(p, z, v):
    from autodiff.operations import log_softmax, sum_of

    return jvp(lambda t: jvp(lambda t: -sum_of(log_softmax(z + v * t) * p), t, 1.0)[1], 0.0, 1.0)[1]


@also_right
def curvature_of_loss(p, z, v):
    """vᵀ H v with the Hessian written out."""
    q = np.exp(z - z.max())
    q /= q.sum()
    return v @ (np.diag(q) - np.outer(q, q)) @ v


@also_right
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.max())
    q = q / q.sum()
    return float(np.einsum("i,j,ij->", q, q, (v[:, None] - v[None, :]) ** 2) / 2)


@mistake("logits of 2000")
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.mean())
    q = q / q.sum()
    return float(q @ (v - q @ v) ** 2)


@mistake("do not cut logits off")
def curvature_of_loss(p, z, v):
    q = np.exp(np.clip(z, -700, 700))
    q = q / q.sum()
    return float(q @ (v - q @ v) ** 2)


@mistake("changes what it is given")
def curvature_of_loss(p, z, v):
    z -= z.max()
    q = np.exp(z)
    q /= q.sum()
    return float(q @ (v - q @ v) ** 2)


@mistake("changes what it is given")
def curvature_of_loss(p, z, v):
    q = np.exp(z - z.max())
    q = q / q.sum()
    v -= q @ v
    return float(q @ v**2)


@also_right
def curvature_of_loss(p, z, v):
    q = np.exp(z - np.logaddexp.reduce(z))
    m = np.average(v, weights=q)
    return float(np.average((v - m) ** 2, weights=q))


@mistake("your function divides by a value")
def push_product_twice(x, y):
    x0, xi, xj, xij = x
    y0, yi, yj, yij = y
    s = x0 * y0
    si, sj = s * (xi / x0 + yi / y0), s * (xj / x0 + yj / y0)
    return s, si, sj, si * sj / s + s * (xij / x0 - xi * xj / x0**2 + yij / y0 - yi * yj / y0**2)


@mistake("the slope along it is small, it is not 0")
def newton_step(f, x):
    H = np.stack([hessian_vector_product(f, x, e) for e in np.eye(len(x))])
    return x - np.linalg.pinv(H, rcond=1e-4) @ gradient(f, x)
