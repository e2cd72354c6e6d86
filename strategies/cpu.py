"""One replica on the CPU, also where there are GPUs: for a debugger."""

import dataclasses

import tensorflow as tf

from strategies import StrategyConfig
from strategies import one_device


def create(config: StrategyConfig) -> tf.distribute.Strategy:
    """Returns a strategy with one replica on the CPU."""
    return one_device.create(dataclasses.replace(config, devices=("cpu:0",)))
