"""Tests of the installed package. ISOTHERM_EXAMPLE is a record of 10 s, of six processes with 20 regions each."""

import doctest
import importlib
import os
import shutil
import subprocess
import warnings

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest

import isotherm

EXAMPLE = os.environ["ISOTHERM_EXAMPLE"]


@pytest.fixture
def rec():
    return isotherm.read(EXAMPLE)


@pytest.mark.parametrize("name", ["", "._program", "._record", "._heatmap"])
def test_doctests(name):
    module = importlib.import_module("isotherm" + name)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    failed, tried = doctest.testmod(module, extraglobs={"example": EXAMPLE}, optionflags=flags)
    assert tried > 0 and failed == 0


def test_all_readers_agree(rec):
    regions = rec.regions()
    table = pyarrow.table(regions)
    table.validate(full=True)
    total = sum(table["bytes"].to_pylist())
    assert table.num_rows == 10 * 120
    assert polars.DataFrame(regions)["bytes"].sum() == total
    assert duckdb.sql("SELECT sum(bytes) FROM regions").fetchall() == [(total,)]
    frame = pandas.DataFrame.from_arrow(regions) if hasattr(pandas.DataFrame, "from_arrow") else table.to_pandas()
    assert frame["bytes"].sum() == total


def test_figures_are_those_of_the_program(rec):
    snapshots = polars.DataFrame(rec.snapshots())
    last = snapshots.filter(polars.col("seq") == snapshots["seq"].max())
    expected = rec.report("summary")["last"]
    assert last["hot_bytes"].sum() == expected["hot_bytes"]
    assert last["cold_bytes"].sum() == expected["cold_bytes"]
    # Each region belongs to a snapshot of its target.
    regions = polars.DataFrame(rec.regions()).group_by("seq", "target").agg(polars.col("bytes").sum())
    joined = snapshots.join(regions, on=["seq", "target"])
    heat = ["hot_bytes", "warm_bytes", "cold_bytes", "unknown_bytes", "absent_bytes"]
    assert joined.height == snapshots.height
    assert (joined.select(polars.sum_horizontal(heat)).to_series() == joined["bytes"]).all()


def test_limits_of_heat_are_those_that_are_given(rec):
    hot = [polars.DataFrame(rec.snapshots(hot_hz=hz))["hot_bytes"].sum() for hz in (0.001, 10, 1e6)]
    assert hot[0] > hot[1] > hot[2] == 0
    for limits in ({"hot_hz": 0}, {"hot_hz": float("nan")}, {"cold_s": -1}, {"cold_s": float("inf")}):
        with pytest.raises(ValueError):
            rec.snapshots(**limits)


def test_regions_have_the_basis_of_their_rates(rec):
    regions = polars.DataFrame(rec.regions())
    known = regions.select(polars.col("measured_bp") + polars.col("extended_bp")).to_series()
    assert known.null_count() == 0 and known.is_between(0, 10_000).all()
    assert rec.facts["missing"] == []


def test_a_table_is_read_again(rec):
    table = rec.cgroups()
    assert pyarrow.table(table).equals(pyarrow.table(table))
    assert pyarrow.schema(table) == pyarrow.table(table).schema
    assert "cgroup" in repr(table)


def test_heat_maps(rec):
    heat = rec.heatmap()
    assert {panel.label for panel in heat.panels} == {
        f"{name} (pid {pid})"
        for pid, name in enumerate(["web", "web", "db", "db", "batch", "batch"], 4000)
    }
    for panel in heat.panels:
        assert panel.hz.shape == panel.states.shape == (panel.rows, heat.columns)
        assert numpy.isnan(panel.hz[panel.states != "r"]).all()
        assert (panel.hz[panel.states == "r"] >= 0).all()
    assert numpy.nanmax(numpy.asarray(heat)) > 10
    one = rec.heatmap(target=4002, time=(2, 5), addr=(0x7F0000000000, 0x7F0010000000))
    assert [panel.label for panel in one.panels] == ["db (pid 4002)"]
    assert one.time == (2, 5) and one.panels[0].range[1] <= 0x7F0010000000


def test_figures_are_drawn(rec, tmp_path):
    rec.heatmap().figure().savefig(tmp_path / "heat.png")
    assert (tmp_path / "heat.png").read_bytes() == rec.heatmap()._repr_png_()


def test_a_torn_record_warns_and_is_read_as_far_as_it_goes(tmp_path):
    torn = tmp_path / "torn.rec"
    with open(EXAMPLE, "rb") as file:
        torn.write_bytes(file.read()[:-1])
    with pytest.warns(UserWarning, match="breaks off"):
        rec = isotherm.read(torn)
    assert not rec.complete
    assert pyarrow.table(rec.regions()).num_rows == 1200


def test_damage_is_an_error_unless_it_is_skipped(tmp_path):
    damaged = tmp_path / "damaged.rec"
    with open(EXAMPLE, "rb") as file:
        content = bytearray(file.read())
    content[len(content) * 3 // 4] ^= 1
    damaged.write_bytes(content)
    # A damaged snapshot is found when it is read: for a table, by pyarrow, which has its own class of ValueError.
    with pytest.raises(ValueError, match="skip_damaged=True"):
        pyarrow.table(isotherm.read(damaged).regions())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rec = isotherm.read(damaged, skip_damaged=True)
    assert pyarrow.table(rec.regions()).num_rows < 1200


def test_what_is_no_record_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        isotherm.read(tmp_path / "none")
    other = tmp_path / "other"
    other.write_text("text")
    with pytest.raises(isotherm.RecordError, match="no isotherm record"):
        isotherm.read(other)


def test_a_table_keeps_its_temporary_record(monkeypatch):
    copied = lambda *args: shutil.copy(EXAMPLE, args[args.index("--output") + 1])
    monkeypatch.setattr(importlib.import_module("isotherm._record"), "run", copied)
    assert pyarrow.table(isotherm.record(1, 1).regions()).num_rows == 10 * 120


def test_a_process_is_recorded():
    if os.geteuid() != 0:
        pytest.skip("it requires root")
    code = "import time; b = bytearray(64 << 20)\nwhile True: b[::4096] = b[::4096]; time.sleep(0.01)"
    with subprocess.Popen(["python3", "-c", code]) as process:
        try:
            rec = isotherm.record(process.pid, 3)
        finally:
            process.kill()
    hot = polars.DataFrame(rec.snapshots())["hot_bytes"].max()
    assert 48 << 20 <= hot <= 96 << 20
    with pytest.raises(isotherm.ProgramError):
        isotherm.record(process.pid, 3)
