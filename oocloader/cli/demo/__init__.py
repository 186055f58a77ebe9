"""The demo: handwritten digits grown past a device budget, converted, trained from, and judged."""
