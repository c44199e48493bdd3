"""The figures of experiments. `draw.py` sends each to the file of its `type`:

bars · lines · curves · skills · skill_curves · contexts · gradient_norms · scaling

Shared: `data.py` (columns, variants, means over seeds), `axis_numbers.py` (ticks), `style.py` (colours, labels).
"""
