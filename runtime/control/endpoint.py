"""The driver's end: a running job serves HTTP to the commands of its own user, on this machine.

It listens on a Unix socket and not on a port of loopback, which every user of the machine can
reach. The folder of the socket keeps other users out, the kernel tells the user of the calling
process, and the token is the third check. Whatever fails here is logged, and never fails the job.

It looks now and then whether its socket and its registration are still there, since a login's
folder goes when the user logs out, and registers anew. When the process exits, `close` waits up to
two seconds for answers that are known.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from holdfast.runtime.control.call_handler import CallHandler, ServedJob
from holdfast.runtime.control.folder import FOLDER_VARIABLE, make_folder
from holdfast.runtime.control.registry import (
    Registration,
    entry_path,
    find_runs,
    register,
    socket_path,
    unregister,
)
from holdfast.runtime.driver.handle import JobHandle
from holdfast.storage import Clock, Entropy, HoldfastError, Invalid, Unavailable
from holdfast.storage.distribution import holdfast_version

__all__ = ["JobEndpoint", "ListeningSocket", "open_endpoint"]

_logger = logging.getLogger(__name__)

_MOST_CALLS = 8
_LONGEST_PATH = 100
"""Of a socket, in bytes: Linux has room for 108, other systems for 104."""
_PAUSE_S = 1.0
_LOOK_S = 30.0
"""Interval of checking that socket and registration are still there."""
_LAST_ANSWERS_WITHIN_S = 2.0


def open_endpoint(
    handle: JobHandle,
    *,
    storage: str,
    folders: tuple[Path, ...],
    clock: Clock,
    entropy: Entropy,
) -> JobEndpoint | None:
    """Let commands reach a job; None, and a warning, if that is impossible.

    The first of `folders` that can be used is taken. `storage` is where the job's checkpoints are.
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


class ListeningSocket:
    """A socket in a folder, and beside it the registration by which commands find it.

    Raises:
        HoldfastError: the folder cannot be trusted, or cannot be made.
        OSError: the socket or the registration cannot be made.
    """

    def __init__(self, folder: Path, registration: Registration, clock: Clock) -> None:
        self.folder = folder
        self._run = registration.run
        make_folder(folder)
        # A search removes what drivers that were killed have left.
        find_runs([folder], host=registration.host, clock=clock)
        self.socket = _listen(socket_path(folder, self._run))
        try:
            register(folder, registration)
            self.socket.settimeout(_LOOK_S)
            self._identity = self._looked()
        except BaseException:
            self.socket.close()
            unregister(folder, self._run)
            raise

    @property
    def is_there(self) -> bool:
        """Whether socket and registration are still those that were made here."""
        try:
            return self._looked() == self._identity
        except OSError:
            return False

    def leave(self) -> None:
        """Remove socket and registration; a thread that accepts calls is woken."""
        unregister(self.folder, self._run)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _looked(self) -> list[tuple[int, int]]:
        paths = (socket_path(self.folder, self._run), entry_path(self.folder, self._run))
        return [(found.st_dev, found.st_ino) for found in (path.lstat() for path in paths)]


class JobEndpoint:
    """Listens from construction on, until `close`; can be found as soon as it listens.

    The first of `folders` that can be used is taken. Its content may be removed while the job runs:
    a folder of a login when its user logs out, one for temporary files when they are old.

    Raises:
        Unavailable: none can be used; says why.
    """

    def __init__(
        self,
        handle: JobHandle,
        registration: Registration,
        folders: tuple[Path, ...],
        clock: Clock,
    ) -> None:
        self.registration = registration
        self._folders = folders
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: set[threading.Thread] = set()
        self._is_closed = False
        self._job = ServedJob(handle, registration, clock, is_ending=threading.Event())
        self._has_closed = threading.Event()
        self._is_hidden = False
        self._look_s = clock.monotonic_s() + _LOOK_S
        self._socket = self._first_usable()
        atexit.register(self.close)
        name = f"holdfast-endpoint-{registration.job}"
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Stop listening; return when calls whose outcomes are known by then are answered.

        The process may exit as soon as the job has ended, while another thread closes: the second
        caller waits for the first.
        """
        # A process that was forked from the driver's inherits this exit hook, and not the socket.
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
        self._job.is_ending.set()
        self._socket.leave()  # `_stay_found` replaces no socket once `_is_closed` is set
        deadline_s = self._clock.monotonic_s() + _LAST_ANSWERS_WITHIN_S
        for call in calls:
            call.join(max(0.0, deadline_s - self._clock.monotonic_s()))

    def _accept(self) -> None:
        while not self._job.is_ending.is_set():
            if self._clock.monotonic_s() >= self._look_s:
                self._stay_found()
                self._look_s = self._clock.monotonic_s() + _LOOK_S
            try:
                connection, _ = self._socket.socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                # For example too many open files: after a pause there may be fewer.
                if not self._job.is_ending.wait(_PAUSE_S):
                    _logger.warning("a command could not be accepted: %s", error)
                continue
            try:
                if not self._welcome(connection):
                    self._turn_away(connection)
            except Exception:  # for example no thread can be started: the next call may succeed
                connection.close()
                _logger.warning("a command could not be answered", exc_info=True)

    def _first_usable(self) -> ListeningSocket:
        reasons = []
        for folder in self._folders:
            try:
                return ListeningSocket(folder, self.registration, self._clock)
            except (HoldfastError, OSError) as error:
                reasons.append(str(error) or repr(error))
        raise Unavailable("no folder for running jobs can be used", found="; ".join(reasons))

    def _stay_found(self) -> None:
        """Listen and register anew, here or elsewhere, if socket or registration was removed."""
        before = self._socket
        if before.is_there or self._is_closed:
            return
        unregister(before.folder, self.registration.run)  # one of the two may still be there
        try:
            fresh = self._first_usable()
        except Unavailable as error:
            if not self._is_hidden:
                job = self.registration.job
                _logger.warning("no command finds job %r any more: %s", job, error)
            self._is_hidden = True  # logged once; it is tried again
            return
        with self._lock:
            if not self._is_closed:
                self._socket = fresh
        if self._socket is not fresh:
            fresh.leave()
            return
        before.socket.close()
        self._is_hidden = False
        _logger.warning(
            "what commands find job %r by was removed from %s; it is in %s now. Name a folder in "
            "%s that lasts as long as the job",
            self.registration.job,
            before.folder,
            fresh.folder,
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
        refusal = Unavailable(
            "the job is busy with other commands",
            expected=f"at most {_MOST_CALLS} at once",
            fix="Try again later",
        )
        # Nothing is read: this is the thread that accepts, and a caller may be slow.
        with connection, suppress(OSError):
            CallHandler(connection, self._job, refusal)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):  # the caller has gone
                CallHandler(connection, self._job)
        except Exception:
            _logger.warning("a command could not be answered", exc_info=True)
        finally:
            with self._lock:
                self._calls.discard(threading.current_thread())


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
