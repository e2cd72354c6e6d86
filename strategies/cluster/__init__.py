"""Who is in the job: pure Python, so that a mistake shows at once.

`preflight` is what `train.py` calls before TensorFlow is imported.
`tf_config` reads and checks the description of the cluster, `rendezvous` lets
the workers compare what each was told, `tpu_name` finds the TPU.
"""
