"""Callbacks that log other trainers' work into runs: one module a package, imported by its users alone.

from luxmeter.experiment.integrations.lightning import LuxmeterCallback     # Trainer(callbacks=[LuxmeterCallback("mnist")])
from luxmeter.experiment.integrations.hf import LuxmeterCallback            # Trainer(..., callbacks=[LuxmeterCallback("bert")])
from luxmeter.experiment.integrations.ignite import LuxmeterHandler         # LuxmeterHandler("mnist").attach(trainer)
"""
