"""A task: a model made of parts, its losses and what becomes of its outputs; the data and the evaluation of it."""
