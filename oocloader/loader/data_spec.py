"""DataSpec: what to load and how, and what to convert, written in TOML and checked.

The two tables of options below are all there is to know of them here: the check, the JSON schema and what
`Loader` and `convert` are given follow from them. To add an option is to add its line.
"""

from __future__ import annotations

import functools
import glob
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from oocloader.errors import SettingError, StoreError
from oocloader.loader.data_spec_errors import mistakes
from oocloader.paths import is_url, local_path

_SIZE = r"^\s*\d+(\.\d+)?\s*([kmgtKMGT]i?)?[bB]?\s*$"
_SLICE = r"^\s*-?\d*\s*:\s*-?\d*\s*(:\s*\d*\s*)?$"
_GLOB = re.compile(r"[*?\[]")

Size = Annotated[str, Meta(pattern=_SIZE, extra={"words": 'a size such as "64MiB"'})]
Count = Annotated[int, Meta(ge=1)]
Names = str | list[str] | dict[str, str]
Source = str | list[str] | dict[str, str | list[str]]


class LoaderOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Options of `Loader`, by their names there. `transform` is a function: give it to `Loader` itself."""

    features: Annotated[Names | UnsetType, Meta(description="array, arrays, or arrays by key")] = UNSET
    labels: Annotated[Names | UnsetType, Meta(description="the same, of labels")] = UNSET
    sample_weight: Annotated[Names | UnsetType, Meta(description="the same, of weights")] = UNSET
    class_weight: Annotated[
        dict[int, float] | Literal["balanced"] | UnsetType,
        Meta(description="weight of each class, by its label"),
    ] = UNSET
    residency: Annotated[
        Literal["auto", "stream", "device"] | UnsetType,
        Meta(description="where the data lies during training"),
    ] = UNSET
    cache: Annotated[str | UnsetType, Meta(description='"memory" or a folder for decoded rows')] = UNSET
    shard: Annotated[tuple[int, int] | UnsetType, Meta(description="[index, count]")] = UNSET
    batch_size: Annotated[Count | UnsetType, Meta(description="rows of a batch")] = UNSET
    drop_remainder: Annotated[bool | UnsetType, Meta(description="leave out a last, shorter batch")] = UNSET
    shuffle: Annotated[
        bool | Literal["window", "global"] | UnsetType, Meta(description="rows in another order every epoch")
    ] = UNSET
    seed: Annotated[Annotated[int, Meta(ge=0)] | UnsetType, Meta(description="of the order")] = UNSET
    window: Annotated[Count | Size | UnsetType, Meta(description="rows staged together, or a size")] = UNSET
    block: Annotated[Count | Size | UnsetType, Meta(description="rows kept together, or a size")] = UNSET
    dtype: Annotated[str | dict[str, str] | UnsetType, Meta(description="of features, on the device")] = UNSET
    scale: Annotated[float | dict[str, float] | UnsetType, Meta(description="multiplies features")] = UNSET
    offset: Annotated[float | dict[str, float] | UnsetType, Meta(description="added to features")] = UNSET
    device: Annotated[str | UnsetType, Meta(description='such as "/GPU:0"')] = UNSET
    host_memory: Annotated[Count | Size | UnsetType, Meta(description="for reading ahead")] = UNSET
    device_memory: Annotated[Count | Size | UnsetType, Meta(description="for windows and batches")] = UNSET
    threads: Annotated[Count | UnsetType, Meta(description="that read and decode")] = UNSET
    mmap: Annotated[
        bool | UnsetType,
        Meta(description="false: never map files", extra_json_schema={"const": False}),
    ] = UNSET
    rows: Annotated[
        Annotated[str, Meta(pattern=_SLICE, extra={"words": 'rows such as "1000:2000"'})]
        | list[int | bool]
        | UnsetType,
        Meta(description='rows such as "1000:2000" or ":-500", their numbers, or a mask'),
    ] = UNSET


class ConvertOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `convert`, by their names there."""

    source: Annotated[Source, Meta(description="what to convert; arrays side by side, by their new names")]
    destination: Annotated[str, Meta(description="the store to write: .zarr, .h5 or .hdf5")]
    codec: Annotated[str | UnsetType, Meta(description="none, zstd, gzip, lz4 or blosc, or zstd:3")] = UNSET
    chunk_rows: Annotated[Count | UnsetType, Meta(description="rows of a chunk")] = UNSET
    shards: Annotated[
        Annotated[int, Meta(ge=1)] | Literal["auto", "none"] | UnsetType, Meta(description="rows of a shard")
    ] = UNSET
    zarr_format: Annotated[Literal[2, 3] | UnsetType, Meta(description="of Zarr")] = UNSET
    for_memory: Annotated[Count | Size | UnsetType, Meta(description="of the device to train on")] = UNSET
    shape: Annotated[
        list[int] | dict[str, list[int]] | UnsetType,
        Meta(description="of a raw binary file; the first may be -1"),
    ] = UNSET
    dtype: Annotated[str | dict[str, str] | UnsetType, Meta(description="to convert to")] = UNSET
    lossy: Annotated[bool | UnsetType, Meta(description="let values be rounded")] = UNSET
    axis: Annotated[int | dict[str, int] | UnsetType, Meta(description="that becomes the rows")] = UNSET
    rows: Annotated[
        Annotated[str, Meta(pattern=_SLICE, extra={"words": 'rows such as "1000:2000"'})] | UnsetType,
        Meta(description='rows such as "1000:2000"'),
    ] = UNSET
    shuffle: Annotated[Annotated[int, Meta(ge=0)] | UnsetType, Meta(description="seed of a new order")] = (
        UNSET
    )
    shuffle_index: Annotated[str | UnsetType, Meta(description="array to keep that order in")] = UNSET
    resume: Annotated[bool | UnsetType, Meta(description="go on with an unfinished conversion")] = UNSET
    verify: Annotated[
        Literal["sample", "full", "none"] | UnsetType, Meta(description="how much is compared at the end")
    ] = UNSET
    checksum: Annotated[bool | UnsetType, Meta(description="one per chunk")] = UNSET
    overwrite: Annotated[bool | UnsetType, Meta(description="replace the destination")] = UNSET


