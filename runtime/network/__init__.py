"""Arrow Flight between driver, slots and pushing tasks: servers, clients, credentials.

It imports `task`, whose channels and staging it fills, and all below.
"""

from holdfast.runtime.network.clients import DriverClient, PushStream, SlotClient
from holdfast.runtime.network.credentials import (
    LOOPBACK_ONLY,
    Credentials,
    Identity,
    Protection,
    make_certificate,
)
from holdfast.runtime.network.driver_server import DriverServer
from holdfast.runtime.network.exchange_sender import ExchangeSender
from holdfast.runtime.network.slot_server import (
    SlotCommand,
    SlotServer,
    SourceCommand,
    obey_source,
)

__all__ = [
    "LOOPBACK_ONLY",
    "Credentials",
    "DriverClient",
    "DriverServer",
    "ExchangeSender",
    "Identity",
    "Protection",
    "PushStream",
    "SlotClient",
    "SlotCommand",
    "SlotServer",
    "SourceCommand",
    "make_certificate",
    "obey_source",
]
