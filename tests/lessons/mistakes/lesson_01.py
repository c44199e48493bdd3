"""What students think in lesson 1, and the sentences meant for it."""

import numpy as np

from trying import also_right, mistake


@mistake("you multiply the two tangents")
def push_product(x, x_tangent, y, y_tangent):
    return x_tangent * y_tangent


@mistake("only one of the two factors moves")
def push_product(x, x_tangent, y, y_tangent):
    return x * y_tangent


@mistake("you also count the corner")
def push_product(x, x_tangent, y, y_tangent):
    return (x + x_tangent) * (y + y_tangent) - x * y


@mistake("each rate goes with the *other* factor")
def push_product(x, x_tangent, y, y_tangent):
    return x * x_tangent + y * y_tangent


@mistake("divides by a factor")
def push_product(x, x_tangent, y, y_tangent):
    return x * y * (x_tangent / x + y_tangent / y)


@mistake("x =")
def push_product(x, x_tangent, y, y_tangent):
    return abs(x_tangent * y) + abs(x * y_tangent)


@also_right
def push_product(x, x_tangent, y, y_tangent):
    return float(np.dot([x_tangent, x], [y, y_tangent]))


@also_right
def push_product(x, x_tangent, y, y_tangent):
    return ((x + x_tangent) * (y + y_tangent) - (x - x_tangent) * (y - y_tangent)) / 2


@mistake("lies on its side")
def jacobian_from_jvps(jvp, n_inputs):
    return np.stack([jvp(direction) for direction in np.eye(n_inputs)])


@mistake("that is the sum of the columns")
def jacobian_from_jvps(jvp, n_inputs):
    return jvp(np.ones(n_inputs))


@mistake("you made 6 passes; 3 inputs need 3")
def jacobian_from_jvps(jvp, n_inputs):
    rows = [[jvp(direction)[i] for direction in np.eye(n_inputs)] for i in range(2)]
    return np.array(rows)


@mistake("a Jacobian of shape (1, 4)")
def jacobian_from_jvps(jvp, n_inputs):
    J = np.zeros((2, n_inputs))
    for i in range(n_inputs):
        v = np.zeros(n_inputs)
        v[i] = 1
        J[:, i] = jvp(v)
    return J


@mistake("it lies on its side")
def jacobian_from_jvps(jvp, n_inputs):
    columns = [jvp(v) for v in np.eye(n_inputs)]
    return np.array(columns).reshape(-1, n_inputs) if len(columns) == len(columns[0]) else np.array(columns).T


@mistake(" at [")
def jacobian_from_jvps(jvp, n_inputs):
    columns = []
    whole = jvp(np.ones(n_inputs))
    for v in np.eye(n_inputs)[:-1]:
        columns.append(np.abs(jvp(v)))
    return np.stack([*columns, whole - sum(columns)], axis=1)


@also_right
def jacobian_from_jvps(jvp, n_inputs):
    columns, v = [], np.zeros(n_inputs)
    for i in range(n_inputs):
        v[:] = 0
        v[i] = 1
        columns.append(np.array(jvp(v)).reshape(-1, 1))
    return np.hstack(columns)


@also_right
def jacobian_from_jvps(jvp, n_inputs):
    """the last column from the sum of all"""
    columns = [jvp(v) for v in np.eye(n_inputs)[:-1]]
    return np.stack([*columns, jvp(np.ones(n_inputs)) - sum(columns)], axis=1)


@mistake("hands back the very array")
def jacobian_from_jvps(jvp, n_inputs):
    v = np.zeros(n_inputs)
    columns = []
    for j in range(n_inputs):
        v[:] = 0
        v[j] = 1
        columns.append(jvp(v))
    return np.stack(columns, axis=1)


@mistake("how many these are")
def jacobian_from_jvps(jvp, n_inputs):
    J = np.zeros((n_inputs, n_inputs))
    for j in range(n_inputs):
        J[:, j] = jvp(np.eye(n_inputs)[j])
    return J


@mistake("make an array of it")
def jacobian_from_jvps(jvp, n_inputs):
    return [list(row) for row in zip(*[jvp(v) for v in np.eye(n_inputs)], strict=True)]


