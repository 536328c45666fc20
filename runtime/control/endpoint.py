"""The driver's end: a running job listens for the commands of its own user, on this machine.

It listens on a Unix socket and not on a port: the folder that the socket is in lets nobody else
reach it, and the kernel tells whose process calls, so the secret is the third wall and not the
first. Nothing that goes wrong here is the job's concern.
"""

from __future__ import annotations

import atexit
import hmac
import logging
import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.runtime.control.folder import FOLDER_VARIABLE, make_folder
from holdfast.runtime.control.framing import read_frame, write_frame
from holdfast.runtime.control.messages import (
    PROTOCOL,
    Answer,
    Answered,
    Call,
    Pulse,
    Refused,
    Request,
)
from holdfast.runtime.control.registry import (
    Registration,
    entry_path,
    register,
    remove_dead,
    socket_path,
    unregister,
)
from holdfast.runtime.control.requests import carry_out
from holdfast.runtime.control.work import Work
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.protocol.error_data import tell_error, told_kinds
from holdfast.storage import Clock, Entropy, HoldfastError, Invalid, Unavailable
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.errors import UNREADABLE

__all__ = ["MOST_REQUEST_BYTES", "JobEndpoint", "open_endpoint"]

_logger = logging.getLogger(__name__)

MOST_REQUEST_BYTES = 1 << 16
"""No request is longer: they name things."""
_MOST_ANSWER_BYTES = 1 << 24
_MOST_CALLS = 8
_LONGEST_PATH = 100
"""Of a socket, in bytes: Linux has room for 108, other systems for 104."""
_REQUEST_WITHIN_S = 5.0
_ANSWER_WITHIN_S = 5.0
_PULSE_S = 1.0
_LOOK_S = 30.0
"""So often it looks whether it can still be found."""
_LAST_ANSWERS_WITHIN_S = 2.0
_KINDS = told_kinds()
_ROOT = 0


def open_endpoint(
    handle: JobHandle,
    *,
    storage: str,
    folders: tuple[Path, ...],
    clock: Clock,
    entropy: Entropy,
) -> JobEndpoint | None:
    """Let commands reach a job; None, and a warning, if that cannot be.

    Of `folders` the first that will do is taken. `storage` is where the job's checkpoints are.
    """
    registration = Registration(
        job=handle.job_id,
        run=entropy.token(),
        pid=os.getpid(),
        host=socket.gethostname(),
        token=entropy.token() + entropy.token(),
        storage=storage,
        started_ms=clock.now_ms(),
        holdfast_version=holdfast_version(),
    )
    try:
        return JobEndpoint(handle, registration, folders, clock)
    except Exception as error:  # noqa: BLE001 - the job runs, whatever it is
        reason = str(error) or repr(error)
    _logger.warning(
        "job %r runs, but no command can reach it: %s. Name a folder in %s that is yours alone",
        handle.job_id,
        reason,
        FOLDER_VARIABLE,
    )
    return None


class _Place:
    """Where an endpoint listens and is found: a socket and a registration in a folder.

    Raises:
        HoldfastError: the folder is not to be trusted, or cannot be made.
        OSError: the socket or the registration cannot be made.
    """

    def __init__(self, folder: Path, registration: Registration, clock: Clock) -> None:
        self.folder = folder
        self._run = registration.run
        make_folder(folder)
        remove_dead(folder, host=registration.host, clock=clock)
        self.listener = _listen(socket_path(folder, self._run))
        try:
            register(folder, registration)
            self.listener.settimeout(_LOOK_S)
            self._identity = self._looked()
        except BaseException:
            self.listener.close()
            unregister(folder, self._run)
            raise

    @property
    def is_there(self) -> bool:
        """Whether others still find what was put there."""
        try:
            return self._looked() == self._identity
        except OSError:
            return False

    def leave(self) -> None:
        """Be found no more; whoever accepts calls is woken."""
        unregister(self.folder, self._run)
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _looked(self) -> list[tuple[int, int]]:
        paths = (socket_path(self.folder, self._run), entry_path(self.folder, self._run))
        return [(found.st_dev, found.st_ino) for found in (path.lstat() for path in paths)]


