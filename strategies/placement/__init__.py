"""Which core of a TPU holds what.

    topology         the cores of a slice and how replicas share them, in pure
                     arithmetic
    check            what can be refused of it before any connection
    wheels           what is installed to drive a TPU
    logical_devices  split, replicate and assign, by TensorFlow

`topology`, `check` and `wheels` import no TensorFlow. A chip has one or two
cores; a replica is worked on by a block of them, its logical devices, whose
extent along the four axes of the mesh is `--computation_shape`.
"""
