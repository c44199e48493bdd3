"""Automatic differentiation in NumPy, as the first chapter of the lecture notes has it: read it in this order.

operations  what a program is made of, with the two rules of each operation
dual        forward: a value and its tangent travel together (JVP, columns of a Jacobian)
tape        reverse: a graph that is walked back once (VJP, rows of a Jacobian, gradients, checkpoints)
second      the four ways to a Hessian, which are the two modes inside each other
implicit    through the solution of an equation, without the steps that found it
sparse      Jacobians and Hessians that are mostly zeros, from few products
"""