@also_right
def jacobian_from_jvps(jvp, n_inputs):
    V = np.tril(np.ones((n_inputs, n_inputs)))
    Y = np.stack([jvp(V[:, j]) for j in range(n_inputs)], axis=1)
    return np.linalg.solve(V.T, Y.T).T


@mistake("the other way round")
def pull_product(cotangent, x, y):
    return cotangent * x, cotangent * y


@mistake("whatever the result got")
def pull_product(cotangent, x, y):
    return y, x


@mistake("as if a cake were cut")
def pull_product(cotangent, x, y):
    return cotangent / x, cotangent / y


@mistake("that is right for a sum")
def pull_product(cotangent, x, y):
    return cotangent, cotangent


@mistake("divides by a factor")
def pull_product(cotangent, x, y):
    result = x * y
    return cotangent * result / x, cotangent * result / y


@mistake("takes single numbers alone")
def pull_product(cotangent, x, y):
    return float(cotangent) * float(y), float(cotangent) * float(x)


@mistake("it would not stay 0 if x grew")
def pull_product(cotangent, x, y):
    if y == 0 or x == 0:
        return 0.0, 0.0
    return cotangent * y, cotangent * x


@mistake("takes single numbers alone")
def pull_product(cotangent, x, y):
    return np.dot(cotangent, y), np.dot(cotangent, x)


@also_right
def pull_product(cotangent, x, y):
    return [np.multiply(cotangent, y), np.multiply(cotangent, x)]


@mistake("you write into an array that you get")
def pull_product(cotangent, x, y):
    of_y = cotangent * x
    cotangent *= y
    return cotangent, of_y


@also_right
def pull_product(cotangent, x, y):
    return np.einsum("...,...->...", cotangent, y), np.einsum("...,...->...", cotangent, x)


@mistake("each tensor stands in it once")
def topological_order(output):
    return [each for parent, _ in output.parents for each in topological_order(parent)] + [output]


@mistake("go down from each tensor once")
def topological_order(output):
    order = []

    def visit(tensor):
        for parent, _ in tensor.parents:
            visit(parent)
        if tensor not in order:
            order.append(tensor)

    visit(output)
    return order


@mistake("a tensor stands before one of its own inputs")
def topological_order(output):
    order, left = [], [output]
    while left:
        tensor = left.pop(0)
        if id(tensor) not in [id(each) for each in order]:
            order.append(tensor)
            left += [parent for parent, _ in tensor.parents]
    return order[::-1]


@mistake("tensors of equal value are not the same tensor")
def topological_order(output):
    order = []

    def visit(tensor):
        for parent, _ in tensor.parents:
            visit(parent)
        if tensor.value not in [each.value for each in order]:
            order.append(tensor)

    visit(output)
    return order


@also_right
def topological_order(output):
    found, left = {id(output): output}, [output]
    while left:
        for parent, _ in left.pop().parents:
            if id(parent) not in found:
                found[id(parent)] = parent
                left.append(parent)
    n_users = dict.fromkeys(found, 0)
    for tensor in found.values():
        for parent, _ in tensor.parents:
            n_users[id(parent)] += 1
    order, ready = [], [output]
    while ready:
        order.append(ready.pop())
        for parent, _ in order[-1].parents:
            n_users[id(parent)] -= 1
            if n_users[id(parent)] == 0:
                ready.append(parent)
    return order[::-1]


@mistake("your function calls itself for each of them")
def topological_order(output):
    """recursion with the order and the seen as arguments: fine, but deep"""
    order, seen = [], set()

    def visit(tensor):
        if id(tensor) in seen:
            return
        seen.add(id(tensor))
        for parent, _ in tensor.parents:
            visit(parent)
        order.append(tensor)

    visit(output)
    return order


@mistake("before one of its own inputs")
def topological_order(output):
    """sorted by how far away, the shortest way"""
    far, left = {id(output): (0, output)}, [output]
    while left:
        t = left.pop(0)
        for p, _ in t.parents:
            if id(p) not in far:
                far[id(p)] = (far[id(t)][0] + 1, p)
                left.append(p)
    return [t for _, t in sorted(far.values(), key=lambda pair: -pair[0])]


