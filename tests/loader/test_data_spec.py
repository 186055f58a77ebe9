"""DataSpec: what a TOML file says, checked, resolved, and what Loader and convert make of it."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  # h5py reads zstd with it
import msgspec
import numpy as np
import pytest
import zarr

import oocloader as ooc
import spec_schema
from numbered import numbers_of, rows_array
from oocloader.cli import main
from oocloader.loader.data_spec import ConvertTable, LoaderTable

SPECS = Path(__file__).parents[2] / "data_specs"

# Every option of `[loader]` with a value other than its default, and what `Loader` is given for it.
EVERY_OPTION: dict[str, tuple[str, Any]] = {
    "features": ('["x"]', ["x"]),
    "labels": ('{ target = "y" }', {"target": "y"}),
    "sample_weight": ('"w"', "w"),
    "class_weight": ("{ 0 = 1.0, 1 = 2.5 }", {0: 1.0, 1: 2.5}),
    "residency": ('"stream"', "stream"),
    "cache": ('"memory"', "memory"),
    "shard": ("[1, 4]", (1, 4)),
    "batch_size": ("7", 7),
    "drop_remainder": ("true", True),
    "shuffle": ('"window"', "window"),
    "seed": ("5", 5),
    "window": ('"1MiB"', "1MiB"),
    "block": ("3", 3),
    "dtype": ('{ x = "float16" }', {"x": "float16"}),
    "scale": ("2", 2),
    "offset": ("{ x = 0.5 }", {"x": 0.5}),
    "device": ('"/CPU:0"', "/CPU:0"),
    "host_memory": ('"1.5 GB"', "1.5 GB"),
    "device_memory": ("100_000_000", 100_000_000),
    "threads": ("1", 1),
    "mmap": ("false", False),
    "rows": ('"10:-5"', slice(10, -5)),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """300 rows of x with labels y and weights w, in x.npy, y.npy, w.npy and data.h5."""
    arrays = {"x": rows_array(300), "y": np.arange(300), "w": np.ones(300, "f4")}
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
            file.create_dataset(name, data=array, chunks=(50, *array.shape[1:]), compression="gzip")
    return tmp_path


def written(folder: Path, text: str) -> ooc.DataSpec:
    path = folder / "spec.toml"
    path.write_text(text)
    return ooc.DataSpec.load(path)


def mistakes_in(folder: Path, text: str) -> str:
    """What is said of a file, without its name."""
    with pytest.raises(ooc.SettingError) as told:
        written(folder, text)
    name = f"{folder / 'spec.toml'}: "
    assert str(told.value).startswith(name)
    assert told.value.file == str(folder / "spec.toml")
    assert "\n" not in str(told.value)
    return str(told.value).removeprefix(name)


# -- the options


def test_every_option_of_the_loader_can_be_written() -> None:
    """An option added to Loader is a line of LoaderTable, and of the table above."""
    options = set(inspect.signature(ooc.Loader).parameters) - {"source", "transform"}
    assert set(LoaderTable.__struct_fields__) == options
    assert set(EVERY_OPTION) == options


def test_every_argument_of_convert_can_be_written() -> None:
    arguments = set(inspect.signature(ooc.convert).parameters) - {"progress"}
    assert set(ConvertTable.__struct_fields__) == arguments


def test_options_arrive_as_they_were_written(data: Path) -> None:
    lines = [f"{name} = {text}" for name, (text, _) in EVERY_OPTION.items()]
    spec = written(data, "\n".join(['source = "data.h5"', "[loader]", *lines]))
    assert spec.options == {name: value for name, (_, value) in EVERY_OPTION.items()}
    assert spec.conversion is None


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_what_is_not_written_is_not_given(data: Path, name: str) -> None:
    text, value = EVERY_OPTION[name]
    spec = written(data, f'source = "data.h5"\n[loader]\n{name} = {text}')
    assert spec.options == {name: value}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('":"', slice(None)),
        ('"5:"', slice(5, None)),
        ('" 1 : 200 : 3 "', slice(1, 200, 3)),
        ("[1, 5, 7]", [1, 5, 7]),
        ("[true, false, true]", [True, False, True]),
    ],
)
def test_rows(data: Path, text: str, rows: Any) -> None:
    assert written(data, f'source = "data.h5"\n[loader]\nrows = {text}').options["rows"] == rows


# -- mistakes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('batch_size = "many"', 'loader.batch_size: expected an integer, got "many"'),
        ("batch_size = 0", "loader.batch_size: expected an integer of at least 1, got 0"),
        ("batchsize = 3", "loader.batchsize: no such option (did you mean batch_size?)"),
        ("shuffel = true", "loader.shuffel: no such option (did you mean shuffle?)"),
        (
            'window = "64 apples"',
            'loader.window: expected an integer or a size such as "64MiB", got "64 apples"',
        ),
        ('features = ["x", 3]', "loader.features[1]: expected a string, got 3"),
        ('scale = { x = "half" }', 'loader.scale.x: expected a number, got "half"'),
        (
            'rows = "all"',
            'loader.rows: expected rows such as "1000:2000" or a list of integers or true and false',
        ),
        ("rows = [1, true]", "loader.rows: expected numbers of rows, or a mask of true and false, not both"),
        (
            'transform = "f"',
            "loader.transform: is a function, which TOML cannot hold: Loader(spec, transform=...)",
        ),
        ("batch_size = 2022-01-01", 'loader.batch_size: expected an integer, got "2022-01-01"'),
    ],
)
def test_the_place_of_a_mistake(data: Path, text: str, said: str) -> None:
    assert mistakes_in(data, f'source = "data.h5"\n[loader]\n{text}').startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "source: is missing"),
        ("[loader]\nbatch_size = 3", "source: is missing"),
        ('sources = "x"', "sources: no such option (did you mean source?); source: is missing"),
        (
            "source = 3",
            "source: expected a string or a list of strings or a table of strings or lists of strings",
        ),
        ('source = { x = "a", y = ["b", 3] }', "source.y[1]: expected a string, got 3"),
        ('source = "a"\nloader = 3', "loader: expected a table, got 3"),
        ('[convert]\nsource = "a"', "convert.destination: is missing (expected a string)"),
        (
            '[convert]\nsource = "a"\ndestination = "b.h5"\ncodecs = "zstd"',
            "convert.codecs: no such option (did",
        ),
        ('source = "a', "no TOML: "),
        ("source = '\xff'", "no TOML: "),
    ],
)
def test_mistakes_elsewhere(tmp_path: Path, text: str, said: str) -> None:
    if "\xff" in text:
        (tmp_path / "spec.toml").write_bytes(text.encode("latin-1"))
        with pytest.raises(ooc.SettingError, match="no TOML"):
            ooc.DataSpec.load(tmp_path / "spec.toml")
        return
    assert mistakes_in(tmp_path, text).startswith(said)


def test_every_mistake_in_one_line(data: Path) -> None:
    said = mistakes_in(data, 'source = "data.h5"\n[loader]\nbatch_size = "many"\nseed = -1\nshufle = true')
    assert said == (
        'loader.batch_size: expected an integer, got "many"; '
        "loader.seed: expected an integer of at least 0, got -1; "
        "loader.shufle: no such option (did you mean shuffle?)"
    )


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ooc.StoreError, match=r"nowhere\.toml: cannot be read: No such file or directory"):
        ooc.DataSpec.load(tmp_path / "nowhere.toml")


def test_what_the_loader_refuses_names_the_file(data: Path) -> None:
    spec = written(data, 'source = "data.h5"\n[loader]\nfeatures = "x"\ndtype = "float31"')
    with pytest.raises(ooc.SettingError, match=r"spec\.toml: dtype='float31' is no number type"):
        ooc.Loader(spec)


# -- paths


@pytest.mark.parametrize(
    ("written_path", "resolved"),
    [
        ('"a.h5"', "{folder}/a.h5"),
        ('"sub/a.h5::group/x"', "{folder}/sub/a.h5::group/x"),
        ('"/abs/a.h5"', "/abs/a.h5"),
        ('"~/a.h5"', "~/a.h5"),
        ('"s3://bucket/a.zarr"', "s3://bucket/a.zarr"),
        ('"part-*.npy"', "{folder}/part-*.npy"),
        ('["1.npy", "/2.npy"]', ["{folder}/1.npy", "/2.npy"]),
        ('{ x = "x.npy", y = ["1.npy"] }', {"x": "{folder}/x.npy", "y": ["{folder}/1.npy"]}),
    ],
)
@pytest.mark.parametrize("key", ["source", "convert.source"])
def test_paths_are_relative_to_the_file(
    tmp_path: Path, key: str, written_path: str, resolved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    if key == "source":
        text = f"source = {written_path}"
    else:
        text = f'[convert]\nsource = {written_path}\ndestination = "out/new.zarr"'
    (folder / "spec.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    spec = ooc.DataSpec.load("specs/spec.toml")
    expected = json.loads(json.dumps(resolved).replace("{folder}", str(folder)))
    if key == "source":
        assert spec.source == expected
    else:
        assert spec.conversion == {"source": expected, "destination": f"{folder}/out/new.zarr"}
        assert spec.source == f"{folder}/out/new.zarr"


def test_a_folder_with_a_name_like_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "run [1]*"
    folder.mkdir()
    for part in range(3):
        np.save(folder / f"part-{part}.npy", rows_array(range(10 * part, 10 * part + 10)))
    np.save(folder / "odd[x].npy", rows_array(7))
    with ooc.open_store(written(folder, 'source = "part-*.npy"').source) as store:
        assert numbers_of(store[store.only_array()].read(0, 30)) == list(range(30))
    with ooc.open_store(written(folder, 'source = "odd[x].npy"').source) as store:
        assert store.arrays[store.only_array()].shape[0] == 7


# -- the Loader


def rows_of(loader: ooc.Loader) -> list[int]:
    return [
        number for batch in loader for number in numbers_of(batch[0] if isinstance(batch, tuple) else batch)
    ]


@pytest.mark.usefixtures("tf")
def test_a_loader_needs_nothing_else(data: Path) -> None:
    spec = written(
        data, 'source = "data.h5"\n[loader]\nfeatures = "x"\nlabels = "y"\nbatch_size = 64\nrows = "10:"'
    )
    with ooc.Loader(spec) as loader:
        assert len(loader) == 5
        assert rows_of(loader) == list(range(10, 300))


@pytest.mark.usefixtures("tf")
def test_what_is_given_beside_it_goes_before(data: Path) -> None:
    spec = written(data, 'source = "data.h5"\n[loader]\nfeatures = "w"\nbatch_size = 64\nrows = "10:"')
    # 32 is the default of batch_size: given, it counts all the same.
    with ooc.Loader(spec, "x", batch_size=32, rows=None) as loader:
        assert len(loader) == 10
        assert rows_of(loader) == list(range(300))
    with ooc.Loader(spec, "x", "y") as loader:
        assert loader.element_spec[1].dtype.name == "int64"
    with ooc.Loader(spec.replace(source={"x": rows_array(5)}, features="x", rows=None)) as loader:
        assert rows_of(loader) == list(range(5))
    assert spec.options == {"features": "w", "batch_size": 64, "rows": slice(10, None)}


def test_options_of_a_call_are_checked_as_ever(data: Path) -> None:
    spec = written(data, 'source = "data.h5"\n[loader]\nfeatures = "x"')
    with pytest.raises(TypeError, match="bath_size"):
        ooc.Loader(spec, bath_size=3)  # type: ignore[call-arg]  # the mistake
    with pytest.raises(TypeError):
        ooc.Loader(spec, "x", "y", "w", 32)  # type: ignore[call-arg,arg-type]  # options are given by name


# -- the examples


@pytest.mark.usefixtures("tf")
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table.toml").write_bytes((SPECS / "table.toml").read_bytes())
    sensors = tmp_path / "sensors"
    sensors.mkdir()
    columns = np.arange(3000)[:, np.newaxis] + np.linspace(0, 0.5, 40)
    for part in (10, 2, 1):  # read in natural order: 1, 2, 10
        begin = {1: 0, 2: 1000, 10: 2000}[part]
        np.save(sensors / f"columns-{part}.npy", columns[begin : begin + 1000])
    np.save(sensors / "target.npy", np.arange(3000.0))
    np.save(sensors / "weight.npy", np.full(3000, 0.5, "f4"))
    assert main(["convert", "--spec", str(tmp_path / "table.toml")]) == 0
    assert "3,000 rows" in capsys.readouterr().out
    with h5py.File(tmp_path / "table.h5") as file:
        assert set(file) == {"columns", "target", "weight"}
        assert np.array_equal(file["columns"][:], columns)
    with ooc.Loader(ooc.DataSpec.load(tmp_path / "table.toml")) as loader:
        assert len(loader) == 2000 // 256
        seen = []
        for x, y, weight in loader:
            assert x.shape == (256, 40)
            assert x.dtype.name == "float32"
            np.testing.assert_allclose(x[:, 0], y)
            assert set(weight.numpy()) == {0.5}
            seen += y.numpy().tolist()
    assert len(set(seen)) == 7 * 256
    assert max(seen) < 2000
    assert seen != sorted(seen)


@pytest.mark.usefixtures("tf")
def test_the_volumes(tmp_path: Path) -> None:
    (tmp_path / "volumes.toml").write_bytes((SPECS / "volumes.toml").read_bytes())
    scans = rows_array(11, "int16", sample_shape=(6, 8, 4))
    masks = (scans % 2).astype("u1")
    zarr.create_array(str(tmp_path / "scans.zarr"), data=scans, chunks=(1, 3, 8, 4))
    with h5py.File(tmp_path / "masks.h5", "w") as file:
        file.create_dataset("segmentation/mask", data=masks, chunks=(2, 6, 8, 4), compression="gzip")
    with ooc.Loader(ooc.DataSpec.load(tmp_path / "volumes.toml")) as loader:
        assert len(loader) == 6
        seen = []
        for x, y in loader:
            assert set(x) == {"volume"}
            assert x["volume"].dtype.name == "float32"
            assert y.dtype.name == "uint8"
            numbers = numbers_of(x["volume"], stored="int16", scale=0.001, offset=-1.0)
            assert np.array_equal(y, masks[numbers])
            seen += numbers
    assert sorted(seen) == list(range(11))


def test_the_digits_are_what_the_demo_makes() -> None:
    spec = ooc.DataSpec.load(SPECS / "digits.toml")
    folder = str(SPECS.resolve())
    assert spec.source == f"{folder}/digits.zarr"
    assert spec.options["scale"] == 1 / 255
    assert spec.conversion is not None
    assert spec.conversion["destination"] == spec.source


def test_examples_point_to_the_schema() -> None:
    files = sorted(SPECS.glob("*.toml"))
    assert len(files) == 3
    for file in files:
        assert file.read_text().startswith("#:schema ./schema.json\n")
        ooc.DataSpec.load(file)


# -- the schema


def test_the_schema_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert spec_schema.main([]) == 0
    assert capsys.readouterr().out == (SPECS / "schema.json").read_text(), "run tools/spec_schema.py --write"
    assert spec_schema.main(["--wirte"]) == 2


def test_the_schema_tells_of_every_option() -> None:
    schema = json.loads((SPECS / "schema.json").read_text())
    for name, kind in (("LoaderTable", LoaderTable), ("ConvertTable", ConvertTable)):
        told = schema["$defs"][name]
        assert told["additionalProperties"] is False
        assert set(told["properties"]) == set(kind.__struct_fields__)
        assert all(about["description"] for about in told["properties"].values())
    assert schema["$defs"]["LoaderTable"]["properties"]["batch_size"]["minimum"] == 1
    required = {field.name for field in msgspec.structs.fields(ConvertTable) if field.required}
    assert set(schema["$defs"]["ConvertTable"]["required"]) == required == {"source", "destination"}


# -- the command


def test_convert_says_what_is_said_twice(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = data / "spec.toml"
    spec.write_text(
        '[convert]\nsource = { x = "x.npy", y = "y.npy" }\ndestination = "new.zarr"\nchunk_rows = 60\n'
    )
    for extra in (["--codec", "zstd"], ["--chunk-rows", "3"], ["a.npy", "b.zarr"], ["--array", "x=a.npy"]):
        assert main(["convert", "--spec", str(spec), *extra]) == 2
        assert f"with --spec: {spec} says what to convert" in capsys.readouterr().err
    assert not (data / "new.zarr").exists()
    assert main(["convert", "--spec", str(spec), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 300
    group = zarr.open_group(data / "new.zarr", mode="r")
    assert group["x"].chunks[0] == 60  # type: ignore[union-attr]  # it is an array
    assert main(["convert", "--spec", str(spec)]) == 1
    assert "new.zarr" in capsys.readouterr().err
    assert main(["convert", "--spec", str(spec), "--overwrite"]) == 0


def test_convert_needs_its_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = data / "spec.toml"
    spec.write_text('source = "data.h5"')
    assert main(["convert", "--spec", str(spec)]) == 2
    assert capsys.readouterr().err == (
        f"oocloader: error: {spec}: has no [convert]; it needs a source and a destination\n"
    )
    assert main(["convert", "--spec", os.fspath(data / "no.toml")]) == 1
