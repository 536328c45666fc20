"""Errors of HDFS and its library: what they mean, and what users see of them."""

from __future__ import annotations

import pytest

from holdfast.storage import HoldfastError, Invalid, Unavailable
from holdfast.storage.places.hdfs.errors import NoAnswer, Reason, as_error, read_error, trouble_of
from holdfast.storage.retries import Tried, Trouble

STACK = "\\n\\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.x(FSNamesystem.java:1)"


def rpc(name: str, text: str) -> RuntimeError:
    """As the library prints it."""
    return RuntimeError(f'RPCError("{name}", "{text}{STACK}")')


CASES = [
    (FileNotFoundError("File does not exist: /a\n\tat x"), Reason.ABSENT, Unavailable, None),
    (FileExistsError("/a already exists\n\tat x"), Reason.EXISTS, Invalid, None),
    (
        rpc("org.apache.hadoop.fs.ParentNotDirectoryException", "/a (is not a directory)"),
        Reason.WRONG_PLACE,
        Invalid,
        None,
    ),
    (
        rpc("org.apache.hadoop.security.AccessControlException", "/a (is not a directory)"),
        Reason.WRONG_PLACE,
        Invalid,
        None,
    ),
    (
        rpc("java.io.IOException", "Source /a and destination /b must both be directories"),
        Reason.WRONG_PLACE,
        Invalid,
        None,
    ),
    (
        rpc(
            "org.apache.hadoop.security.AccessControlException",
            'Permission denied: user=alice, access=WRITE, inode=\\"/\\":root:drwx',
        ),
        Reason.NOT_ALLOWED,
        Invalid,
        None,
    ),
    (
        rpc(
            "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
            "Cannot create file/a. Name node is in safe mode.\\nIt was turned on manually.",
        ),
        Reason.SAFE_MODE,
        Unavailable,
        Trouble.SERVER,
    ),
    (
        rpc(
            "org.apache.hadoop.ipc.RetriableException",
            "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create file/a.",
        ),
        Reason.SAFE_MODE,
        Unavailable,
        Trouble.SERVER,
    ),
    (
        rpc("org.apache.hadoop.ipc.RetriableException", "Server too busy"),
        Reason.BUSY,
        Unavailable,
        Trouble.THROTTLED,
    ),
    (
        rpc(
            "org.apache.hadoop.ipc.StandbyException",
            "Operation category WRITE is not supported in state standby.",
        ),
        Reason.STANDBY,
        Unavailable,
        Trouble.SERVER,
    ),
    (
        rpc(
            "java.io.IOException",
            "File /a could only be written to 0 of the 1 minReplication nodes. There are 0 nodes",
        ),
        Reason.NO_DATA_NODE,
        Unavailable,
        Trouble.SERVER,
    ),
    (
        rpc(
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
            "The DiskSpace quota of /a is exceeded: quota = 1 B = 1 B",
        ),
        Reason.FULL,
        Unavailable,
        None,
    ),
    (
        rpc(
            "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException",
            "The maximum path component name limit is exceeded",
        ),
        Reason.NOT_LEGAL,
        Invalid,
        None,
    ),
    (
        rpc("java.io.IOException", "Specified block size 100 is less than configured minimum"),
        Reason.NOT_LEGAL,
        Invalid,
        None,
    ),
    (
        RuntimeError('FatalRPCError("javax.security.sasl.SaslException", "GSS initiate failed")'),
        Reason.NOT_TRUSTED,
        Invalid,
        None,
    ),
    (
        RuntimeError('GSSAPIError(GSS_S_FAILURE, 39756033, "No Kerberos credentials available")'),
        Reason.NOT_TRUSTED,
        Invalid,
        None,
    ),
    (RuntimeError("NoSASLMechanism"), Reason.NOT_TRUSTED, Invalid, None),
    (
        RuntimeError('DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: 7 }]")'),
        Reason.NO_DATA_NODE,
        Unavailable,
        Trouble.SERVER,
    ),
    (RuntimeError("ChecksumError"), Reason.NO_DATA_NODE, Unavailable, Trouble.SERVER),
    (OSError("Connection refused (os error 111)"), Reason.UNREACHED, Unavailable, "cut"),
    (NoAnswer("no answer in 60 s"), Reason.UNREACHED, Unavailable, "cut"),
    (NotImplementedError("File encryption"), Reason.NOT_LEGAL, Invalid, None),
    (RuntimeError("PanicException: explicit panic"), Reason.OTHER, Unavailable, None),
    (rpc("java.lang.NullPointerException", "null"), Reason.OTHER, Unavailable, None),
]


@pytest.mark.parametrize(("error", "reason", "kind", "trouble"), CASES)
def test_an_error_is_known_by_its_class_and_told_in_one_line(
    error: Exception, reason: Reason, kind: type[HoldfastError], trouble: object
) -> None:
    assert read_error(error).reason is reason
    assert trouble_of(error) is (Trouble.CONNECTION if trouble == "cut" else trouble)
    made = as_error(error, "write", "hdfs://host/a", Tried(3, 1.25))
    assert type(made) is kind
    text = str(made)
    assert text.startswith("cannot write [hdfs://host/a]: ")
    assert "(tried 3 times in 1." in text
    for foreign in ("\n", "\\n", "\tat", "java:", "RPCError", "DatanodeInfoProto"):
        assert foreign not in text


def test_the_server_s_text_is_shown_unescaped() -> None:
    said = read_error(
        rpc("x.AccessControlException", 'Permission denied: inode=\\"/\\u{fc}\\": \\\\ \\\'')
    )
    assert said.text == 'Permission denied: inode="/ü": \\ \''
    long = read_error(rpc("java.io.IOException", "x" * 5000))
    assert len(long.text) < 500


def test_errors_of_the_house_stay_as_they_are() -> None:
    error = Invalid("ours")
    assert as_error(error, "write", "x") is error
    assert trouble_of(error) is None
