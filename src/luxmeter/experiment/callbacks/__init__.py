"""Callbacks that log other trainers' work into runs: one module a package, imported by its users alone.

from luxmeter.experiment.callbacks.lightning import LuxmeterCallback     # Trainer(callbacks=[LuxmeterCallback("mnist")])
from luxmeter.experiment.callbacks.hf import LuxmeterCallback            # Trainer(..., callbacks=[LuxmeterCallback("bert")])
from luxmeter.experiment.callbacks.ignite import LuxmeterHandler         # LuxmeterHandler("mnist").attach(trainer)
"""
