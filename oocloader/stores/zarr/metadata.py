"""The metadata of one Zarr array, formats 2 and 3, checked. The formats: zarr-specs.readthedocs.io."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oocloader.stores.base import LOADABLE, STRING_REMEDY, refusal

_V3_NUMBERS = {dtype.name: dtype for dtype in LOADABLE}
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_NAMED_FLOATS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class BadMetadata(ValueError):
    """Metadata that does not say what it must; the message is the reason for people."""


def grid_of(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Number of chunks along each axis."""
    return tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))


@dataclass(frozen=True, slots=True)
class Keys:
    """How chunks are named: behind `prefix` ("c" and the separator, or "") the grid indices, joined."""

    prefix: str
    separator: str

    def indices(self, keys: Sequence[str], ndim: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of `keys` name chunks (int64, n) and their grid indices (int64, (n, ndim)).

        >>> Keys("c/", "/").indices(["c/0/10", "zarr.json"], 2)
        (array([0]), array([[ 0, 10]]))
        """
        number = "(?:0|[1-9][0-9]{0,17})"
        pattern = re.compile(re.escape(self.prefix) + f"({re.escape(self.separator).join([number] * ndim)})")
        named = [(i, match[1]) for i, key in enumerate(keys) if (match := pattern.fullmatch(key))]
        if not named:
            return np.zeros(0, np.int64), np.zeros((0, ndim), np.int64)
        text = " ".join(numbers for _, numbers in named).replace(self.separator, " ")
        which = np.array([i for i, _ in named], np.int64)
        return which, np.fromstring(text, np.int64, sep=" ").reshape(-1, ndim)


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """What the metadata of an array says.

    - `dtype`: byte order included (native in format 3, where a codec has it), object where NumPy has none
    - `fill`: 0-d array of `dtype`; zero where there is no such value
    - `refused`: why the array cannot be loaded by anybody; `unusual`: why not here
    - `document`: the JSON itself
    """

    version: Literal[2, 3]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: np.ndarray
    keys: Keys
    attrs: Mapping[str, Any]
    document: Mapping[str, Any]
    refused: str = ""
    unusual: str = ""

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return grid_of(self.shape, self.chunk_shape)

    @property
    def codec_names(self) -> tuple[str, ...]:
        """The codecs as listed, in the order of writing, without the one that only tells the byte order."""
        if self.version == 2:
            used = [*_entries(self.document, "filters"), self.document.get("compressor")]
            return tuple(str(entry["id"]) for entry in used if isinstance(entry, dict) and "id" in entry)
        listed = _entries(self.document, "codecs")
        names = [entry.get("name") if isinstance(entry, dict) else entry for entry in listed]
        return tuple(str(name) for name in names if name not in ("bytes", "endian"))


def parse_json(text: bytes) -> dict[str, Any]:
    """A JSON object. Raises `BadMetadata`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMetadata(f"it is not valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise BadMetadata("it is not a JSON object")
    return document


def parse_v2(document: Mapping[str, Any], attrs: Mapping[str, Any]) -> ArrayMetadata:
    """What a `.zarray` says, `attrs` being its `.zattrs`. Raises `BadMetadata`."""
    shape, chunk_shape = _lengths(document, "shape"), _lengths(document, "chunks")
    dtype, refused = _v2_dtype(document.get("dtype"), _entries(document, "filters"))
    keys = Keys("", _separator(document.get("dimension_separator", "."), "dimension separator"))
    fill = _fill(document, dtype, refused)
    refused = refused or refusal(dtype, shape)
    return _checked(ArrayMetadata(2, shape, chunk_shape, dtype, fill, keys, attrs, document, refused))


def parse_v3(document: Mapping[str, Any]) -> ArrayMetadata:
    """What a `zarr.json` of an array says. Raises `BadMetadata`."""
    shape = _lengths(document, "shape")
    dtype, refused = _v3_dtype(document.get("data_type"))
    unusual = _v3_extensions(document)
    grid_name, grid = _named(document.get("chunk_grid"), "chunk grid")
    if grid_name == "regular":
        chunk_shape = _lengths(grid, "chunk_shape")
    else:
        chunk_shape = tuple(max(1, n) for n in shape)
        unusual = unusual or f"its chunk grid is {grid_name}"
    keys_name, options = _named(document.get("chunk_key_encoding"), "chunk key encoding")
    keys = Keys("", ".")
    if keys_name == "default":
        separator = _separator(options.get("separator", "/"), "key separator")
        keys = Keys(f"c{separator}", separator)
    elif keys_name == "v2":
        keys = Keys("", _separator(options.get("separator", "."), "key separator"))
    else:
        unusual = unusual or f"its chunk key encoding is {keys_name}"
    attrs = document.get("attributes")
    attrs = attrs if isinstance(attrs, dict) else {}
    fill = _fill(document, dtype, refused)
    refused = refused or refusal(dtype, shape)
    return _checked(
        ArrayMetadata(3, shape, chunk_shape, dtype, fill, keys, attrs, document, refused, unusual)
    )


def _separator(separator: Any, what: str) -> str:
    if separator not in (".", "/"):
        raise BadMetadata(f"its {what} is {separator!r}")
    return str(separator)


def _fill(document: Mapping[str, Any], dtype: np.dtype[Any], refused: str) -> np.ndarray:
    return np.zeros((), dtype) if refused else fill_value(document.get("fill_value"), dtype)


def _checked(metadata: ArrayMetadata) -> ArrayMetadata:
    shape, chunk_shape = metadata.shape, metadata.chunk_shape
    if len(shape) != len(chunk_shape):
        raise BadMetadata(f"its shape {shape} and chunk shape {chunk_shape} differ in length")
    if not metadata.refused and 0 in chunk_shape:
        raise BadMetadata(f"its chunk shape is {chunk_shape}")
    return metadata


def _lengths(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    lengths = document.get(name)
    if not isinstance(lengths, list) or not all(type(n) is int and 0 <= n < 2**63 for n in lengths):
        raise BadMetadata(f"its {name} is {lengths!r}")
    return tuple(lengths)


def _entries(document: Mapping[str, Any], name: str) -> list[Any]:
    """A list that may be left out."""
    entries = document.get(name)
    if entries is not None and not isinstance(entries, list):
        raise BadMetadata(f"its {name} are {entries!r}")
    return entries or []


def _named(entry: Any, what: str) -> tuple[str, Mapping[str, Any]]:
    """Name and configuration of an extension point; a string is a name without configuration."""
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and isinstance(entry.get("name"), str):
        configuration = entry.get("configuration") or {}
        if isinstance(configuration, dict):
            return entry["name"], configuration
    raise BadMetadata(f"its {what} is {entry!r}")


_V3_MEMBERS = re.compile(
    "attributes|chunk_grid|chunk_key_encoding|codecs|consolidated_metadata|data_type|dimension_names"
    "|fill_value|node_type|shape|storage_transformers|zarr_format"
)


def _v3_extensions(document: Mapping[str, Any]) -> str:
    if document.get("storage_transformers"):
        return "it has storage transformers"
    for name, value in document.items():
        optional = isinstance(value, dict) and value.get("must_understand") is False
        if not optional and not _V3_MEMBERS.fullmatch(name):
            return f"it has the extension {name!r}"
    return ""


def _v2_dtype(value: Any, filters: Sequence[Any]) -> tuple[np.dtype[Any], str]:
    """The dtype, and why its values cannot be loaded where NumPy's dtype does not tell."""
    try:
        dtype = np.dtype([tuple(field) for field in value] if isinstance(value, list) else value)
    except (TypeError, ValueError) as error:
        raise BadMetadata(f"its dtype is {value!r}") from error
    named = [entry.get("id") for entry in filters if isinstance(entry, dict)]
    if dtype.kind == "O" and "vlen-utf8" in named:
        return dtype, f"its dtype is string (of varying length): {STRING_REMEDY}"
    if dtype.kind == "O" and "vlen-array" in named:
        return dtype, "its rows are arrays of varying length: pad them to one length"
    return dtype, ""


def _v3_dtype(value: Any) -> tuple[np.dtype[Any], str]:
    name, _ = _named(value, "data type")
    if name in _V3_NUMBERS:
        return _V3_NUMBERS[name], ""
    other = np.dtype(object)
    if name in ("string", "fixed_length_utf32", "null_terminated_bytes"):
        return other, f"its dtype is string ({name}): {STRING_REMEDY}"
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        return other, f"its dtype is {name}: write it as integers or as floats"
    if name in ("structured", "struct"):
        fields = ", ".join(_fields(value))
        return other, f"its dtype is compound, with fields {fields}: write the field you want as an array"
    return other, f"its data type is {name}, which TensorFlow does not have or has no agreed form in Zarr"


def _fields(value: Any) -> list[str]:
    _, configuration = _named(value, "data type")
    fields = _entries(configuration, "fields")
    names = (field.get("name") if isinstance(field, dict) else next(iter(field), None) for field in fields)
    return [str(name) for name in names]


def fill_value(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """The value for chunks that were not written, 0-d, its bits kept (NaN payloads). Raises `BadMetadata`.

    >>> hex(int(fill_value("0x7fc00001", np.dtype("f4")).view("u4")))
    '0x7fc00001'
    """
    if value is None or dtype.kind not in "biufc":
        return np.zeros((), dtype)
    try:
        if dtype.kind == "c":
            real, imaginary = value if isinstance(value, list) else (value, 0.0)
            parts = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
            both = np.array([_float(real, parts), _float(imaginary, parts)], parts)
            return both.view(dtype).reshape(())
        if dtype.kind == "f":
            return _float(value, dtype)
        is_bool = dtype.kind == "b" and value in (0, 1)
        return np.array(bool(value) if is_bool else _integer(value), dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMetadata(f"its fill value {value!r} is no {dtype}") from error


def _float(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    if isinstance(value, str) and _HEX.fullmatch(value):
        bits = int(value, 16)
        return np.array(bits, f"{dtype.str[0]}u{dtype.itemsize}").view(dtype)
    value = _NAMED_FLOATS.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    with np.errstate(over="ignore"):
        return np.array(value, dtype)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError(value)
    return int(value)
