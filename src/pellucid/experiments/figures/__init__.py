"""The figures of experiments. `draw.py` sends each to the file of its `type`:

bars · lines · curves (also of contexts and gradient norms) · skills (also as curves) · scaling

Shared: `means.py` (lines of means over seeds), `../../figures.py` (how every figure looks).
"""
