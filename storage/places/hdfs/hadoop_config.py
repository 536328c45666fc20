"""The Hadoop configuration: where an HDFS is, and how clients must talk to it.

The configuration is read where a storage is made, on the driver, and its relevant settings travel
with the pickled storage: machines of slots need no Hadoop configuration, and all use the same one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from holdfast.storage.errors import Invalid

__all__ = [
    "HdfsPlace",
    "HdfsSettings",
    "check_config",
    "hadoop_options",
    "place_of",
    "read_hadoop_config",
    "service_of",
]

_KEYS = frozenset(
    {
        "fs.defaultFS",
        "dfs.nameservices",
        "dfs.replication",
        "dfs.blocksize",
        "dfs.client.use.datanode.hostname",
        "dfs.client.socket-timeout",
        "dfs.client.block.write.replace-datanode-on-failure.enable",
        "dfs.client.block.write.replace-datanode-on-failure.policy",
        "dfs.client.block.write.replace-datanode-on-failure.best-effort",
        "dfs.data.transfer.protection",
        "hadoop.security.authentication",
        "hadoop.security.key.provider.path",
    }
)
_PREFIXES = (
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "dfs.client.failover.resolve-needed.",
    "dfs.client.failover.resolver.useFQDN.",
    "dfs.client.failover.random.order.",
    "dfs.client.failover.proxy.provider.",
    "fs.viewfs.mounttable.",
)
_PROXY = "dfs.client.failover.proxy.provider."
_FILES = ("core-site.xml", "hdfs-site.xml")
_DEFAULT_PORT = 8020
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_EXPANSIONS = 20
_SPARK_PREFIX = "spark.hadoop."
_FIX = "Set HADOOP_CONF_DIR, or pass config_dir or config"


@dataclass(frozen=True, slots=True)
class HdfsPlace:
    """A directory of one HDFS."""

    name_node: str
    """`hdfs://host:port`, or `hdfs://service` of a name service."""
    root: str
    """The directory, from the root of that HDFS; empty for the root itself."""


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """The settings with which a process connects and writes. Holds no secret."""

    name_node: str
    config: tuple[tuple[str, str], ...]
    kerberos_principal: str | None
    kerberos_keytab: str | None
    kerberos_cache: str | None
    timeout_s: float
    replication: int | None
    block_size_bytes: int | None


def hadoop_options(conf: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Options for `HdfsCheckpointStorage` from the settings of a Spark session.

    Keys are read with the prefix `spark.hadoop.` and without it; with it they have priority. Other
    keys are ignored. Without any such key there are no options.
    """
    plain = {key: value for key, value in conf.items() if _is_known(key)}
    marked = {
        key.removeprefix(_SPARK_PREFIX): value
        for key, value in conf.items()
        if key.startswith(_SPARK_PREFIX) and _is_known(key.removeprefix(_SPARK_PREFIX))
    }
    config = plain | marked
    return {"config": config} if config else {}


def check_config(config: Mapping[str, str]) -> dict[str, str]:
    """A copy of Hadoop settings given in code; each must be one that is honoured.

    Raises:
        Invalid: a key is not known here, a value is not text, or reads would go to observers.
    """
    given: object = config
    if not isinstance(given, Mapping):
        raise Invalid(
            "option config is not a mapping",
            expected="Hadoop keys and their values, all text",
            found=type(given).__name__,
        )
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise Invalid(
                f"Hadoop setting {key!r} is not written as text",
                where="option config",
                expected="text for each key and value",
                found=type(value if isinstance(key, str) else key).__name__,
            )
        if not _is_known(key):
            raise Invalid(
                f"Hadoop setting {key!r} would be ignored",
                where="option config",
                expected="one of "
                + ", ".join(sorted(_KEYS) + [f"{prefix}…" for prefix in _PREFIXES]),
                fix="Leave it out; for calls that fail see max_attempts and retry_timeout_s",
            )
        if key.startswith(_PROXY) and "Observer" in value:
            raise Invalid(
                "checkpoints cannot be read from observers, which may lag behind",
                where=f"option config, {key}",
                expected="org.apache.hadoop.hdfs.server.namenode.ha."
                "ConfiguredFailoverProxyProvider",
                found=value,
            )
    return dict(config)


