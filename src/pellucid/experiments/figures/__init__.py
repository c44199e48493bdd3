"""The figures of experiments. `draw.py` sends each to the file of its `type`:

bars · lines · curves (also of contexts and gradient norms) · skills (also as curves) · scaling

`embedding_map.py` is drawn for `pellucid map`.

Shared: `axis_numbers.py` (ticks), `style.py` (colours, labels).
"""
