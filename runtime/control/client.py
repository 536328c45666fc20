"""The command line's end: HTTP calls to the driver of a running job."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from typing import TypeVar

import msgspec

from holdfast.runtime.control.messages import (
    ROUTES,
    Answer,
    Cancel,
    CancelWithSavepoint,
    Describe,
    Ended,
    JobReport,
    Request,
    SavepointTaken,
    StopWithSavepoint,
    TakeSavepoint,
    TriggerCheckpoint,
)
from holdfast.runtime.control.registry import FoundRun
from holdfast.runtime.protocol.error_data import error_of_data
from holdfast.storage import Invalid, NotFound, TooLarge, Unavailable
from holdfast.storage.errors import UNREADABLE

__all__ = ["JobClient"]

_MOST_BYTES = 1 << 26
_T = TypeVar("_T")


class JobClient:
    """Calls the driver of one run; each call is a connection of its own.

    A driver that is silent for `silence_s` counts as stuck. One that carries out a call sends a
    sign of life each second, so a call may take any time.

    All calls raise:
        NotFound: the driver has ended.
        Unavailable: it does not answer, or it broke off. Whether the call took effect is not known.
        HoldfastError: the driver refused the call.
    """

    def __init__(self, run: FoundRun, *, silence_s: float = 10.0) -> None:
        self.registration = run.registration
        self._path = str(run.socket)
        self._silence_s = silence_s
        self._where = f"job {run.registration.job!r}, process {run.registration.pid}"

    def describe(self) -> JobReport:
        return self._call(Describe(), JobReport)

    def trigger_checkpoint(self) -> JobReport:
        """Trigger a checkpoint; the state of the job just before."""
        return self._call(TriggerCheckpoint(), JobReport)

    def cancel(self) -> Ended:
        """Stop the job; returns when it has ended. To stop waiting does not undo it."""
        return self._call(Cancel(), Ended)

    def take_savepoint(self, directory: str | None, form: str | None) -> SavepointTaken:
        """Take a savepoint; returns when it is complete. The job continues."""
        return self._call(TakeSavepoint(directory, form), SavepointTaken)

    def stop_with_savepoint(
        self, directory: str | None, form: str | None, *, drain: bool
    ) -> SavepointTaken:
        """End the job with a savepoint; returns when it has ended."""
        return self._call(StopWithSavepoint(directory, form, drain), SavepointTaken)

    def cancel_with_savepoint(self, directory: str | None, form: str | None) -> SavepointTaken:
        """Take a savepoint and then cancel the job; returns when it has ended."""
        return self._call(CancelWithSavepoint(directory, form), SavepointTaken)

    def _call(self, request: Request, kind: type[_T]) -> _T:
        try:
            answer = msgspec.json.decode(self._response(request), type=Answer)
            if answer.error is not None:
                raise error_of_data(answer.error)
            return msgspec.json.decode(answer.result, type=kind)
        except (RemoteDisconnected, IncompleteRead) as error:
            raise Unavailable(
                "the driver of the job ended before it had answered",
                where=self._where,
                fix="Whether it was done is not known: see what it has left, by `holdfast "
                f"checkpoints {self.registration.storage}`",
            ) from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise NotFound("the job runs no more", where=self._where) from error
        except OSError as error:
            raise Unavailable(
                "the driver of the job does not answer",
                where=self._where,
                expected=f"an answer within {self._silence_s:g} s",
                found=str(error) or repr(error),
                fix="It may be stopped, or stuck: look at its process and its log",
            ) from error
        except (HTTPException, *UNREADABLE) as error:
            raise Invalid(
                "the answer of the job's driver cannot be read",
                where=self._where,
                found=f"{error}, from Holdfast {self.registration.holdfast_version}",
                fix="Use the holdfast command of the installation that runs the job",
            ) from error

    def _response(self, request: Request) -> bytes:
        method, path = ROUTES[type(request)].split()
        body = None if method == "GET" else msgspec.json.encode(request)
        headers = {"Authorization": f"Bearer {self.registration.token}"}
        with closing(_UnixConnection(self._path, self._silence_s)) as connection:
            # A driver that refuses without reading closes early; its response says why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read(_MOST_BYTES)
            if response.length:  # `read` with a limit does not notice that the body breaks off
                raise IncompleteRead(data, response.length)
            if response.read(1):
                raise TooLarge(
                    "the answer of the job's driver is too long",
                    where=self._where,
                    expected=f"at most {_MOST_BYTES} bytes",
                )
            return data


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket; `silence_s` is the timeout of each single read."""

    def __init__(self, path: str, silence_s: float) -> None:
        super().__init__("localhost", timeout=silence_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
