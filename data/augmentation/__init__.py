"""What changes training examples at random: `--augmentation`.

A public module here is an augmentation; `data/__init__.py` says what it
provides.
"""
