"""State reads as if each version of a job that declared it had written all of it again."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from holdfast.backends.schema.evolution import compare_values, migration_for
from holdfast.backends.schema.steps import Verdict
from holdfast.backends.values.codec import value_codec_for
from holdfast.storage import load_storage
from support.states.class_versions import first_version, later_version
from support.states.tried_backends import LOGGED, PLAIN, backend_named
from support.states.version_chains import VersionChain

CHAINS = 6
"""Each without a changelog, with one, and with both in turns; keys of each kind."""
VERSIONS = 4
SOAKED = 1000


def test_a_value_goes_through_versions_as_if_it_were_written_anew() -> None:
    """And where the verdict is that it is as it would be written, it is."""
    seen = set()
    for seed in range(400):
        rng = random.Random(seed)
        version = first_version(rng)
        value, cls = version.value(rng), version.cls
        codec = value_codec_for(cls)
        data = codec.encode(version.object_of(value, cls))
        for _ in range(VERSIONS):
            assert msgspec.msgpack.decode(data) == version.written(value)
            later = later_version(rng, version)
            reader = value_codec_for(later.cls)
            verdict = compare_values(codec.describe(), reader.describe()).verdict
            seen.add(verdict)
            assert (verdict is not Verdict.INCOMPATIBLE) == later.takes(version)
            if verdict is Verdict.INCOMPATIBLE:
                continue
            migrated = migration_for(codec.describe(), reader)(data)
            value = later.migrated(value)
            assert repr(later.fields_of(migrated)) == repr(value)
            before, data = data, reader.encode(migrated)
            if verdict is Verdict.COMPATIBLE_AS_IS:
                assert msgspec.msgpack.decode(data) == msgspec.msgpack.decode(before)
            version, codec = later, reader
    assert seen == set(Verdict)


def try_chain(name: str, seed: int, folder: Path) -> VersionChain:
    """That begins on one backend; by its seed with a changelog, without, or with both in turns."""
    places = {each: folder / "state" / each for each in PLAIN}
    plain = {each: backend_named(each, place) for each, place in places.items()}
    logged = {each: backend_named(f"{LOGGED}-{each}", place) for each, place in places.items()}
    kinds = {
        each: ([plain[each]], [logged[each]], [plain[each], logged[each]])[seed % 3]
        for each in PLAIN
    }
    job = load_storage(str(folder / "storage"), inline_limit_bytes=0).job("job")
    chain = VersionChain(job, kinds, plain, seed, name)
    chain.run(VERSIONS)
    return chain


@pytest.mark.slow
@pytest.mark.dealt("name")
@pytest.mark.parametrize("name", PLAIN)
def test_chains_of_versions_read_as_if_all_were_written_anew(name: str, quick_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(CHAINS):
        chain = try_chain(name, seed, quick_path / str(seed))
        assert chain.seen["checkpoints"] >= VERSIONS
        seen += chain.seen
    assert {"asked", "refused", "asked as before", "given up"} <= seen.keys()
    assert {f"converted to {each}" for each in (*PLAIN, "any")} <= seen.keys()


@pytest.mark.parametrize("seed", [108, 973])
def test_types_of_a_table_without_rows_do_not_matter(seed: int, quick_path: Path) -> None:
    """A slot had no rows in the older types: in its snapshot; or after a log was replayed."""
    try_chain("hashmap", seed, quick_path)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", PLAIN)
def test_many_chains_of_versions_read_as_if_all_were_written_anew(
    name: str, quick_path: Path
) -> None:
    for seed in range(SOAKED):
        if seed // 6 % len(PLAIN) == PLAIN.index(name):  # six have each kind of what seeds decide
            try_chain(name, seed, quick_path / str(seed))
