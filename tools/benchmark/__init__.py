"""What `tools/bench.py` is made of.

`data` and `stores` write what is read, `machine` measures what the machine can do, `recipes` are what people
use, `loading` and `limits` put them into cases, `measure` times a case, `report` shows the results.
"""
