"""The demo: handwritten digits grown past a device budget, converted, trained from, and judged.

The way through: `run` is all of it, in order; `digits` are the rows, `train` the model and what is measured
while it trains, `report` the table, the JSON and the plot.
"""
