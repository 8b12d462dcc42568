"""Differential privacy on integers: samplers draw exact noise, mechanisms apply it, accounting prices what was run.

`samplers` is the only source of randomness. `mechanisms` are frozen values whose fields are public parameters; data
is an argument of `release` alone. `accounting` describes every release as an event, prices events in exact rationals
and turns a budget into a scale of noise. Nothing here sees a table, a query or a file."""
