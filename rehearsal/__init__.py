"""A TPU run without a TPU: lower the step, run it partitioned, compile it.

    replicas.py      a stand-in for `TPUStrategy` whose step can be lowered
    lower.py         the real train step → StableHLO, and what goes into it
    plan.py          what a run holds and moves, by arithmetic
    compare.py       the partitioned run (`execute.py`) against the ordinary
    compilation.py   what the TPU's compiler says, and a roofline of it
    report.py        rehearsal.json and the page
    child.py         starts `worker.py`, the process that alone imports jax

The packages of the template are not imported here: `rehearse.py` at the root
hands over the step and its specs.
"""
