from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import fsspec
import pytest

from holdfast.storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    Invalid,
    JobManagerCheckpointStorage,
    load_storage,
    registered_storages,
    registry,
)
from holdfast.storage.places.hdfs import storage as hdfs
from holdfast.storage.places.s3 import storage as s3
from holdfast.storage.registry import named_for_all
from support.installing import install_entries

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution that registers storages, as pip would."""

    def add(distribution: str, **entries: str) -> None:
        group = "holdfast.checkpoint_storages"
        monkeypatch.syspath_prepend(install_entries(tmp_path, distribution, group, entries))

    return add


@pytest.mark.parametrize("url", ["file://{}", "file:{}", "{}", "{}/"])
def test_paths_and_file_urls_are_the_same_place(tmp_path: Path, url: str) -> None:
    storage = load_storage(url.format(tmp_path / "a"))
    storage.write("x", b"1")
    assert (tmp_path / "a" / "x").read_bytes() == b"1"
    assert storage.url == f"file://{tmp_path}/a"


def test_a_path_may_have_spaces_and_unicode_and_a_url_may_escape_them(tmp_path: Path) -> None:
    path = tmp_path / "größe %41 und mehr"
    load_storage(path.as_uri()).write("x", b"1")
    assert load_storage(str(path)).read("x") == b"1"


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = load_storage("./a")
    monkeypatch.chdir("/")
    storage.write("x", b"1")
    assert (tmp_path / "a" / "x").exists()


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("a/b", "{}/a/b"),
        (".", "{}"),
        ("/a/b", "/a/b"),
        ("memory", "memory"),
        ("file:/a", "file:/a"),
        ("s3://b/a.b", "s3://b/a.b"),
    ],
)
def test_a_url_for_other_processes_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, whole: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_for_all(text) == whole.format(tmp_path)


@pytest.mark.parametrize("name", ["memory", "jobmanager", "memory://"])
def test_built_in_storages_are_registered(name: str) -> None:
    assert type(load_storage(name)) is JobManagerCheckpointStorage


@pytest.mark.parametrize("name", ["file", "filesystem"])
def test_by_name_the_root_is_an_option(tmp_path: Path, name: str) -> None:
    storage = load_storage(name, url=str(tmp_path), inline_limit_bytes=7)
    assert type(storage) is FileSystemCheckpointStorage
    assert (storage.url, storage.inline_limit_bytes) == (f"file://{tmp_path}", 7)


def test_any_file_system_of_fsspec_serves(tmp_path: Path) -> None:
    del tmp_path
    storage = load_storage("filesystem", url="memory://test-registry/a")
    storage.write("x", b"1")
    assert fsspec.filesystem("memory").cat_file("/test-registry/a/x") == b"1"


def test_a_plug_in_registers_a_scheme(install: Install) -> None:
    install("plug", plugged="holdfast.storage.places.memory:JobManagerCheckpointStorage")
    assert "plugged" in registered_storages()
    assert isinstance(load_storage("plugged", max_state_bytes=3), CheckpointStorage)


def test_one_name_by_two_plug_ins_is_an_error(install: Install) -> None:
    install("one", same="one:Storage")
    install("two", same="two:Storage")
    with pytest.raises(Invalid, match=r"'same'.*of one|'same'.*of two") as caught:
        load_storage("memory://")
    assert "one:Storage of one" in caught.value.found
    assert "two:Storage of two" in caught.value.found
    assert caught.value.fix == "Uninstall one of them"


def test_a_plug_in_cannot_replace_a_built_in_silently(install: Install) -> None:
    install("rival", file="rival:Storage")
    with pytest.raises(Invalid, match="'file'"):
        load_storage("file:///tmp/x")


def test_a_plug_in_that_does_not_import_names_its_extra(install: Install) -> None:
    install("plug", plugged="plug_missing:Storage [fast]")
    with pytest.raises(Invalid, match=r'pip install "plug\[fast\]"'):
        load_storage("plugged://x")


@pytest.mark.parametrize(
    ("url", "kind", "extra"),
    [
        ("s3://bucket/x", s3, "s3"),
        ("s3a://bucket/x", s3, "s3"),
        ("hdfs://host/x", hdfs, "hdfs"),
        ("viewfs://host/x", hdfs, "hdfs"),
    ],
)
def test_a_missing_extra_names_the_line_to_run(
    url: str, kind: ModuleType, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "find_spec", lambda _: None)
    with pytest.raises(Invalid) as caught:
        load_storage(url)
    assert caught.value.fix == f'pip install "holdfast-spark[{extra}]"'
    assert caught.value.where == url


@pytest.mark.parametrize("url", ["s3://bucket/x", "s3a://bucket/x", "hdfs://host:1/x"])
def test_the_filesystem_storage_does_not_stand_in_for_a_better_one(url: str) -> None:
    assert type(load_storage(url)) is not FileSystemCheckpointStorage
    with pytest.raises(Invalid, match="have a storage of their own") as caught:
        load_storage("filesystem", url=url)
    assert url in caught.value.fix


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nowhere", "no checkpoint storage is registered as 'nowhere'"),
        ("zzz://x", "no storage is known for URLs of scheme 'zzz'"),
        ("file://host/x", "expected file:///absolute/path"),
        ("file://", "expected file:///absolute/path"),
        ("", "no checkpoint storage is registered as ''"),
        ("/a\0b", "NUL character"),
    ],
)
def test_unknown_places_are_refused(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        load_storage(url)


@pytest.mark.parametrize(
    "url", ["memory://", "file:///tmp/x", "/tmp/x", "filesystem", "s3://bucket/x"]
)
def test_an_unknown_option_is_refused_with_those_that_exist(url: str) -> None:
    with pytest.raises(Invalid, match=r"option 'retries' is not known.*clock"):
        load_storage(url, retries=3)


def test_a_missing_or_doubled_root_is_refused() -> None:
    with pytest.raises(Invalid, match="needs option 'url'"):
        load_storage("filesystem")
    with pytest.raises(Invalid, match="given twice"):
        load_storage("file:///tmp/x", url="/tmp/y")


def test_options_out_of_range_or_without_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="inline_limit_bytes"):
        load_storage(str(tmp_path), inline_limit_bytes=-1)
    with pytest.raises(Invalid, match="max_state_bytes"):
        load_storage("memory://", max_state_bytes=-1)
    with pytest.raises(Invalid, match="does not apply to a local directory"):
        load_storage(str(tmp_path), storage_options={"key": "k"})
    with pytest.raises(Invalid, match="does not apply to a local directory"):
        load_storage(str(tmp_path), allow_unsafe_commit=True)


def test_a_place_without_atomic_create_is_refused_unless_asked_for() -> None:
    with pytest.raises(Invalid, match="cannot prove that one of two writers wins"):
        load_storage("local:///tmp/x")
    storage = load_storage("local:///tmp/x", allow_unsafe_commit=True)
    assert not storage.capabilities.atomic_create


def test_passwords_in_urls_are_not_shown() -> None:
    url = "local://user:secret@host/x"
    storage = load_storage(url, allow_unsafe_commit=True)
    assert "secret" not in storage.url
    with pytest.raises(Invalid) as caught:
        load_storage(url)
    assert "secret" not in str(caught.value)


def test_the_registry_has_no_built_in_storage_in_it() -> None:
    """All are found by their entry points, also what paths and other URLs go to."""
    source = Path(registry.__file__).read_text()
    assert "holdfast.storage.places" not in source
