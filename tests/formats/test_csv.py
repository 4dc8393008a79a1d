"""Tables: one column a variable, numbers or text by the whole file, rows dated by a time column."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest

from earthsciio import (
    DataSource,
    DeclarationError,
    EarthSciIOError,
    FileFormatError,
    MissingFile,
    NativeDataset,
    Provider,
    RecordNotFound,
    SourceTemporal,
    UnknownReaderOption,
    VariableNotFound,
    Window,
)

STACKS = """\
stack,lat,lon,height,rate
A1,52.5,13.25,120,1.5
B2,48.75,2.5,,-0.25
"""


def table(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def provider(path: Path, *variables: str, temporal: SourceTemporal | None = None, **options: Any) -> Provider:
    return Provider(DataSource("s", "csv", str(path), variables, temporal, reader_kwargs=options))


def read(path: Path, *variables: str, **options: Any) -> NativeDataset:
    return provider(path, *variables, **options).materialize()


class TestColumns:
    # spec: V9.1
    def test_numbers_are_float64_empty_is_nan_and_the_rest_is_text(self, tmp_path: Path) -> None:
        sample = read(table(tmp_path, STACKS))
        assert sample.variable_names() == ["stack", "lat", "lon", "height", "rate"]
        assert all(field.dims == ("point",) for field in sample.variables.values())
        assert sample["stack"].data.tolist() == ["A1", "B2"]
        np.testing.assert_array_equal(sample["height"].data, [120, np.nan])
        np.testing.assert_array_equal(sample["rate"].data, [1.5, -0.25])
        assert sample["height"].dtype == np.float64

    # spec: V9.1
    def test_a_window_selects_points_and_the_type_stays(self, tmp_path: Path) -> None:
        path = table(tmp_path, "x,s\n1,a\n2,b\n3,1\n")
        sample = provider(path).with_window(Window({"point": [2, 0]})).materialize()
        np.testing.assert_array_equal(sample["x"].data, [3, 1])
        assert sample["s"].data.tolist() == ["1", "a"]  # a number in a column of text
        assert sample["s"].dtype == object

    # spec: V9.1
    def test_what_is_a_number(self, tmp_path: Path) -> None:
        sample = read(table(tmp_path, "a,b,c,d\n 1e3 ,-inf,1_0,0x10\nNaN,+.5,2,2\n"))
        np.testing.assert_array_equal(sample["a"].data, [1000, np.nan])
        np.testing.assert_array_equal(sample["b"].data, [-np.inf, 0.5])
        assert sample["c"].data.tolist() == ["1_0", "2"]
        assert sample["d"].data.tolist() == ["0x10", "2"]
        digits = "\N{ARABIC-INDIC DIGIT ONE}"
        assert read(table(tmp_path, f"a\n{digits}\n"))["a"].data.tolist() == [digits]

    # spec: V9.1
    def test_marks_spaces_and_blank_lines_do_not_count(self, tmp_path: Path) -> None:
        sample = read(table(tmp_path, "\ufeff a , b\n\n 1 , x y \n\n\n2,z\n\n"))
        assert sample["a"].data.tolist() == [1, 2]
        assert sample["b"].data.tolist() == ["x y", "z"]

    # spec: V9.1
    def test_declared_missing_cells_are_empty(self, tmp_path: Path) -> None:
        path = table(tmp_path, "a,s\nNA,NA\n-9999,x\n3,y\n")
        sample = read(path, missing=["NA", "-9999"])
        np.testing.assert_array_equal(sample["a"].data, [np.nan, np.nan, 3])
        assert sample["s"].data.tolist() == ["", "x", "y"]

    # spec: V9.1
    def test_text_by_declaration(self, tmp_path: Path) -> None:
        assert read(table(tmp_path, "id\n007\n010\n"), text=["id"])["id"].data.tolist() == ["007", "010"]

    # spec: V9.3
    def test_numeric_by_declaration_names_the_cell_that_is_not(self, tmp_path: Path) -> None:
        path = table(tmp_path, "a,b\n1,2\n\n3,oops\n")
        assert read(path)["b"].data.tolist() == ["2", "oops"]
        with pytest.raises(FileFormatError, match="'oops'") as caught:
            read(path, numeric=["b"])
        assert (caught.value.file, caught.value.variable, caught.value.line) == (str(path), "b", 4)

    def test_variables_choose_and_order(self, tmp_path: Path) -> None:
        assert read(table(tmp_path, STACKS), "rate", "lat").variable_names() == ["rate", "lat"]
        with pytest.raises(VariableNotFound, match="stack"):
            read(table(tmp_path, STACKS), "none")

    # spec: V9.2
    def test_declared_coordinates_come_with_the_rest(self, tmp_path: Path) -> None:
        sample = read(table(tmp_path, STACKS), "rate", coordinates=["lat", "lon"])
        assert sample.variable_names() == ["rate"]
        assert sample.coord_names() == ["lat", "lon"]
        np.testing.assert_array_equal(sample["lon"].data, [13.25, 2.5])

    def test_a_header_alone_is_a_table_of_no_points(self, tmp_path: Path) -> None:
        assert read(table(tmp_path, "a,b\n"))["a"].shape == (0,)


class TestDialects:
    def test_delimiter_comments_quotes_mark_and_line_ends(self, tmp_path: Path) -> None:
        text = '\ufeff# the "raw table\r\na;s\r\n1;"x;y"\r\n# 2;z\r\n3;"two\nlines"\r\n'
        sample = read(table(tmp_path, text), delimiter=";", comment="#")
        np.testing.assert_array_equal(sample["a"].data, [1, 3])
        assert sample["s"].data.tolist() == ["x;y", "two\nlines"]

    def test_encoding(self, tmp_path: Path) -> None:
        path = table(tmp_path, "ort\nKöln\n", "latin-1")
        assert read(path, encoding="latin-1")["ort"].data.tolist() == ["Köln"]
        with pytest.raises(FileFormatError, match="encoding"):
            read(path)

    # spec: V9.2
    def test_the_dimension_has_a_name(self, tmp_path: Path) -> None:
        assert read(table(tmp_path, "a\n1\n"), dim="site")["a"].dims == ("site",)


HOURLY = """\
time,v,note
2019-07-01T00:00,1,a
2019-07-01T03:00Z,2,b
2019-07-01 06:00,,c
"""
EVERY_3H = SourceTemporal("2019-07-01", "PT3H", end="2019-07-01T09:00")


class TestTime:
    def test_rows_are_records(self, tmp_path: Path) -> None:
        source = provider(table(tmp_path, HOURLY), temporal=EVERY_3H, time_column="time")
        sample = source.sample_at(datetime(2019, 7, 1, 4, tzinfo=UTC))
        assert sample.variable_names() == ["v", "note"]
        assert (sample["v"].dims, sample["v"].data[()], sample["note"].data[()]) == ((), 2, "b")
        assert sample.times == (datetime(2019, 7, 1, 3, tzinfo=UTC),)
        assert np.isnan(source.sample_at(datetime(2019, 7, 1, 6, tzinfo=UTC))["v"].data)

    def test_brackets(self, tmp_path: Path) -> None:
        temporal = SourceTemporal("2019-07-01", "PT3H", end="2019-07-01T09:00", records_per_sample=2)
        source = provider(table(tmp_path, HOURLY), temporal=temporal, time_column="time")
        sample = source.sample_at(datetime(2019, 7, 1, tzinfo=UTC))
        assert sample["v"].dims == ("time",)
        np.testing.assert_array_equal(sample["v"].data, [1, 2])
        np.testing.assert_array_equal(np.diff(sample["time"].data), [3 * 3600])

    def test_a_whole_table_keeps_its_times_as_seconds(self, tmp_path: Path) -> None:
        sample = read(table(tmp_path, HOURLY), time_column="time")
        assert sample["v"].dims == ("time",)
        expected = [datetime(2019, 7, 1, hour, tzinfo=UTC).timestamp() for hour in (0, 3, 6)]
        np.testing.assert_array_equal(sample["time"].data, expected)
        assert sample["time"].attrs == {"units": "seconds since 1970-01-01", "calendar": "standard"}

    def test_numbers_with_units_in_another_calendar(self, tmp_path: Path) -> None:
        path = table(tmp_path, "day,v\n58.5,1\n59.5,2\n")
        temporal = SourceTemporal("1964-02-28T12:00", "P1D", time_dim="day", calendar="noleap")
        options = {"time_column": "day", "time_units": "days since 1964-01-01", "calendar": "365_day"}
        source = provider(path, temporal=temporal, **options)
        assert source.sample_at(cftime.DatetimeNoLeap(1964, 2, 28, 13))["v"].data == 1
        assert source.sample_at(cftime.DatetimeNoLeap(1964, 3, 1, 12))["v"].data == 2

    def test_a_row_without_a_time_is_no_record(self, tmp_path: Path) -> None:
        source = provider(
            table(tmp_path, "time,v\n2019-07-01T00:00,1\n,5\n2019-07-01T06:00,3\n"),
            temporal=EVERY_3H, time_column="time",
        )  # fmt: skip
        assert source.sample_at(datetime(2019, 7, 1, 6, tzinfo=UTC))["v"].data == 3
        with pytest.raises(RecordNotFound):
            source.sample_at(datetime(2019, 7, 1, 3, tzinfo=UTC))

    # spec: V9.3
    @pytest.mark.parametrize("cell", ["yesterday", "2019-02-30", "2019-07-01T25:00", "12"])
    def test_a_cell_that_is_no_time_is_named(self, tmp_path: Path, cell: str) -> None:
        path = table(tmp_path, f"time,v\n2019-07-01,1\n{cell},2\n")
        with pytest.raises(FileFormatError, match=cell) as caught:
            read(path, time_column="time")
        assert (caught.value.line, caught.value.variable) == (3, "time")


class TestRefused:
    # spec: V9.3
    @pytest.mark.parametrize(
        ("text", "line"),
        [("a,b\n1,2\n3\n", 3), ("a,b\n1,2,3\n", 2), ('a,b\n1,"2\n', 2), ("a,a\n1,2\n", 1), ("a,\n1,2\n", 1)],
    )
    def test_errors_name_file_and_line(self, tmp_path: Path, text: str, line: int) -> None:
        path = table(tmp_path, text)
        with pytest.raises(FileFormatError) as caught:
            read(path)
        assert (caught.value.file, caught.value.line) == (str(path), line)

    @pytest.mark.parametrize("text", ["", "\n\n"])
    def test_an_empty_file(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(FileFormatError, match="empty"):
            read(table(tmp_path, text))

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(MissingFile):
            read(tmp_path / "none.csv")

    def test_declared_columns_that_are_not_there(self, tmp_path: Path) -> None:
        path = table(tmp_path, STACKS)
        for options in ({"time_column": "when"}, {"coordinates": ["x"]}, {"text": ["x"]}, {"numeric": ["x"]}):
            with pytest.raises(FileFormatError, match="height"):
                read(path, **options)

    @pytest.mark.parametrize(
        "options",
        [
            {"delimiter": "::"}, {"text": "id"}, {"numeric": ["a"], "text": ["a"]},
            {"time_units": "days since 2000-01-01"}, {"calendar": "mayan", "time_column": "t"},
        ],
    )  # fmt: skip
    def test_options_that_contradict_themselves(self, options: dict[str, Any]) -> None:
        with pytest.raises(EarthSciIOError) as caught:
            provider(Path("x.csv"), **options)
        assert isinstance(caught.value, ValueError)

    def test_an_option_there_is_not(self) -> None:
        with pytest.raises(UnknownReaderOption, match="delimiter"):
            provider(Path("x.csv"), delimeter=";")
        with pytest.raises(DeclarationError):
            provider(Path("x.csv"), precision="double")
