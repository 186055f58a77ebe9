"""The public face: settings checked, the loader put together, planned, split, saved.

- `data_spec`, `data_spec_errors`: source and options from a TOML file, and what is wrong in it
- `settings`: the options as one checked value
- `loaded_arrays`: arrays and rows that these name, and their cost; `global_shuffle`: single rows shuffled
- `assembly`: what is decided about windows, memory and residency, and what passes read from
- `plan`: all of that for people; `label_order`: whether labels are stored in order
- `positions`: where passes begin; `state`, `resumption`: the same as JSON, and how a loader goes on from it
- `splitting`: rows to train on and rows held out
- `process`: loaders at exit and in forked children
- `loader`: the Loader
"""

from oocloader.loader.data_spec import DataSpec
from oocloader.loader.loader import Loader
from oocloader.loader.plan import Plan

__all__ = [
    "DataSpec",
    "Loader",
    "Plan",
]