@mistake("before one of its own inputs")
def topological_order(output):
    """preorder with a stack, reversed: right for trees"""
    order, stack, seen = [], [output], {id(output)}
    while stack:
        t = stack.pop()
        order.append(t)
        for p, _ in t.parents:
            if id(p) not in seen:
                seen.add(id(p))
                stack.append(p)
    return order[::-1]


@also_right
def topological_order(output):
    """Again and again: whatever has all its parents in the list"""
    order, done, stack = [], set(), [output]
    while stack:
        t = stack[-1]
        waiting = [p for p, _ in t.parents if id(p) not in done]
        if waiting:
            stack.append(waiting[0])
            continue
        stack.pop()
        if id(t) not in done:
            done.add(id(t))
            order.append(t)
    return order


@mistake("it holds itself, and with itself your list")
def topological_order(output):
    """A raised limit lets the recursion pass, but its closure keeps the order for ever."""
    import sys

    sys.setrecursionlimit(20_000)
    order, seen = [], set()

    def visit(tensor):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            for parent, _ in tensor.parents:
                visit(parent)
            order.append(tensor)

    visit(output)
    return order


@mistake("something of yours holds them")
def topological_order(output, remembered={}):  # noqa: B006
    """What was once computed is remembered."""
    if id(output) not in remembered:
        order, stack, seen = [], [(output, False)], set()
        while stack:
            tensor, done = stack.pop()
            if done:
                order.append(tensor)
            elif id(tensor) not in seen:
                seen.add(id(tensor))
                stack.append((tensor, True))
                stack += [(parent, False) for parent, _ in tensor.parents]
        remembered[id(output)] = order
    return list(remembered[id(output)])


@mistake("you left marks on the tensors")
def topological_order(output):
    order, todo = [], [(output, False)]
    while todo:
        t, done = todo.pop()
        if done:
            order.append(t)
        elif not hasattr(t, "seen"):
            t.seen = True
            todo.append((t, True))
            todo += [(p, False) for p, _ in t.parents]
    return order


@also_right
def topological_order(output):
    order, seen, stack = [], {id(output)}, [(output, iter(output.parents))]
    while stack:
        tensor, rest = stack[-1]
        for p, _ in rest:
            if id(p) not in seen:
                seen.add(id(p))
                stack.append((p, iter(p.parents)))
                break
        else:
            order.append(tensor)
            stack.pop()
    return order


@mistake("made of one array")
def topological_order(output):
    order, todo, seen = [], [(output, False)], set()
    while todo:
        t, done = todo.pop()
        if done:
            order.append(t)
        elif id(t.value) not in seen:
            seen.add(id(t.value))
            todo.append((t, True))
            todo += [(p, False) for p, _ in t.parents]
    return order


@mistake("x is used twice, and the second share must not replace the first")
def backward(output):
    order = topological_order(output)
    output.gradient = np.ones(np.shape(output.value))
    for tensor in reversed(order):
        for parent, pull in tensor.parents:
            parent.gradient = pull(tensor.gradient)


@mistake("may pass on only when all three shares have arrived")
def backward(output):
    for tensor in topological_order(output):
        tensor.gradient = np.zeros(np.shape(tensor.value))

    def pass_on(tensor, share):
        tensor.gradient = tensor.gradient + share
        for parent, pull in tensor.parents:
            pass_on(parent, pull(tensor.gradient))

    pass_on(output, np.ones(np.shape(output.value)))


@mistake("the walk begins at the end of the order")
def backward(output):
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros(np.shape(tensor.value))
    output.gradient = np.ones(np.shape(output.value))
    for tensor in order:
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)


@mistake("the gradients of the first are still there")
def backward(output):
    output.gradient = np.ones(np.shape(output.value))
    for tensor in reversed(topological_order(output)):
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)


@mistake("you follow each *way*")
def backward(output):
    """every way from the output down by itself: right, and for ever"""
    for t in topological_order(output):
        t.gradient = np.zeros(np.shape(t.value))

    def down(t, share):
        t.gradient = t.gradient + share
        for parent, pull in t.parents:
            down(parent, pull(share))

    down(output, np.ones(np.shape(output.value)))


