"""Instructions: requests for fables, with answers whose distribution is known exactly.

Read in this order: wordings (a task in words) -> corpus (instructions with answers) -> verifier (was it obeyed?).
"""

from pellucid.corpora.instructions.corpus import InstructionsCorpus, is_held_out
from pellucid.corpora.instructions.verifier import Settled, Verdict, judge, settled
from pellucid.corpora.instructions.wordings import Instruction, Task

__all__ = ["Instruction", "InstructionsCorpus", "Settled", "Task", "Verdict", "is_held_out", "judge", "settled"]
