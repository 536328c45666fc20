"""The file of options: what may be written, which file is read, and where errors point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.options.config_file import CONFIG_VARIABLE, config_settings
from holdfast.storage import Invalid, NotFound
from holdfast.storage.options.table import Settings

Written = Callable[[str], str]


@pytest.fixture
def written(quick_path: Path) -> Written:
    """Writes a file of options, and answers its path."""

    def write(text: str) -> str:
        path = quick_path / "config.yaml"
        path.write_text(text, "utf-8")
        return str(path)

    return write


NESTED = """
# as Flink's config.yaml
parallelism.default: 8
execution:
  checkpointing:
    interval: 10 s
    num-retained: 3
    snapshot-compression: true
  state-recovery.claim-mode: CLAIM
execution.checkpointing.timeout: 300000
state: {backend: {type: "rocksdb"}}
"""
FLAT = """
parallelism.default: 8
execution.checkpointing.interval: 10 s
execution.checkpointing.num-retained: 3
execution.checkpointing.snapshot-compression: true
execution.state-recovery.claim-mode: CLAIM
execution.checkpointing.timeout: 300000
state.backend.type: rocksdb
"""


@pytest.mark.parametrize("text", [NESTED, FLAT])
def test_nested_and_flat_keys_are_the_same(written: Written, text: str) -> None:
    assert config_settings(written(text)).values == {
        "parallelism": 8,
        "checkpointing.interval": "10 s",
        "checkpointing.retained": 3,
        "checkpointing.compression": "lz4",
        "execute.claim_mode": "claim",
        "checkpointing.timeout": "300000ms",
        "backend": "rocksdb",
    }


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "~\n", "{}\n"])
def test_a_file_may_have_no_options(written: Written, text: str) -> None:
    assert config_settings(written(text)).values == {}


@pytest.mark.parametrize(
    ("text", "argument", "value"),
    [
        # YAML 1.1 would make 8, 90 and True of these, and 1.2 what is written.
        ("parallelism.default: 010", "parallelism", 10),
        ("execution.checkpointing.interval: '500'", "checkpointing.interval", "500ms"),
        ("endpoint.enabled: TRUE", "endpoint", True),
        ("driver.host: 2001-12-14", "network.driver_host", "2001-12-14"),
        ("execution.checkpointing.savepoint-dir: |\n  /s\n", "checkpointing.savepoint_dir", "/s"),
        ("slot.port: 45000-45100", "network.slot_port", "45000-45100"),
    ],
)
def test_a_value_is_the_text_that_is_written(
    written: Written, text: str, argument: str, value: Any
) -> None:
    assert config_settings(written(text)).values == {argument: value}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nparallelism:\n  defualt: 3", r"no option 'a' .*config\.yaml, line 1, a\]"),
        (
            "\nparallelism:\n  defualt: 3",
            r"no option 'parallelism.defualt' .*line 3, .*such as parallelism\.default",
        ),
        ("parallelism.default: many", r"cannot have this value .*line 1, .*found 'many'"),
        ("endpoint.enabled: on", "expected true or false, found 'on'"),
        ("parallelism.default: 1_000", "found '1_000'"),
        (
            "parallelism.default: 1\n\nparallelism:\n  default: 2",
            r"'parallelism.default' is given twice .*config\.yaml, lines 1 and 4",
        ),
        ("parallelism.default: 1\nparallelism.default: 1", "given twice .*lines 1 and 2"),
        (
            "state.savepoints.dir: /a\nexecution.checkpointing.savepoint-dir: /b",
            r"is there twice .*line 2, .*found .*config\.yaml, line 1, state\.savepoints\.dir",
        ),
        (
            "execution.checkpointing: {min-pause: 1,\n max-concurrent-checkpoints: 2}",
            r"leaves no room .* \[.*, line 1, .*min-pause; .*, line 2, .*-checkpoints\]",
        ),
        ("restart-strategy.fixed-delay.attempts: 3", r"\[.*line 1, restart-strategy\.fixed-d"),
        (
            "state.backend.type: hashmap\nstate.backend.rocksdb.files.open: -1",
            r"another backend is named \[.*line 2, state\.backend\.rocksdb",
        ),
        ("parallelism.default:", r"line 1.*expected one value.*found nothing"),
        ("parallelism.default: [1]", r"line 1.*expected one value.*found seq"),
        ("- parallelism.default", "expected a mapping of options to values, found seq"),
        ("parallelism.default", "expected a mapping of options to values, found str"),
        ("? [a]\n: 1", "expected the name of an option, found seq"),
        ("a: &x {b: 1}\nc: *x", "expected a value of its own, and no alias of another"),
        ("&x a: *x", "line 1"),
        ("a: &x\n  b: *x", "expected a value of its own"),
        ("<<: {parallelism.default: 1}", "expected the name of an option, found merge"),
        ("log.level: !!python/name:os.system ''", "line 1.*one value.*found a tag"),
        ("log.level: !secret x", "line 1.*expected one value.*found a tag; quote a text"),
        ("a: 1\n---\nb: 2", "is not YAML .*line 2.*another document"),
        ("a: 'x\nb: [", "is not YAML"),
        ("parallelism.default: 1\n\tx: 1", r"is not YAML .*line 2"),
        ('a: 1\nb: "\\UFFFFFFFF"', r"is not YAML \[.*line 2\].*no such character or number"),
        ('a: 1\nb: "\\U00110000"', r"is not YAML \[.*line 2\].*no such character or number"),
        ('a: 1\n"\\U00110000": b', r"is not YAML \[.*line 2\].*no such character or number"),
        (
            'log.level: OFF\nexecution.checkpointing.dir: "/a\\uD800"',
            r"is not YAML \[.*line 2\].*no such character",
        ),
        ('log.level: OFF\n"\\uD800": b', r"is not YAML \[.*line 2\].*no such character"),
        (f"%YAML 1.{'9' * 5000}\n---\na: 1", r"is not YAML \[.*line 1\].*character or number"),
        ("a: \x01", "is not YAML .*found ReaderError"),
        ("{a: " * 2000, "is not YAML"),
        ("#" * (2 << 20), "too large for one of options"),
    ],
)
def test_an_error_names_the_line(written: Written, text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        config_settings(written(text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("password: 'geheim\nx: [", "is not YAML"),
        ("password: *geheim", r"is not YAML \[.*line 1\].*found undefined alias"),
        ("password: &geheim x\nother: &geheim y", r"is not YAML \[.*line 2\].*second occurrence"),
        ("password: !geheim", "found a tag"),
        ("password: !geheim [1]", "found a tag"),
        ("password: !geheim {a: 1}", "there is no option 'password.a'"),
        ("password: !!geheim", "found a tag"),
        ("password: !<geheim> x", "found a tag"),
        ("!geheim a: 1", "found a tag"),
        ("--- !geheim [1]", "found a tag"),
        ("password: !geheim!x y", "line 1.*found undefined tag handle"),
        ("%TAG !geheim! a\n%TAG !geheim! b\n---\na: 1", "line 2.*duplicate tag handle"),
        ("password: @geheim", "found character '@' that cannot start any token"),
        ("password: [1, geheim: 2", "expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_an_error_does_not_quote_values(written: Written, text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told) as caught:
        config_settings(written(text))
    assert "geheim" not in str(caught.value)


def test_the_environment_names_the_file_where_the_command_does_not(
    written: Written, quick_path: Path
) -> None:
    path = written("parallelism.default: 3")
    other = quick_path / "other.yaml"
    other.write_text("parallelism.default: 4")
    environment = {CONFIG_VARIABLE: path}
    assert config_settings(None, {}) == config_settings(None, {CONFIG_VARIABLE: ""}) == Settings()
    assert config_settings(None, environment).values == {"parallelism": 3}
    assert config_settings(str(other), environment).values == {"parallelism": 4}
    other.write_text("parallel: 4")
    with pytest.raises(Invalid, match=r"other\.yaml \(HOLDFAST_CONF\), line 1, parallel\]"):
        config_settings(None, {CONFIG_VARIABLE: str(other)})


def test_a_file_that_cannot_be_read_is_refused(quick_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such file of options \[.*none\.yaml"):
        config_settings(str(quick_path / "none.yaml"))
    with pytest.raises(Invalid, match="cannot be read"):
        config_settings(str(quick_path))
    with pytest.raises(Invalid, match="cannot be read"):
        config_settings("\0")