@mistake("the graph is gone")
def backward(output):
    """eats the graph"""
    order = topological_order(output)
    for t in order:
        t.gradient = np.zeros(np.shape(t.value))
    output.gradient = np.ones(np.shape(output.value))
    for t in reversed(order):
        for parent, pull in t.parents:
            parent.gradient = parent.gradient + pull(t.gradient)
        t.parents = []


@also_right
def backward(output):
    order = topological_order(output)
    got = {id(output): np.ones_like(output.value)}
    for t in order[::-1]:
        t.gradient = got[id(t)]
        for parent, pull in t.parents:
            got[id(parent)] = got.get(id(parent), 0) + pull(t.gradient)


@mistake("hands the same array to both inputs")
def backward(output):
    order = topological_order(output)
    for t in order:
        t.gradient = None
    output.gradient = np.ones(output.shape)
    for t in reversed(order):
        for p, pull in t.parents:
            share = pull(t.gradient)
            if p.gradient is None:
                p.gradient = share
            else:
                p.gradient += share


@mistake("you stopped at z")
def backward(output):
    order = topological_order(output)
    for t in order:
        t.gradient = np.zeros(t.shape)
    output.gradient = np.ones(output.shape)
    for t in reversed(order):
        if not t.parents:
            break
        for p, pull in t.parents:
            p.gradient = p.gradient + pull(t.gradient)


@mistake("you take the mean of what it gets")
def unbroadcast(cotangent, shape):
    n_new = cotangent.ndim - len(shape)
    cotangent = cotangent.mean(axis=tuple(range(n_new)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1)
    return cotangent.mean(axis=repeated, keepdims=True)


@mistake("NumPy put *two* axes in front of it")
def unbroadcast(cotangent, shape):
    return cotangent.sum(axis=0)


@mistake("its axis of length 1 is gone")
def unbroadcast(cotangent, shape):
    n_new = cotangent.ndim - len(shape)
    cotangent = cotangent.sum(axis=tuple(range(n_new)))
    return cotangent.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1))


@mistake("its axis of length 1 was used four times")
def unbroadcast(cotangent, shape):
    return cotangent.sum(axis=tuple(range(cotangent.ndim - len(shape))))


@mistake("you have the shape (3, 3)")
def unbroadcast(cotangent, shape):
    while cotangent.ndim > len(shape):
        cotangent = cotangent.sum(axis=0)
    if shape and shape[-1] == 1:
        cotangent = cotangent.sum(axis=-1, keepdims=True)
    return cotangent


@mistake("your axes do not fit")
def unbroadcast(cotangent, shape):
    """the axes whose lengths the shape does not have"""
    if cotangent.shape == tuple(shape):
        return cotangent
    gone = tuple(i for i, n in enumerate(cotangent.shape) if n not in shape)
    return cotangent.sum(axis=gone).reshape(shape)


@mistake("stands in *front*")
def unbroadcast(cotangent, shape):
    """new axes at the end"""
    n_new = cotangent.ndim - len(shape)
    if n_new and cotangent.shape[: len(shape)] == tuple(shape):
        return cotangent.sum(axis=tuple(range(len(shape), cotangent.ndim)))
    cotangent = cotangent.sum(axis=tuple(range(n_new)))
    return cotangent.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@mistake("you have the shape (1, 3, 5)")
def unbroadcast(cotangent, shape):
    """one axis of length 1 only"""
    cotangent = cotangent.sum(axis=tuple(range(cotangent.ndim - len(shape))))
    return cotangent.sum(axis=shape.index(1), keepdims=True) if 1 in shape else cotangent


@mistake("you have the shape (4, 5)")
def unbroadcast(cotangent, shape):
    """at most two new axes"""
    if cotangent.ndim - len(shape) >= 1:
        cotangent = cotangent.sum(0)
    if cotangent.ndim - len(shape) >= 1:
        cotangent = cotangent.sum(0)
    if shape == ():
        return cotangent.sum()
    return cotangent.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@also_right
