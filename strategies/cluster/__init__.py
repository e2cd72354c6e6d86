"""Who is in the job: pure Python, so that a mistake shows at once.

`preflight` is what `train.py` calls before TensorFlow is imported.
`find` chooses between three descriptions of the cluster, which `tf_config`,
`slurm` and `kubernetes` read and check. `rendezvous` lets the workers compare
what each was told, `tpu_name` finds the TPU.
`loopback`, `worker_process` and `restart` serve `launch.py`, which runs all
workers on one machine.
"""