def read_hadoop_config(folder: str | None) -> dict[str, str]:
    """The relevant settings of `core-site.xml` and `hdfs-site.xml` in a folder.

    Without a folder it is `HADOOP_CONF_DIR`, else `etc/hadoop` in `HADOOP_HOME`, else nothing.
    Settings for observers are left out: their answers may lag behind.

    Raises:
        Invalid: the folder that was named has no such file, or one cannot be read.
    """
    where = folder or _folder_of_environment()
    if where is None:
        return {}
    files = [path for name in _FILES if (path := Path(where, name)).is_file()]
    if not files and folder is not None:
        raise Invalid(
            "option config_dir names no Hadoop configuration",
            where=folder,
            expected=f"a folder with {' or '.join(_FILES)}",
            found="none of them" if os.path.isdir(folder) else "no such folder",
        )
    found: dict[str, str] = {}
    for path in files:
        found |= _properties(path)
    return {
        key: _expanded(value, found)
        for key, value in found.items()
        if _is_known(key) and not (key.startswith(_PROXY) and "Observer" in value)
    }


def place_of(url: str, config: Mapping[str, str]) -> HdfsPlace:
    """The directory that a URL names: `hdfs://host:port/…`, `hdfs://service/…`, `viewfs://…`.

    As in Hadoop, a URL without host takes that of `fs.defaultFS`, and a host without port that is
    not a name service has port 8020.

    Raises:
        Invalid: the URL or the configuration does not lead to one HDFS.
    """
    scheme, authority, path = _parts_of(url)
    if scheme == "viewfs":
        return place_of(_behind_mount(url, authority, path, config), config)
    if not authority:
        authority = _default_authority(url, "hdfs", config)
    host, colon, port = authority.rpartition(":")
    if colon and port.isdigit() and host:
        return HdfsPlace(f"hdfs://{authority}", path)
    if f"dfs.ha.namenodes.{authority}" not in config:
        return HdfsPlace(f"hdfs://{authority}:{_DEFAULT_PORT}", path)
    for node in config[f"dfs.ha.namenodes.{authority}"].split(","):
        key = f"dfs.namenode.rpc-address.{authority}.{node.strip()}"
        if not config.get(key):
            raise Invalid(
                f"name service {authority!r} is not described in full",
                where=url,
                expected=f"a Hadoop setting {key}",
                fix=_FIX,
            )
    return HdfsPlace(f"hdfs://{authority}", path)


def service_of(name_node: str, config: Mapping[str, str]) -> str:
    """One text for all names of an HDFS: its name service, if the name node belongs to one."""
    address = name_node.removeprefix("hdfs://").lower()
    prefix = "dfs.namenode.rpc-address."
    for key, value in sorted(config.items()):
        service, dot, _ = key.removeprefix(prefix).partition(".")
        is_node = key.startswith(prefix) and dot and f"dfs.ha.namenodes.{service}" in config
        if is_node and value.lower() in (address, address.removesuffix(f":{_DEFAULT_PORT}")):
            return f"hdfs://{service}"
    return f"hdfs://{address}" if ":" in address else name_node


def _parts_of(url: str) -> tuple[str, str, str]:
    """Scheme, authority, and the path without a slash at its end."""
    scheme, separator, rest = url.partition("://")
    if scheme not in ("hdfs", "viewfs") or not separator:
        raise Invalid(
            "this is not the URL of an HDFS",
            where=url,
            expected="hdfs://host:port/path, hdfs://service/path or viewfs://cluster/path",
        )
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise Invalid(
            "a URL of an HDFS names no user",
            where=f"{scheme}://{rest.rpartition('@')[2]}",
            fix="Set HADOOP_USER_NAME, or use Kerberos",
        )
    parts = [part for part in path.split("/") if part]
    wrong = [part for part in parts if part in (".", "..") or ":" in part or "\0" in part]
    if wrong:
        raise Invalid(
            "HDFS has no such path",
            where=url,
            expected="parts without colon, none of them . or ..",
            found=repr(wrong[0]),
        )
    return scheme, authority, "".join(f"/{part}" for part in parts)