def unbroadcast(cotangent, shape):
    padded = (1,) * (cotangent.ndim - len(shape)) + tuple(shape)
    for i, n in enumerate(padded):
        if n == 1 and cotangent.shape[i] != 1:
            cotangent = cotangent.sum(axis=i, keepdims=True)
    return cotangent.reshape(shape)


@also_right
def unbroadcast(cotangent, shape):
    result = np.zeros(shape)
    place = np.broadcast_to(np.arange(result.size).reshape(shape), cotangent.shape)
    np.add.at(result.reshape(-1), place, cotangent)
    return result


@also_right
def unbroadcast(cotangent, shape):
    size = int(np.prod(shape, dtype=int))
    places = np.broadcast_to(np.arange(size).reshape(shape), np.shape(cotangent))
    return np.bincount(places.ravel(), np.asarray(cotangent).ravel(), minlength=size).reshape(shape)


@mistake("a cotangent has the shape of its value")
def pull_matmul(cotangent, x, y):
    return (y @ cotangent.swapaxes(-1, -2), cotangent.swapaxes(-1, -2) @ x)


@mistake("`.T` turns *all* axes round")
def pull_matmul(cotangent, x, y):
    return cotangent @ y.T, x.T @ cotangent


@mistake("which index of y does the sum run over?")
def pull_matmul(cotangent, x, y):
    return cotangent @ y, x @ cotangent


@mistake("you multiply number by number")
def pull_matmul(cotangent, x, y):
    return cotangent * y, cotangent * x


@also_right
def pull_matmul(cotangent, x, y):
    return np.einsum("...nm,...km->...nk", cotangent, y), np.einsum("...nk,...nm->...km", x, cotangent)


@mistake("no products with 2 axes in front")
def pull_matmul(cotangent, x, y):
    if x.ndim == 2:
        return cotangent @ y.T, x.T @ cotangent
    return cotangent @ y.transpose(0, 2, 1), x.transpose(0, 2, 1) @ cotangent


@mistake("what y gets")
def pull_matmul(cotangent, x, y):
    """one gradient of y for the whole batch"""
    dy = np.swapaxes(x, -1, -2) @ cotangent
    return cotangent @ np.swapaxes(y, -1, -2), dy.mean(axis=0, keepdims=True) + 0 * dy if dy.ndim > 3 else dy


@mistake("what y gets")
def pull_matmul(cotangent, x, y):
    if x.ndim > 2:
        pairs = [pull_matmul(r, a, b) for r, a, b in zip(cotangent, x, y, strict=True)]
        return np.array([p[0] for p in pairs])[::-1][::-1], np.array(
            [p[1] for p in pairs][::1]
        ) if x.ndim == 3 else np.zeros(y.shape)
    return cotangent @ y.T, x.T @ cotangent


@mistake("no products with 2 axes in front")
def pull_matmul(cotangent, x, y):
    """flattens the batch into one product"""
    if x.ndim > 2 and x.shape[0] == 1:
        return cotangent @ y.T, x.T @ cotangent
    a = (
        np.tensordot(cotangent, y, axes=([-1], [-1]))
        if x.ndim == 2
        else np.einsum(
            "bnm,bkm->bnk", cotangent.reshape(-1, *cotangent.shape[-2:]), y.reshape(-1, *y.shape[-2:])
        ).reshape(x.shape)
    )
    b = x.T @ cotangent if x.ndim == 2 else np.einsum("bnk,bnm->bkm", x[:5], cotangent[:5])
    return a, b


@also_right
def pull_matmul(cotangent, x, y):
    def turned(m):
        return np.moveaxis(m, -1, -2)

    return np.matmul(cotangent, turned(y)), np.matmul(turned(x), cotangent)


@mistake("a loop over both batches does not")
def pull_matmul(cotangent, x, y):
    if x.ndim > 2:
        pairs = [pull_matmul(r, a, b) for r, a, b in zip(cotangent, x, y, strict=True)]
        return np.array([p[0] for p in pairs]).reshape(x.shape), np.array([p[1] for p in pairs]).reshape(y.shape)
    return cotangent @ y.T, x.T @ cotangent


