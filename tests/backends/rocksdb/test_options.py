"""Options, memory and errors of the RocksDB backend, beyond the conformance suite."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyGroupRange, ValueStateDescriptor, load_backend
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.rocksdb.database import translated_error
from holdfast.backends.rocksdb.memory import SlotMemory, memory_bytes
from holdfast.backends.rocksdb.option_checks import _tried
from holdfast.backends.rocksdb.options import PREDEFINED
from holdfast.storage import (
    Corrupt,
    HoldfastError,
    Invalid,
    JobManagerCheckpointStorage,
    Unavailable,
)
from support.states.rocksdb_states import HIGH, LOW, VALUE, content, opened, rocksdb_in

ALL = KeyGroupRange(0, 127)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"options": {"write_bufer_size": 1}}, "'write_bufer_size'.*not known.*write_buffer_size"),
        ({"options": {"write_buffer_size": "1m"}}, "'write_buffer_size'.*wrong type.*'1m'"),
        ({"options": {"write_buffer_size": -1}}, "'write_buffer_size'.*wrong type.*-1"),
        ({"options": {"write_buffer_size": True}}, "'write_buffer_size'.*wrong type.*True"),
        ({"options": {"write_buffer_size": 1.5}}, "whole number, 0 or more, found 1.5"),
        ({"options": {"compression": "lzma"}}, "'compression'.*such as k.*found 'lzma'"),
        ({"options": {"compression": 4}}, "'compression'.*a text, such as k.*found 4"),
        ({"options": {"compression_per_level": "kLZMA"}}, "'compression_per_level'.*found 'kLZMA'"),
        ({"options": {"filter_policy": "cuckoo"}}, "'filter_policy'.*ribbonfilter.*'cuckoo'"),
        ({"options": {"optimize_filters_for_hits": 1}}, "True or False, found 1"),
        ({"options": {"compaction_options_universal": {"size": 1}}}, "'compaction_options_uni"),
        ({"options": {"max_bytes_for_level_multiplier": "x"}}, "a number, 0 or more, found 'x'"),
        ({"options": {"compaction_style": "kCompactionStyleFIFO"}}, "does not drop state"),
        ({"options": {"best_efforts_recovery": True}}, "'best_efforts_recovery'.*backend's own"),
        ({"options": {"compaction_options_fifo": {}}}, "'compaction_options_fifo'.*backend's own"),
        ({"options": {"format_version": 99}}, "RocksDB does not take these options.*99"),
        ({"options": {"block_align": True}}, "RocksDB does not take these options.*block_align"),
        ({"options": {"keep_log_file_num": 0}}, "RocksDB (does not take|changes the value)"),
        ({"options": {"num_levels": 0}}, "'num_levels'.*expected 0.*found 1"),
        ({"options": {"memtable_factory": "nonsense"}}, "RocksDB (does not take|changes)"),
        ({"options": {"memtable_factory": "VectorRepFactory"}}, "RocksDB does not take these"),
        ({"options": {"max_write_buffer_number": 0}}, "'max_write_buffer_number'.*found 2"),
        ({"options": {"block_cache": None}}, "'block_cache' of RocksDB is the backend's own"),
        ({"options": {"wal_dir": "x"}}, "'wal_dir' of RocksDB has no use here.*write-ahead log"),
        ({"options": {"recycle_log_file_num": 1}}, "'recycle_log_file_num'.*does harm"),
        ({"options": {"max_total_wal_size": 1 << 20}}, "'max_total_wal_size'.*no use here"),
        ({"options": {"manual_wal_flush": True}}, "'manual_wal_flush'.*no use here"),
        ({"options": {"two_write_queues": True}}, "'two_write_queues'.*no use.*transactions"),
        ({"options": {"max_successive_merges": 1}}, "'max_successive_merges'.*no use.*merges"),
        ({"options": {"db_write_buffer_size": 1 << 20}}, "'db_write_buffer_size'.*backend's own"),
        ({"options": {"avoid_flush_during_shutdown": False}}, "shutdown' of RocksDB is the back"),
        ({"options": {"max_background_jobs": 0}}, "whole number, 1 or more, found 0"),
        ({"options": None}, "options of RocksDB are no options by their names.*found None"),
        ({"options": []}, r"no options by their names: expected a dict.*found \[\]"),
        ({"options": 0}, "no options by their names.*found 0"),
        ({"options": ["compression"]}, "no options by their names"),
        ({"options": "compression=kZSTD"}, "no options by their names"),
        ({"options": {1: 2}}, "no options by their names.*{1: 2}"),
        ({"memory": 10**30}, "memory for RocksDB is out of range.*at most 1024t"),
        ({"memory": "99999999999t"}, "memory for RocksDB is out of range.*99999999999t"),
        ({"memory": "9" * 5_000}, "memory for RocksDB is out of range"),
        ({"memory": None}, "memory for RocksDB is out of range.*None"),
        ({"write_buffer_ratio": "0.5"}, "write_buffer_ratio is out of range.*'0.5'"),
        ({"write_buffer_ratio": None}, "write_buffer_ratio is out of range.*None"),
        ({"write_buffer_ratio": float("nan")}, "write_buffer_ratio is out of range.*nan"),
        ({"write_buffer_ratio": 1e-9}, "too little memory for write buffers.*Raise write_buffer_r"),
        ({"memory": "16m", "write_buffer_ratio": 0.18}, "too little memory.*2097152 bytes or more"),
        ({"predefined": ["default"]}, r"no predefined options \['default'\] of RocksDB"),
        ({"predefined": None}, "no predefined options None"),
        ({"directories": None}, "directories are no places.*list of absolute paths.*found None"),
        ({"directories": 5}, "directories are no places.*found 5"),
        ({"directories": [1]}, r"directories are no places.*found \[1\]"),
        ({"directories": [""]}, r"directories are no places.*found \[''\]"),
        ({"directories": ["state"]}, "absolute paths.*'state'.*another directory, than the driver"),
        ({"directories": ["/a\0b"]}, "directories are no places"),
        ({"memory": "lots"}, "memory for RocksDB is out of range: expected 16m or more.*'lots'"),
        ({"memory": "1m"}, "memory for RocksDB is out of range"),
        ({"memory": True}, "memory for RocksDB is out of range"),
        ({"write_buffer_ratio": 1.5}, "write_buffer_ratio is out of range.*1.5"),
        ({"timers": "disk"}, "cannot keep timers in 'disk': expected 'rocksdb' or 'heap'"),
        ({"timers": None}, "cannot keep timers in None: expected 'rocksdb' or 'heap'"),
        ({"timers": []}, "cannot keep timers in"),
        ({"predefined": "tape"}, "no predefined options 'tape' of RocksDB: expected 'default' or"),
        ({"directories": "/data"}, r"directories is a text: expected a list.*Pass \['/data'\]"),
        ({"memroy": "1g"}, "state backend option 'memroy' is not known"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        load_backend("rocksdb", **options)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [(2**25, 2**25), ("64m", 2**26), ("1 GiB", 2**30), ("32768k", 2**25), ("20000000", 20_000_000)],
)
def test_memory_is_a_number_of_bytes_or_text(memory: int | str, expected: int) -> None:
    assert memory_bytes(memory) == expected


def test_options_are_tried_as_they_are_used(tmp_path: Path) -> None:
    """Without a write-ahead log: with this one each write would fail."""
    with pytest.raises(Exception, match="disableWAL"):
        _tried("default", {"recycle_log_file_num": 1}, tmp_path)


def test_no_option_that_is_refused_is_offered_instead() -> None:
    with pytest.raises(Invalid, match="not known") as caught:
        load_backend("rocksdb", options={"max_wal_size": 1})
    assert "max_total_wal_size" not in str(caught.value)


@pytest.mark.parametrize("predefined", PREDEFINED)
def test_state_works_with_every_predefined_set_and_options_beside_it(
    tmp_path: Path, predefined: str
) -> None:
    backend = RocksDBStateBackend(
        memory="16m",
        predefined=predefined,
        options={
            "compression": "kLZ4Compression",
            "compression_per_level": "kNoCompression:kLZ4Compression",
            "periodic_compaction_seconds": 77,
            "compaction_options_universal": {"max_size_amplification_percent": 80},
            "block_size": 8192,
        },
        directories=[str(tmp_path)],
    )
    with backend.open(uid="op", key_groups=ALL, max_parallelism=128, key_type=int) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        total.put_many(range(5_000), range(5_000))
        assert total.get_many(range(5_000)).to_pylist() == list(range(5_000))
    assert not list(tmp_path.iterdir())


def test_all_stores_of_a_slot_share_its_memory_and_those_of_another_do_not() -> None:
    backend = RocksDBStateBackend(memory="16m")
    copy = pickle.loads(pickle.dumps(backend))
    assert copy == backend
    assert backend._slot_memory is backend._slot_memory
    assert pickle.loads(pickle.dumps(backend))._slot_memory is not backend._slot_memory


def test_more_tables_than_write_buffers_have_room_for_do_not_block(tmp_path: Path) -> None:
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    with backend.open(uid="op", key_groups=ALL, max_parallelism=128, key_type=int) as state:
        descriptors = [ValueStateDescriptor(f"state-{number}", str) for number in range(40)]
        values = list(map(state.get_state, descriptors))
        for value in values:
            value.put_many(range(200), ["x" * 1_000] * 200)
        assert values[0].get_many([1, 200]).to_pylist() == ["x" * 1_000, None]


def test_the_parts_of_a_budget_are_those_of_flink() -> None:
    memory = SlotMemory(300 * 2**20, 0.5)
    assert memory.write_buffers.get_buffer_size() == 100 * 2**20


@pytest.mark.parametrize("wanted", [range(0, 40_000, 3), range(5_000, 9_000), range(0, 40_000, 90)])
@pytest.mark.parametrize("removed", [0, 60_000])
def test_a_batch_is_looked_up_the_same_way_however_dense_it_is(
    tmp_path: Path, wanted: range, removed: int
) -> None:
    backend = RocksDBStateBackend(memory="16m", directories=[str(tmp_path)])
    with backend.open(uid="op", key_groups=ALL, max_parallelism=128, key_type=int) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        there = {key: key * 7 for key in range(0, 40_000, 2)}
        total.put_many(list(there), list(there.values()))
        # RocksDB takes each removal for an entry less: with enough of them it expects none.
        total.clear_many([-1 - number for number in range(removed)])
        keys = [*wanted, *reversed(wanted), wanted[0], -5, 50_000]
        assert total.get_many(keys).to_pylist() == [there.get(key) for key in keys]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Corruption: block checksum mismatch", Corrupt),
        ("IO error: No space left on device: While appending to file", Unavailable),
        ("Invalid argument: Direct I/O is not supported by the specified DB.", Invalid),
        ("Invalid argument: Found options that do not fit: IO error: Too many open", Unavailable),
    ],
)
@pytest.mark.parametrize("is_brought", [False, True])
def test_errors_say_whether_it_helps_to_try_again(
    text: str, kind: type[HoldfastError], *, is_brought: bool
) -> None:
    assert type(translated_error(Exception(text), "here", is_brought=is_brought)) is kind


def test_files_are_opened_with_other_options_unless_these_do_not_fit(tmp_path: Path) -> None:
    backend, job = rocksdb_in(tmp_path), JobManagerCheckpointStorage().job("job")
    parts, hash_of = [], key_codec_for(int).hash
    for number, key_groups in enumerate((LOW, HIGH), start=1):
        with opened(backend, key_groups=key_groups) as state:
            mine = [key for key in range(500) if key_group(hash_of(key), 128) in key_groups]
            state.get_state(VALUE).put_many(mine, [b"%d" % key for key in mine])
            parts.append(state.snapshot(number, job).result(30))
    with opened(backend, *parts, job=job) as state:  # what comes from others is far below
        whole = state.snapshot(3, job).result(30)
    with opened(rocksdb_in(tmp_path, predefined="flash-ssd"), whole, job=job) as state:
        assert len(content(state)) == 500
    few = rocksdb_in(tmp_path, options={"num_levels": 2})
    with (
        pytest.raises(Invalid, match=r"more levels than options.num_levels.*Set the options"),
        opened(few, whole, job=job),
    ):
        pass
    assert not list(tmp_path.iterdir())
