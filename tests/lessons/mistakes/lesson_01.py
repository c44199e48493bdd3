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


@mistake("you walk from the first segment to the last")
def gradient_with_checkpoints(layers, x, n_segments):
    cotangent, start, most = 1.0, x, 0
    for part in np.array_split(np.arange(len(layers)), n_segments):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        most = max(most, n_segments + len(topological_order(output)))
        output.pulled_back(cotangent)
        cotangent, start = first.gradient, output.value
    return cotangent, most


@mistake("the starts of the segments are kept as well")
def gradient_with_checkpoints(layers, x, n_segments):
    parts = np.array_split(np.arange(len(layers)), n_segments)
    starts = [x]
    for part in parts[:-1]:
        value = Tensor(starts[-1])
        for i in part:
            value = layers[i](value)
        starts.append(value.value)
    cotangent, most = 1.0, 0
    for part, start in zip(reversed(parts), reversed(starts), strict=True):
        first = output = Tensor(start)
        for i in part:
            output = layers[i](output)
        most = max(most, len(topological_order(output)))
        output.pulled_back(cotangent)
        cotangent = first.gradient
    return cotangent, most


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
    return first.gradient, len(starts) + len(topological_order(output))


@mistake("did you keep every layer's value?")
def gradient_with_checkpoints(layers, x, n_segments):
    first = output = Tensor(x)
    for layer in layers:
        output = layer(output)
    most = len(topological_order(output))
    backward(output.sum())
    return first.gradient, most


@also_right
def gradient_with_checkpoints(layers, x, n_segments):
    """By recursion: the rest of the chain gives the cotangent of the end of this segment."""
    ends = [int(part[-1]) + 1 for part in np.array_split(np.arange(len(layers)), n_segments)]
    sizes = []

    def pulled(value, begin, n_kept):
        end = next(end for end in ends if end > begin)
        ahead = Tensor(value)
        for layer in layers[begin:end]:
            ahead = layer(ahead)
        after = ahead.value
        del ahead
        cotangent = np.ones(after.shape) if end == len(layers) else pulled(after, end, n_kept + 1)
        first = output = Tensor(value)
        for layer in layers[begin:end]:
            output = layer(output)
        sizes.append(n_kept + len(topological_order(output)))
        output.pulled_back(cotangent)
        return first.gradient

    return pulled(x, 0, 1), max(sizes)
