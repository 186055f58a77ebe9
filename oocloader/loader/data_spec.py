"""DataSpec: what to load and how, and what to convert, written in TOML and checked.

The two tables of options below are all there is to know of them here: the check, the JSON schema and what
`Loader` and `convert` are given follow from them. To add an option is to add its line.
"""

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
from oocloader.pipeline import Residency

_SIZE = r"^\s*\d+(\.\d+)?\s*([kmgtKMGT]i?)?[bB]?\s*$"
_SLICE = r"^\s*-?\d*\s*:\s*-?\d*\s*(:\s*\d*\s*)?$"
_GLOB = re.compile(r"[*?\[]")


def about(description: str) -> Meta:
    """What an option is for, as editors show it."""
    return Meta(description=description)


Count = Annotated[int, Meta(ge=1)]
CountOrSize = Count | Annotated[str, Meta(pattern=_SIZE, extra={"words": 'a size such as "64MiB"'})]
Seed = Annotated[int, Meta(ge=0)]
Slice = Annotated[str, Meta(pattern=_SLICE, extra={"words": 'rows such as "1000:2000"'})]
Names = str | list[str] | dict[str, str]
Source = str | list[str] | dict[str, str | list[str]]
ByClass = dict[int, float] | Literal["balanced"]
Numbers = float | dict[str, float]
DTypes = str | dict[str, str]
Shuffle = bool | Literal["window", "global"]
MmapMeta = Meta(description="false: never map files", extra_json_schema={"const": False})
_ROWS = 'rows such as "1000:2000" or ":-500", their numbers, or a mask'


class LoaderTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Options of `Loader`, by their names there. `transform` is a function: give it to `Loader` itself."""

    features: Annotated[Names | UnsetType, about("array, arrays, or arrays by key")] = UNSET
    labels: Annotated[Names | UnsetType, about("the same, of labels")] = UNSET
    sample_weight: Annotated[Names | UnsetType, about("the same, of weights")] = UNSET
    class_weight: Annotated[ByClass | UnsetType, about("weight of each class, by its label")] = UNSET
    residency: Annotated[Residency | UnsetType, about("where the data lies during training")] = UNSET
    cache: Annotated[str | UnsetType, about('"memory" or a folder for decoded rows')] = UNSET
    shard: Annotated[tuple[int, int] | UnsetType, about("[index, count]")] = UNSET
    batch_size: Annotated[Count | UnsetType, about("rows of a batch")] = UNSET
    drop_remainder: Annotated[bool | UnsetType, about("leave out a last, shorter batch")] = UNSET
    shuffle: Annotated[Shuffle | UnsetType, about("rows in another order every epoch")] = UNSET
    seed: Annotated[Seed | UnsetType, about("of the order")] = UNSET
    window: Annotated[CountOrSize | UnsetType, about("rows staged together, or a size")] = UNSET
    block: Annotated[CountOrSize | UnsetType, about("rows kept together, or a size")] = UNSET
    dtype: Annotated[DTypes | UnsetType, about("of features, on the device")] = UNSET
    scale: Annotated[Numbers | UnsetType, about("multiplies features")] = UNSET
    offset: Annotated[Numbers | UnsetType, about("added to features")] = UNSET
    device: Annotated[str | UnsetType, about('such as "/GPU:0"')] = UNSET
    host_memory: Annotated[CountOrSize | UnsetType, about("for reading ahead")] = UNSET
    device_memory: Annotated[CountOrSize | UnsetType, about("for windows and batches")] = UNSET
    threads: Annotated[Count | UnsetType, about("that read and decode")] = UNSET
    mmap: Annotated[bool | UnsetType, MmapMeta] = UNSET
    rows: Annotated[Slice | list[int | bool] | UnsetType, about(_ROWS)] = UNSET


class ConvertTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `convert`, by their names there."""

    source: Annotated[Source, about("what to convert; arrays side by side, by their new names")]
    destination: Annotated[str, about("the store to write: .zarr, .h5 or .hdf5")]
    codec: Annotated[str | UnsetType, about("none, zstd, gzip, lz4 or blosc, or zstd:3")] = UNSET
    chunk_rows: Annotated[Count | UnsetType, about("rows of a chunk")] = UNSET
    shards: Annotated[Count | Literal["auto", "none"] | UnsetType, about("rows of a shard")] = UNSET
    zarr_format: Annotated[Literal[2, 3] | UnsetType, about("of Zarr")] = UNSET
    for_memory: Annotated[CountOrSize | UnsetType, about("of the device to train on")] = UNSET
    shape: Annotated[
        list[int] | dict[str, list[int]] | UnsetType, about("of a raw binary file; the first may be -1")
    ] = UNSET
    dtype: Annotated[DTypes | UnsetType, about("to convert to")] = UNSET
    lossy: Annotated[bool | UnsetType, about("let values be rounded")] = UNSET
    axis: Annotated[int | dict[str, int] | UnsetType, about("that becomes the rows")] = UNSET
    rows: Annotated[Slice | UnsetType, about('rows such as "1000:2000"')] = UNSET
    shuffle: Annotated[Seed | UnsetType, about("seed of a new order")] = UNSET
    shuffle_index: Annotated[str | UnsetType, about("array to keep that order in")] = UNSET
    resume: Annotated[bool | UnsetType, about("go on with an unfinished conversion")] = UNSET
    verify: Annotated[
        Literal["sample", "full", "none"] | UnsetType, about("how much is compared at the end")
    ] = UNSET
    checksum: Annotated[bool | UnsetType, about("one per chunk")] = UNSET
    overwrite: Annotated[bool | UnsetType, about("replace the destination")] = UNSET


