"""The command line's end: calls to the driver of a running job."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TypeVar

import msgspec

from holdfast.runtime.control.framing import read_frame, write_frame
from holdfast.runtime.control.messages import (
    PROTOCOL,
    Answer,
    Answered,
    Call,
    Cancel,
    CancelWithSavepoint,
    Describe,
    Ended,
    JobReport,
    Pulse,
    Refused,
    Request,
    SavepointTaken,
    StopWithSavepoint,
    TakeSavepoint,
    TriggerCheckpoint,
)
from holdfast.runtime.control.registry import FoundRun
from holdfast.runtime.protocol.error_data import told_error, told_kinds
from holdfast.storage import Clock, Invalid, NotFound, SystemClock, Unavailable
from holdfast.storage.errors import UNREADABLE

__all__ = ["JobClient"]

_MOST_BYTES = 1 << 26
_KINDS = told_kinds()
_T = TypeVar("_T")


class JobClient:
    """Calls the driver of one run; each call is a connection of its own.

    A driver that says nothing for `silence_s` is taken for stuck. One that is at work on a call
    says so again and again, so a call may take as long as it takes.

    All calls raise:
        NotFound: the driver is there no more.
        Unavailable: it does not answer, or it broke off. Whether the call took effect is not known.
        HoldfastError: what the driver refused it with.
    """

    def __init__(
        self, run: FoundRun, *, silence_s: float = 10.0, clock: Clock | None = None
    ) -> None:
        self.registration = run.registration
        self._path = str(run.socket)
        self._silence_s = silence_s
        self._clock = clock or SystemClock()

    def describe(self) -> JobReport:
        """How the job is."""
        return self._call(Describe(), JobReport)

    def trigger_checkpoint(self) -> JobReport:
        """Have a checkpoint taken; how the job was just before."""
        return self._call(TriggerCheckpoint(), JobReport)

    def cancel(self) -> Ended:
        """Stop the job; returns when it has ended. Who stops waiting does not call it back."""
        return self._call(Cancel(), Ended)

    def take_savepoint(self, directory: str | None, form: str | None) -> SavepointTaken:
        """Have a savepoint taken; returns when it is complete. The job runs on."""
        return self._call(TakeSavepoint(directory, form), SavepointTaken)

    def stop_with_savepoint(
        self, directory: str | None, form: str | None, *, drain: bool
    ) -> SavepointTaken:
        """End the job with a savepoint; returns when it has ended."""
        return self._call(StopWithSavepoint(directory, form, drain), SavepointTaken)

    def cancel_with_savepoint(self, directory: str | None, form: str | None) -> SavepointTaken:
        """Have a savepoint taken and then cancel the job; returns when it has ended."""
        return self._call(CancelWithSavepoint(directory, form), SavepointTaken)

    def _call(self, request: Request, kind: type[_T]) -> _T:
        where = f"job {self.registration.job!r}, process {self.registration.pid}"
        call = Call(
            version=PROTOCOL,
            token=self.registration.token,
            request=msgspec.Raw(msgspec.json.encode(request)),
        )
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._silence_s)
                connection.connect(self._path)
                with suppress(BrokenPipeError, ConnectionResetError):  # its answer says why
                    write_frame(connection, msgspec.json.encode(call), limit_bytes=_MOST_BYTES)
                body = self._answer(connection, where)
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise NotFound("the job runs no more", where=where) from error
        except OSError as error:
            raise Unavailable(
                "the driver of the job does not answer",
                where=where,
                expected=f"an answer within {self._silence_s:g} s",
                found=str(error) or repr(error),
                fix="It may be stopped, or stuck: look at its process and its log",
            ) from error
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as error:
            raise _unreadable(self.registration.holdfast_version, where, error) from error

    def _answer(self, connection: socket.socket, where: str) -> msgspec.Raw:
        while True:
            data = read_frame(
                connection,
                limit_bytes=_MOST_BYTES,
                within_s=self._silence_s,
                clock=self._clock,
            )
            if data is None:
                raise Unavailable(
                    "the driver of the job ended before it had answered",
                    where=where,
                    fix="Whether it was done is not known: see what it has left, by `holdfast "
                    f"checkpoints {self.registration.storage}`",
                )
            try:
                answer = msgspec.json.decode(data, type=Answer)
            except UNREADABLE as error:
                raise _unreadable(self.registration.holdfast_version, where, error) from error
            match answer:
                case Pulse():
                    continue
                case Answered(body=body):
                    return body
                case Refused(error=told):
                    raise told_error(told, _KINDS)


def _unreadable(version: str, where: str, error: Exception) -> Invalid:
    return Invalid(
        "the answer of the job's driver cannot be read",
        where=where,
        found=f"{error}, from Holdfast {version}",
        fix="Use the holdfast command of the installation that runs the job",
    )