class JobEndpoint:
    """Listens from construction on, until `close`; is found as soon as it listens.

    Of `folders` the first that will do is taken. What is there may be removed while the job runs:
    a folder of a login when its user logs out, one for temporary files when they are old. So the
    endpoint looks now and then, and goes where it can be found again.

    Raises:
        Unavailable: none will do; says why.
    """

    def __init__(
        self,
        handle: JobHandle,
        registration: Registration,
        folders: tuple[Path, ...],
        clock: Clock,
    ) -> None:
        self.registration = registration
        self._handle = handle
        self._folders = folders
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: set[threading.Thread] = set()
        self._is_closed = False
        self._ends = threading.Event()
        self._has_closed = threading.Event()
        self._is_hidden = False
        self._look_s = clock.monotonic_s() + _LOOK_S
        self._place = self._first_place()
        atexit.register(self.close)
        name = f"holdfast-endpoint-{registration.job}"
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Be found no more; return when calls whose answers are known by then are answered.

        The process may exit as soon as the job has ended, while another thread closes: whoever
        comes second waits for the first. A process that was forked from the driver's is not the
        driver.
        """
        if os.getpid() != self.registration.pid:
            return
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            calls = tuple(self._calls)
        if not is_first:
            self._has_closed.wait(2 * _LAST_ANSWERS_WITHIN_S)
            return
        try:
            self._close(calls)
        finally:
            self._has_closed.set()
            atexit.unregister(self.close)

    def _close(self, calls: tuple[threading.Thread, ...]) -> None:
        self._ends.set()
        self._place.leave()  # nobody moves it any more: it is closed
        deadline_s = self._clock.monotonic_s() + _LAST_ANSWERS_WITHIN_S
        for call in calls:
            call.join(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _accept(self) -> None:
        while not self._ends.is_set():
            if self._clock.monotonic_s() >= self._look_s:
                self._stay_found()
                self._look_s = self._clock.monotonic_s() + _LOOK_S
            try:
                connection, _ = self._place.listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._ends.wait(_PULSE_S):  # too many open files, say: there may be fewer
                    _logger.warning("a command could not be heard: %s", error)
                continue
            try:
                if not self._welcome(connection):
                    self._turn_away(connection)
            except Exception:  # no thread to be had, say: the next call may find one
                connection.close()
                _logger.warning("a command could not be answered", exc_info=True)

    def _first_place(self) -> _Place:
        reasons = []
        for folder in self._folders:
            try:
                return _Place(folder, self.registration, self._clock)
            except (HoldfastError, OSError) as error:
                reasons.append(str(error) or repr(error))
        raise Unavailable("no folder for running jobs will do", found="; ".join(reasons))

    def _stay_found(self) -> None:
        """If what others find it by was removed, put it there again, or elsewhere."""
        before = self._place
        if before.is_there or self._is_closed:
            return
        unregister(before.folder, self.registration.run)  # half of it may be there still
        try:
            place = self._first_place()
        except Unavailable as error:
            if not self._is_hidden:
                _logger.warning("no command finds job %r any more: %s", self._handle.job_id, error)
            self._is_hidden = True  # said once; it is tried again
            return
        with self._lock:
            if not self._is_closed:
                self._place = place
        if self._place is not place:
            place.leave()
            return
        before.listener.close()
        self._is_hidden = False
        _logger.warning(
            "what commands find job %r by was removed from %s; it is in %s now. Name a folder in "
            "%s that lasts as long as the job",
            self._handle.job_id,
            before.folder,
            place.folder,
            FOLDER_VARIABLE,
        )

    def _welcome(self, connection: socket.socket) -> bool:
        call = threading.Thread(
            target=self._serve, args=(connection,), name="holdfast-call", daemon=True
        )
        with self._lock:
            if self._is_closed or len(self._calls) >= _MOST_CALLS:
                return False
            call.start()
            self._calls.add(call)
        return True

    def _turn_away(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(_PULSE_S)
            self._send(
                connection,
                _refused(
                    Unavailable(
                        "the job is busy with other commands",
                        expected=f"at most {_MOST_CALLS} at once",
                        fix="Try again later",
                    )
                ),
            )

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except OSError:
            pass  # whoever called has gone
        except Exception:
            _logger.warning("a command could not be answered", exc_info=True)
        finally:
            with self._lock:
                self._calls.discard(threading.current_thread())

    def _answer(self, connection: socket.socket) -> None:
        try:
            _check_caller(connection)
            data = read_frame(
                connection,
                limit_bytes=MOST_REQUEST_BYTES,
                within_s=_REQUEST_WITHIN_S,
                clock=self._clock,
            )
            if data is None:
                return  # somebody who looked whether anybody listens
            request = self._admitted(data)
        except HoldfastError as error:
            connection.settimeout(_ANSWER_WITHIN_S)
            self._send(connection, _refused(error))
            return
        except TimeoutError as error:
            connection.settimeout(_ANSWER_WITHIN_S)
            self._send(connection, _refused(Unavailable(str(error))))
            return
        connection.settimeout(_ANSWER_WITHIN_S)
        work = Work(lambda: carry_out(request, self._handle, self.registration), "holdfast-command")
        while not work.wait(_PULSE_S):
            if self._ends.is_set() and not work.wait(_PULSE_S / 2):
                self._send(
                    connection,
                    _refused(
                        Unavailable(
                            "the driver of the job ends, and whether it was done is not known",
                            where=f"job {self.registration.job!r}",
                        )
                    ),
                )
                return
            self._send(connection, Pulse())
        self._send(connection, self._outcome(work))

    def _outcome(self, work: Work) -> Answer:
        try:
            return Answered(msgspec.Raw(msgspec.json.encode(work.result())))
        except HoldfastError as error:
            return _refused(error)
        except Exception as error:
            _logger.warning("a command failed", exc_info=True)
            return _refused(Invalid("the driver could not carry it out", found=repr(error)))

    def _send(self, connection: socket.socket, answer: Answer) -> None:
        data = msgspec.json.encode(answer)
        if len(data) > _MOST_ANSWER_BYTES:
            data = msgspec.json.encode(
                _refused(
                    Unavailable("the answer is too long to be sent", found=f"{len(data)} bytes")
                )
            )
        write_frame(connection, data, limit_bytes=_MOST_ANSWER_BYTES)

    def _admitted(self, data: bytes) -> Request:
        """What is asked for, by somebody who may.

        Raises:
            Invalid: by somebody who may not; in another version of the protocol; or the driver
                does not know it.
        """
        try:
            call = msgspec.json.decode(data, type=Call)
        except UNREADABLE as error:
            raise Invalid("the driver does not understand the call", found=str(error)) from error
        if not hmac.compare_digest(call.token.encode(), self.registration.token.encode()):
            raise Invalid(
                "the token is not that of this run",
                where=f"job {self.registration.job!r}",
                fix="Use the holdfast command, as the user who runs the job",
            )
        if call.version != PROTOCOL:
            raise _other_version(f"version {PROTOCOL}", f"version {call.version}")
        try:
            request: Request = msgspec.json.decode(call.request, type=Request)
        except UNREADABLE as error:
            raise _other_version("a request that it knows", str(error)) from error
        return request


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise Invalid(
            "the path of a socket is too long for this system",
            where=str(path),
            expected=f"at most {_LONGEST_PATH} bytes",
            found=str(len(os.fsencode(path))),
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_MOST_CALLS)
    except BaseException:
        listener.close()
        raise
    return listener


def _check_caller(connection: socket.socket) -> None:
    """Refuse other users, where the system tells who it is; root may all in any case.

    Raises:
        Invalid: it is another user.
    """
    kind = getattr(socket, "SO_PEERCRED", None)
    if kind is None:
        return
    layout = struct.Struct("3i")
    _, user, _ = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, kind, layout.size))
    if user not in (_ROOT, os.getuid()):
        raise Invalid(
            "only the user who runs the job may command it",
            expected=f"user {os.getuid()}",
            found=f"user {user}",
        )


def _other_version(expected: str, found: str) -> Invalid:
    return Invalid(
        "the driver of the job does not know what it is asked for",
        where=f"Holdfast {holdfast_version()}",
        expected=expected,
        found=found,
        fix="Use the holdfast command of the installation that runs the job",
    )


def _refused(error: HoldfastError) -> Refused:
    return Refused(tell_error(error, _KINDS))