class Tables(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A data spec of oocloader: what to load and how. Relative paths are relative to this file."""

    source: Annotated[
        Source | UnsetType, about("what to load: path, glob, store::array, list of parts, or these by name")
    ] = UNSET
    loader: LoaderTable | UnsetType = UNSET
    convert: ConvertTable | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What to load and how, and how to make it of something else, as a TOML file says.

    Parameters
    ----------
    path : str
        The file, for messages.
    source : path, list or dict
        What `Loader` is given; without one in the file, the destination of `[convert]`.
    options : dict
        Keyword arguments of `Loader`, the table `[loader]`.
    conversion : dict, default None
        Arguments of `convert`, source and destination included, the table `[convert]`; None where there is
        none.

    Examples
    --------
    >>> spec = DataSpec.of({"source": "train.h5", "loader": {"batch_size": 64}}, path="/data/spec.toml")
    >>> spec.source, spec.options
    ('/data/train.h5', {'batch_size': 64})

    ``Loader(DataSpec.load("data.toml"))`` needs nothing else; options given there too go before these.
    ``convert(**spec.conversion)`` carries the conversion out.
    """

    path: str
    source: Any
    options: Mapping[str, Any]
    conversion: Mapping[str, Any] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The spec in a TOML file.

        Parameters
        ----------
        path : path
            Of the file; relative paths in it are resolved against it.

        Returns
        -------
        DataSpec
            Checked as far as that can be done without the data.

        Raises
        ------
        StoreError
            Where the file cannot be read.
        SettingError
            With the place of every mistake.
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
        resolved = functools.partial(_resolved, folder=os.path.dirname(os.path.abspath(path)))
        options, conversion = _given(tables.loader) or {}, _given(tables.convert)
        if conversion is not None:
            conversion |= {name: resolved(conversion[name]) for name in ("source", "destination")}
        if tables.source is not UNSET:
            source = resolved(tables.source)
        else:
            assert conversion is not None
            source = conversion["destination"]
        if options.get("cache", "memory") != "memory":
            options["cache"] = resolved(options["cache"])
        if isinstance(options.get("rows"), str):
            options["rows"] = _slice(options["rows"])
        return cls(path, source, options, conversion)

    def replace(self, **options: Any) -> Self:
        """The same with another `source`, or with other options of `Loader`."""
        source = options.pop("source", self.source)
        return replace(self, source=source, options={**self.options, **options})


def _misfits(table: Mapping[str, Any]) -> list[str]:
    """Mistakes that types do not show."""
    found = []
    loader = table.get("loader")
    rows = loader.get("rows") if isinstance(loader, Mapping) else None
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
        given = inspect.signature(init).bind_partial(self, source.source, *args, **options).arguments
        try:
            init(**{**source.options, **given})
        except SettingError as error:
            raise type(error)(f"{source.path}: {error}", file=error.file, array=error.array) from error

    return cast(Init, wrapper)


def _given(table: msgspec.Struct | UnsetType) -> dict[str, Any] | None:
    """What a table has, None where there is no table."""
    if isinstance(table, UnsetType):
        return None
    return {name: value for name, value in msgspec.structs.asdict(table).items() if value is not UNSET}


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
    is_pattern = _GLOB.search(source) and not os.path.exists(path)
    return os.path.join(glob.escape(folder), source) if is_pattern else path
