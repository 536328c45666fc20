"""The proxies before an HDFS pass on what comes, data too, and spoil just what they are told to."""

from __future__ import annotations

from collections.abc import Iterator

import hdfs_native
import pytest

from holdfast.storage import SystemClock
from support.servers.chaos_rpc import HdfsProxy
from support.servers.chaos_rules import CutAnswer, CutRequest, Delay, Refuse, Rule
from support.servers.hdfs import HdfsServer

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(hdfs_server: HdfsServer) -> Iterator[HdfsProxy]:
    with HdfsProxy(hdfs_server.port, hdfs_server.data_port) as proxy:
        yield proxy


@pytest.fixture
def folder(hdfs_url: str) -> str:
    return f"/{hdfs_url.rpartition('/')[2]}"


def write(client: hdfs_native.Client, path: str, data: bytes) -> None:
    with client.create(path, hdfs_native.WriteOptions(create_parent=True)) as file:
        file.write(data)


def methods(proxy: HdfsProxy) -> set[str]:
    return {request.method for request, _ in proxy.seen}


def test_calls_and_data_go_through_it(proxy: HdfsProxy, folder: str) -> None:
    client = hdfs_native.Client(proxy.url())
    data = bytes(range(256)) * 10_000
    write(client, f"{folder}/a key ü", data)
    client.rename(f"{folder}/a key ü", f"{folder}/b")
    assert client.read(f"{folder}/b").read() == data
    assert [status.path for status in client.list_status(folder)] == [f"{folder}/b"]
    used = {"create", "addBlock", "complete", "rename2", "WRITE_BLOCK", "READ_BLOCK"}
    assert used <= methods(proxy)
    paths = {request.path for request, _ in proxy.seen if request.method == "create"}
    assert paths == {f"{folder}/a key ü"}


@pytest.mark.parametrize(
    ("fault", "took_effect"),
    [
        (CutAnswer(0), True),
        (Refuse(passes="before"), True),
        (Refuse(passes="later", later_s=0.2), True),
        (CutRequest(20), False),
        (Refuse(passes="never"), False),
    ],
)
def test_a_call_that_is_spoilt_took_effect_or_not(
    hdfs_server: HdfsServer,
    proxy: HdfsProxy,
    folder: str,
    fault: CutAnswer | CutRequest | Refuse,
    *,
    took_effect: bool,
) -> None:
    direct = hdfs_native.Client(hdfs_server.url())
    direct.mkdirs(folder)
    rule = Rule(fault=fault, method="mkdirs", path=folder, times=None)
    proxy.follow(rule)
    with pytest.raises(Exception, match=r"(?i)connect|closed|reset|io ?error|failed"):
        hdfs_native.Client(proxy.url()).mkdirs(f"{folder}/new")
    SystemClock().sleep_s(0.4)
    assert rule.was_met
    assert len([*direct.list_status(folder)]) == took_effect


def test_data_that_is_cut_is_told(proxy: HdfsProxy, folder: str) -> None:
    client = hdfs_native.Client(proxy.url())
    write(client, f"{folder}/key", b"x" * 200_000)
    proxy.follow(Rule(fault=CutAnswer(50_000), method="READ_BLOCK", times=None))
    with pytest.raises(Exception, match=r"(?i)data ?node|data ?transfer|io|eof"):
        client.read(f"{folder}/key").read()


def test_a_delay_is_one(proxy: HdfsProxy, folder: str) -> None:
    client = hdfs_native.Client(proxy.url())
    client.mkdirs(folder)
    clock = SystemClock()
    proxy.follow(Rule(fault=Delay(0.3), method="mkdirs"))
    begun_s = clock.monotonic_s()
    client.mkdirs(f"{folder}/sub")
    assert clock.monotonic_s() - begun_s >= 0.3