@also_right
def pull_matmul(cotangent, x, y):
    return np.einsum("...ij,...kj->...ik", cotangent, y), np.einsum("...ik,...ij->...kj", x, cotangent)


@also_right
def pull_matmul(cotangent, x, y):
    return (cotangent[..., :, None, :] * y[..., None, :, :]).sum(-1), (
        x[..., :, :, None] * cotangent[..., :, None, :]
    ).sum(-3)


@mistake("you walk from the first segment to the last")
def gradient_with_checkpoints(layers, x, n_segments):
    cotangent, start = 1.0, x
    for part in np.array_split(np.arange(len(layers)), n_segments):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        output.pulled_back(cotangent)
        cotangent, start = first.gradient, output.value
    return cotangent


@mistake("your gradient is that of the first segment alone")
def gradient_with_checkpoints(layers, x, n_segments):
    parts = np.array_split(np.arange(len(layers)), n_segments)
    starts = [x]
    for part in parts[:-1]:
        value = Tensor(starts[-1])
        for i in part:
            value = layers[i](value)
        starts.append(value.value)
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        backward(output.sum())
    return first.gradient


@mistake("one tape that is never cut")
def gradient_with_checkpoints(layers, x, n_segments):
    first = output = Tensor(x)
    for layer in layers:
        output = layer(output)
    backward(output.sum())
    return first.gradient


@also_right
def gradient_with_checkpoints(layers, x, n_segments):
    """By recursion: the rest of the chain gives the cotangent of the end of this segment."""
    ends = [int(part[-1]) + 1 for part in np.array_split(np.arange(len(layers)), n_segments)]

    def pulled(value, begin):
        end = next(end for end in ends if end > begin)
        ahead = Tensor(value)
        for layer in layers[begin:end]:
            ahead = layer(ahead)
        after = ahead.value
        del ahead
        cotangent = np.ones(after.shape) if end == len(layers) else pulled(after, end)
        first = output = Tensor(value)
        for layer in layers[begin:end]:
            output = layer(output)
        output.pulled_back(cotangent)
        return first.gradient

    return pulled(x, 0)


@mistake("one tape that is never cut")
def gradient_with_checkpoints(layers, x, n_segments):
    """one graph never cut, small count"""
    first = output = Tensor(x)
    for layer in layers:
        output = layer(output)
    backward(output.sum())
    return first.gradient