def _default_authority(url: str, scheme: str, config: Mapping[str, str]) -> str:
    default = config.get("fs.defaultFS", "")
    authority = default.removeprefix(f"{scheme}://").partition("/")[0]
    if not default.startswith(f"{scheme}://") or not authority:
        raise Invalid(
            "a URL does not say which HDFS, and neither does the Hadoop configuration",
            where=url,
            expected=f"a host in the URL, or fs.defaultFS with {scheme}://…",
            found=f"fs.defaultFS {default!r}" if default else "no fs.defaultFS",
            fix=_FIX,
        )
    return authority


def _behind_mount(url: str, cluster: str, path: str, config: Mapping[str, str]) -> str:
    """The URL in the HDFS that is mounted where the path lies."""
    if not cluster:
        cluster = _default_authority(url, "viewfs", config)
    table = f"fs.viewfs.mounttable.{cluster}."
    links = {
        _tidied(key.removeprefix(f"{table}link.")): target
        for key, target in config.items()
        if key.startswith(f"{table}link.")
    }
    for key in ("linkSlash", "linkFallback"):
        if table + key in config:
            links.setdefault("", config[table + key])
    below = [link for link in links if link.startswith(f"{path}/")]
    if below:
        raise Invalid(
            "checkpoints cannot be spread over several mounts",
            where=url,
            expected="a path with no mount below it",
            found=f"a mount at {min(below)}",
        )
    above = [link for link in links if path == link or path.startswith(f"{link}/")]
    if not above:
        raise Invalid(
            f"mount table {cluster!r} has nothing mounted there",
            where=url,
            expected=f"a Hadoop setting {table}link.{path or '/'} or of a folder above it",
            found=f"links {', '.join(sorted(links))}" if links else "no links",
            fix=_FIX,
        )
    link = max(above, key=len)
    target = links[link]
    if not target.startswith("hdfs://"):
        raise Invalid(
            "the mounted file system is not an HDFS", where=url, expected="hdfs://…", found=target
        )
    return f"{target.rstrip('/')}{path.removeprefix(link)}"


def _tidied(path: str) -> str:
    return "".join(f"/{part}" for part in path.split("/") if part)


def _is_known(key: str) -> bool:
    return key in _KEYS or any(key.startswith(prefix) and key != prefix for prefix in _PREFIXES)


def _folder_of_environment() -> str | None:
    if folder := os.environ.get("HADOOP_CONF_DIR"):
        return folder
    home = os.environ.get("HADOOP_HOME")
    return os.path.join(home, "etc", "hadoop") if home else None


def _properties(path: Path) -> dict[str, str]:
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, OSError) as error:
        raise Invalid(
            "a file of the Hadoop configuration cannot be read",
            where=str(path),
            found=str(error),
            fix="Correct it, or pass config_dir or config",
        ) from error
    found = {}
    for each in root.iter("property"):
        name, value = each.findtext("name", "").strip(), each.findtext("value", "").strip()
        if name and value:
            found[name] = value
    return found


def _expanded(value: str, found: Mapping[str, str]) -> str:
    """The value with `${other.key}` and `${env.NAME}` filled in, as far as they are known."""

    def filled(variable: re.Match[str]) -> str:
        name = variable[1]
        if name.startswith("env."):
            return os.environ.get(name.removeprefix("env."), variable[0])
        return found.get(name, variable[0])

    for _ in range(_EXPANSIONS):
        expanded = _VARIABLE.sub(filled, value)
        if expanded == value:
            break
        value = expanded
    return value
