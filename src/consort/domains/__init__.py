"""Domains of data, each a plug-in: its loaders, generated data, tasks, models and metrics.

Every folder here has a `plugin` that names what it brings, as a package of your own has.
"""
