"""What a node may ask of Flower's SuperLink, and how it signs that."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flwr.common.constant import (
    SUPERLINK_NODE_ID,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
)
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from google.protobuf.message import DecodeError

KEY, SIGNATURE = FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), FLEET_HTTP_SIGNATURE_HEADER.encode()
TIMESTAMP = TIMESTAMP_HEADER.encode()
"""The headers with which a node identifies itself."""
PUSH_MESSAGES, PUSH_OBJECT = "/v1/fleet/push-messages", "/v1/fleet/push-object"
_SMALL = 1 << 20
_LONGEST = 64  # characters of a time
LARGEST = {
    "/v1/fleet/activate-node": _SMALL,
    "/v1/fleet/deactivate-node": _SMALL,
    "/v1/fleet/send-node-heartbeat": _SMALL,
    "/v1/fleet/pull-messages": _SMALL,
    "/v1/fleet/get-run": _SMALL,
    "/v1/fleet/get-fab": _SMALL,
    "/v1/fleet/pull-object": _SMALL,
    "/v1/fleet/confirm-message-received": _SMALL,
    PUSH_MESSAGES: _SMALL,
    PUSH_OBJECT: 6 << 20,  # Flower sends larger ones in pieces of 5 MiB
}
"""The paths that a node needs, and the largest body of each in bytes."""
EARLY, LATE = -float(SYSTEM_TIME_TOLERANCE), float(TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)
"""The age that a signature may have, in seconds: clocks differ, and bodies take a while."""


def signed_at(header: bytes) -> float:
    """The time in the header that a node signs, in seconds.

    Raises:
        ValueError: If it is not a time with a time zone.
    """
    moment = datetime.fromisoformat(header[:_LONGEST].decode("ascii"))
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone")
    return moment.timestamp()


def is_reply_of(node: int, body: bytes) -> bool:
    """Whether a body is one reply of a node to the server, and not a message to another node.

    Args:
        node: The id of the node that sends it.
        body: The body of a request to `PUSH_MESSAGES`.
    """
    try:
        request: Any = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        return False
    about = request.messages_list[0].metadata
    return (
        request.node.node_id == node == about.src_node_id
        and about.dst_node_id == SUPERLINK_NODE_ID
        and bool(about.reply_to_message_id)
    )