class Tables(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A data spec of oocloader: what to load and how. Relative paths are relative to this file."""

    source: Annotated[
        Source | UnsetType,
        Meta(description="what to load: path, glob, store::array, list of parts, or these by name"),
    ] = UNSET
    loader: LoaderOptions | UnsetType = UNSET
    convert: ConvertOptions | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What to load and how, and how to make it of something else, as a TOML file says.

    `Loader(DataSpec.load("data.toml"))` needs nothing else; options given there too go before these.

    - `path`: the file, for messages.
    - `source`: what `Loader` is given; without one in the file, the destination of `[convert]`.
    - `options`: keyword arguments of `Loader`, the table `[loader]`.
    - `conversion`: arguments of `convert`, source and destination included, the table `[convert]`; None
      where there is none. `convert(**spec.conversion)` carries it out.
    """

    path: str
    source: Any
    options: Mapping[str, Any]
    conversion: Mapping[str, Any] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The spec in a TOML file, relative paths in it resolved against the file.

        Raises `StoreError` where the file cannot be read, `SettingError` with the place of every mistake.
        """
        name = local_path(path, remedy="copy the file to this machine")
        try:
            with open(name, "rb") as stream:
                table = tomllib.load(stream)
        except OSError as error:
            raise StoreError(f"{name}: cannot be read: {error.strerror}", file=name) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{name}: no TOML: {error}", file=name) from error
        return cls.of(table, path=name)

    @classmethod
    def of(cls, table: Mapping[str, Any], *, path: str) -> Self:
        """The spec that a TOML file at `path` with this content would hold."""
        found = [
            "loader.transform: is a function, which TOML cannot hold: Loader(spec, transform=...)"
            if text.startswith("loader.transform:")
            else text
            for text in [*mistakes(table, Tables), *_misfits(table)]
        ]
        if found:
            raise SettingError(f"{path}: {'; '.join(found)}", file=path)
        tables = msgspec.convert(table, Tables, str_keys=True)
        folder = os.path.dirname(os.path.abspath(path))
        conversion = None
        if tables.convert is not UNSET:
            conversion = _given(tables.convert)
            for name in ("source", "destination"):
                conversion[name] = _resolved(conversion[name], folder)
        source = tables.source
        if source is UNSET:
            assert conversion is not None
            resolved = conversion["destination"]
        else:
            resolved = _resolved(source, folder)
        options = {} if tables.loader is UNSET else _given(tables.loader)
        if options.get("cache", "memory") != "memory":
            options["cache"] = _resolved(options["cache"], folder)
        if isinstance(options.get("rows"), str):
            options["rows"] = _slice(options["rows"])
        return cls(path, resolved, options, conversion)

    def replace(self, **options: Any) -> Self:
        """The same with another `source`, or with other options of `Loader`."""
        source = options.pop("source", self.source)
        return replace(self, source=source, options={**self.options, **options})


def _misfits(table: Mapping[str, Any]) -> list[str]:
    """Mistakes that types do not show."""
    found = []
    loader = table.get("loader")
    options = loader if isinstance(loader, Mapping) else {}
    rows = options.get("rows")
    if isinstance(rows, list) and len({isinstance(row, bool) for row in rows}) == 2:
        found.append(
            "loader.rows: expected numbers of rows, or a mask of true and false, not both in one list"
        )
    if "source" not in table and "convert" not in table:
        found.append("source: is missing (what is to be loaded, or [convert], whose destination it then is)")
    return found


def schema() -> dict[str, Any]:
    """The JSON schema of a data spec, for editors."""
    made = msgspec.json.schema(Tables)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


Init = TypeVar("Init", bound=Callable[..., None])


def takes_spec(init: Init) -> Init:
    """Have an initialiser whose first argument is a source take a `DataSpec` there: its source and options.

    Options given beside the spec go before those in it.
    """

    @functools.wraps(init)
    def wrapper(self: Any, source: Any, *args: Any, **options: Any) -> None:
        if not isinstance(source, DataSpec):
            init(self, source, *args, **options)
            return
        # What is given by place comes before what the file has under the same name.
        placed = list(inspect.signature(init).parameters)[2 : 2 + len(args)]
        beside = {name: value for name, value in source.options.items() if name not in placed}
        try:
            init(self, source.source, *args, **{**beside, **options})
        except SettingError as error:
            raise type(error)(f"{source.path}: {error}", file=error.file, array=error.array) from error

    return cast(Init, wrapper)


def _given(options: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(options).items() if value is not UNSET}


def _slice(text: str) -> slice:
    """
    >>> _slice("10:"), _slice("::2")
    (slice(10, None, None), slice(None, None, 2))
    """
    return slice(*(int(part) if part.strip() else None for part in text.split(":")))


def _resolved(source: Any, folder: str) -> Any:
    """Paths of a source, relative to `folder`."""
    if isinstance(source, Mapping):
        return {name: _resolved(value, folder) for name, value in source.items()}
    if isinstance(source, list):
        return [_resolved(part, folder) for part in source]
    if source.startswith("~") or os.path.isabs(source) or is_url(source) or not source:
        return source
    path = os.path.join(folder, source)
    # In a pattern, characters of the folder's own name stand for themselves.
    return (
        os.path.join(glob.escape(folder), source)
        if _GLOB.search(source) and not os.path.exists(path)
        else path
    )
