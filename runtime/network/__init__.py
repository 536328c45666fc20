"""Arrow Flight between driver, slots and pushing tasks: servers, clients, credentials.

It imports `task`, whose channels and staging it fills, and all below.
"""

from holdfast.runtime.network.driver_client import DriverClient
from holdfast.runtime.network.driver_server import DriverServer
from holdfast.runtime.network.exchange_sender import ExchangeSender
from holdfast.runtime.network.protection import (
    LOOPBACK_ONLY,
    Credentials,
    Identity,
    Protection,
    make_identity,
)
from holdfast.runtime.network.slot_client import PushStream, SlotClient
from holdfast.runtime.network.slot_server import (
    SlotCommand,
    SlotServer,
    SourceCommand,
    obey_source,
)
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    Admit,
    BeginSavepoint,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Collect,
    Decline,
    EndSource,
    Exchange,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    IdleSource,
    InjectBarrier,
    Push,
    Ready,
    Register,
    RoomFor,
    Start,
    ToDriver,
    ToSlot,
)

__all__ = [
    "LOOPBACK_ONLY",
    "Acknowledge",
    "Admit",
    "BeginSavepoint",
    "CancelAttempt",
    "CheckpointAborted",
    "CheckpointCompleted",
    "Collect",
    "Credentials",
    "Decline",
    "DriverClient",
    "DriverServer",
    "EndSource",
    "Exchange",
    "ExchangeSender",
    "Failed",
    "Finish",
    "Finished",
    "Heartbeat",
    "Identity",
    "IdleSource",
    "InjectBarrier",
    "Protection",
    "Push",
    "PushStream",
    "Ready",
    "Register",
    "RoomFor",
    "SlotClient",
    "SlotCommand",
    "SlotServer",
    "SourceCommand",
    "Start",
    "ToDriver",
    "ToSlot",
    "make_identity",
    "obey_source",
]