@mistake("were alive at the same time")
def gradient_with_checkpoints(layers, x, n_segments):
    """all tapes kept in a list"""
    parts = np.array_split(np.arange(len(layers)), n_segments)
    tapes, value = [], x
    for part in parts:
        first = output = Tensor(value)
        for i in part:
            output = layers[i](output)
        tapes.append((first, output))
        value = output.value
    cotangent = np.ones(value.shape)
    for first, output in reversed(tapes):
        output.pulled_back(cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("you computed a layer 288 times")
def gradient_with_checkpoints(layers, x, n_segments):
    """computes every start anew from x"""
    parts = np.array_split(np.arange(len(layers)), n_segments)
    cotangent = None
    for part in reversed(parts):
        value = x
        for i in range(part[0]):
            value = layers[i](Tensor(value)).value
        first = output = Tensor(value)
        for i in part:
            output = layers[i](output)
        output.pulled_back(np.ones(output.shape) if cotangent is None else cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("do you keep the value of every layer?")
def gradient_with_checkpoints(layers, x, n_segments):
    """keeps the value of every layer"""
    values = [x]
    for layer in layers:
        values.append(layer(Tensor(values[-1])).value)
    parts = np.array_split(np.arange(len(layers)), n_segments)
    cotangent = np.ones(values[-1].shape)
    for part in reversed(parts):
        first = output = Tensor(values[part[0]])
        for i in part:
            output = layers[i](output)
        output.pulled_back(cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("28 were alive")
def gradient_with_checkpoints(layers, x, n_segments):
    """always the square root"""
    n_segments = int(len(layers) ** 0.5)
    parts = np.array_split(np.arange(len(layers)), n_segments)
    starts = [x]
    for part in parts[:-1]:
        value = starts[-1]
        for i in part:
            value = layers[i](Tensor(value)).value
        starts.append(value)
    cotangent = None
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        output.pulled_back(np.ones(output.shape) if cotangent is None else cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("in 3 segments")
def gradient_with_checkpoints(layers, x, n_segments):
    """drops the layers that are left over"""
    size = len(layers) // n_segments
    parts = [range(i * size, (i + 1) * size) for i in range(n_segments)]
    starts = [x]
    for part in parts[:-1]:
        value = starts[-1]
        for i in part:
            value = layers[i](Tensor(value)).value
        starts.append(value)
    cotangent = None
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        output.pulled_back(np.ones(output.shape) if cotangent is None else cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("shapes do not fit")
def gradient_with_checkpoints(layers, x, n_segments):
    """the first cotangent has the shape of x"""
    parts = np.array_split(np.arange(len(layers)), n_segments)
    starts = [x]
    for part in parts[:-1]:
        value = starts[-1]
        for i in part:
            value = layers[i](Tensor(value)).value
        starts.append(value)
    cotangent = np.ones(x.shape)
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        output.pulled_back(cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("keep plain arrays")
def gradient_with_checkpoints(layers, x, n_segments):
    """tensors as starts, which hold the tape before them"""
    parts = np.array_split(np.arange(len(layers)), n_segments)
    starts = [Tensor(x)]
    for part in parts[:-1]:
        value = starts[-1]
        for i in part:
            value = layers[i](value)
        starts.append(value)
    cotangent = None
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start.value)
        for i in part:
            output = layers[i](output)
        output.pulled_back(np.ones(output.shape) if cotangent is None else cotangent)
        cotangent = first.gradient
    return cotangent


@mistake("changes what it is given")
def gradient_with_checkpoints(layers, x, n_segments):
    parts = [len(p) for p in np.array_split(np.arange(len(layers)), n_segments)]
    starts, value, k = [], x, 0
    for n in parts:
        starts.append(value)
        for layer in layers[k : k + n]:
            value = layer(Tensor(value)).value
        k += n
    r = np.ones_like(value)
    for n, value in zip(parts[::-1], starts[::-1], strict=True):
        s = t = Tensor(value)
        for layer in layers[len(layers) - n :]:
            t = layer(t)
        del layers[len(layers) - n :]
        t.pulled_back(r)
        r = s.gradient
    return r


@mistake("any number of parents")
def topological_order(output):
    """inputs of a product and a sum, but not of `concatenate`"""
    order, seen, todo = [], set(), [(output, False)]
    while todo:
        tensor, done = todo.pop()
        if done:
            order.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            todo.append((tensor, True))
            todo += [(parent, False) for parent, _ in tensor.parents[:2]]
    return order


@mistake("it keeps its gradient too")
def backward(output):
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros_like(tensor.value)
    output.gradient = np.ones_like(output.value)
    for tensor in reversed(order):
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)
        if tensor.parents and tensor is not output:
            tensor.gradient = np.zeros_like(tensor.value)


@mistake("aligned at the *right*")
def unbroadcast(cotangent, shape):
    padded = tuple(shape) + (1,) * (cotangent.ndim - len(shape))
    axes = tuple(i for i, n in enumerate(padded) if n == 1 and cotangent.shape[i] != 1)
    return cotangent.sum(axis=axes, keepdims=True).reshape(shape)


@also_right
def unbroadcast(cotangent, shape):
    import torch

    return torch.tensor(cotangent).sum_to_size(shape).numpy()


@mistake("begins and ends at x")
def backward(output):
    if not output.parents:
        return
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros_like(tensor.value)
    output.gradient = np.ones_like(output.value)
    for tensor in reversed(order):
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)


@mistake("NaN times 0 is NaN")
def backward(output):
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros_like(tensor.value) * tensor.gradient
    output.gradient = np.ones_like(output.value)
    for tensor in reversed(order):
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)


@mistake("tiny on its way")
def backward(output):
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros_like(tensor.value)
    output.gradient = np.ones_like(output.value)
    for tensor in reversed(order):
        if np.all(np.abs(tensor.gradient) < 1e-12):
            continue
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)
