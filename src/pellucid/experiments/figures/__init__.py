"""The figures of experiments. `draw.py` sends each to the file of its `type`:

bars · lines · curves · skills (also as curves) · own (by the NAME.py beside the experiment's NAME.yaml)

Shared: `means.py` (lines of means over seeds), `../../figures.py` (how every figure looks).
"""
