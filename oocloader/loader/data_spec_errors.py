"""What is wrong with a table that a user wrote: each mistake with its place, in words."""

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect as types

_SHOWN = 60
_SIMPLE = {types.IntType: "an integer", types.BoolType: "true or false", types.StrType: "a string"}
_PLURAL = {types.IntType: "integers", types.BoolType: "true and false", types.StrType: "strings"}


def mistakes(table: Mapping[str, Any], kind: type[msgspec.Struct], place: str = "") -> list[str]:
    """Every mistake in `table`, which ought to be a `kind`: where, what was expected, what was found.

    >>> class Options(msgspec.Struct):
    ...     batch_size: int = 32
    >>> mistakes({"batch_size": "many"}, Options, "loader")
    ['loader.batch_size: expected an integer, got "many"']
    >>> mistakes({"bath_size": 2}, Options, "loader")
    ['loader.bath_size: no such option (did you mean batch_size?)']
    """
    found = []
    fields = {field.encode_name: types.type_info(field.type) for field in msgspec.structs.fields(kind)}
    for name, value in table.items():
        at = f"{place}.{name}" if place else name
        if name not in fields:
            found.append(f"{at}: {_unknown(name, list(fields))}")
            continue
        info = _plain(fields[name])
        if isinstance(info, types.StructType) and isinstance(value, Mapping):
            found += mistakes(value, info.cls, at)
        elif (fault := _fault(fields[name], value)) is not None:
            within, expected, wrong = fault
            found.append(f"{at}{within}: expected {expected}, got {_shown(wrong)}")
    for field in msgspec.structs.fields(kind):
        if field.required and field.encode_name not in table:
            at = f"{place}.{field.encode_name}" if place else field.encode_name
            found.append(f"{at}: is missing (expected {_words(fields[field.encode_name])})")
    return found


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"no such option (did you mean {close[0]}?)"
    return f"no such option (there are {', '.join(known)})"


def _plain(info: types.Type) -> types.Type:
    return _plain(info.type) if isinstance(info, types.Metadata) else info


def _fault(info: types.Type, value: Any) -> tuple[str, str, Any] | None:
    """The first thing in `value` that is not as `info` says: its place within, what was expected, and it."""
    plain = _plain(info)
    members = plain.types if isinstance(plain, types.UnionType) else (plain,)
    if any(_accepts(_plain(member), value) for member in members):
        return None
    # A list with one wrong item is better told by the item.
    for member in map(_plain, members):
        if isinstance(member, types.ListType) and isinstance(value, list):
            faults = [(f"[{at}]", _fault(member.item_type, item)) for at, item in enumerate(value)]
        elif isinstance(member, types.DictType) and isinstance(value, Mapping):
            faults = [(f".{key}", _fault(member.value_type, item)) for key, item in value.items()]
        else:
            continue
        for place, fault in faults:
            if fault is not None:
                return place + fault[0], fault[1], fault[2]
    return "", _words(info, value), value


def _accepts(info: types.Type, value: Any) -> bool:
    match info:
        case types.BoolType():
            return isinstance(value, bool)
        case types.IntType():
            number = isinstance(value, int) and not isinstance(value, bool)
            return number and (info.ge is None or value >= info.ge) and (info.le is None or value <= info.le)
        case types.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case types.StrType():
            return isinstance(value, str) and (info.pattern is None or bool(re.search(info.pattern, value)))
        case types.LiteralType():
            return any(type(value) is type(known) and value == known for known in info.values)
        case types.StructType():
            return False  # tables are looked into by `mistakes`
        case types.ListType():
            return isinstance(value, list) and all(_fault(info.item_type, item) is None for item in value)
        case types.TupleType():
            return (
                isinstance(value, list)
                and len(value) == len(info.item_types)
                and all(_fault(kind, item) is None for kind, item in zip(info.item_types, value, strict=True))
            )
        case types.DictType():
            return isinstance(value, Mapping) and all(
                _key_fits(_plain(info.key_type), key) and _fault(info.value_type, item) is None
                for key, item in value.items()
            )
    raise TypeError(f"no option has the type {info}")


def _key_fits(info: types.Type, key: str) -> bool:
    # Keys of a table are strings; those of numbers are written so.
    return not isinstance(info, types.IntType) or re.fullmatch(r"-?\d+", key) is not None


def _words(info: types.Type, value: object = None) -> str:
    """What a type stands for, for people who wrote `value`: bounds where it is only out of these."""
    match info:
        case types.Metadata():
            words = (info.extra or {}).get("words")
            return str(words) if words else _words(info.type, value)
        case types.UnionType():
            return " or ".join(dict.fromkeys(_words(part, value) for part in info.types))
        case types.IntType() if info.ge is not None and isinstance(value, int):
            return f"an integer of at least {info.ge}"
        case types.FloatType():
            return "a number"
        case types.LiteralType():
            return " or ".join(json.dumps(value) for value in info.values)
        case types.ListType():
            return f"a list of {_plural(info.item_type)}"
        case types.TupleType():
            return f"a list of {len(info.item_types)} {_plural(info.item_types[0])}"
        case types.DictType():
            return f"a table of {_plural(info.value_type)}"
        case types.StructType():
            return "a table"
    return _SIMPLE[type(info)]


def _plural(info: types.Type) -> str:
    match _plain(info):
        case types.UnionType() as union:
            return " or ".join(dict.fromkeys(map(_plural, union.types)))
        case types.FloatType():
            return "numbers"
        case types.ListType() as several:
            return f"lists of {_plural(several.item_type)}"
        case other:
            return _PLURAL[type(other)]


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
