"""A client outlives what Flower refuses it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from flwr.app import Context, Message, RecordDict
from flwr.proto.message_pb2 import PushObjectResponse
from flwr.proto.runtime_pb2 import PushAppMessagesResponse
from flwr.supercore.task_identity import TaskIdentity

from consort.deployment.link.runtime import Disconnected
from consort.deployment.link.supernode import IncomingMessage


class TooLate:
    """Flower's side of a letter whose deadline has passed: it takes no piece of the answer."""

    closed = False

    def PushMessages(self, request):
        wanted = [tree.object_id for tree in request.message_object_trees]
        return PushAppMessagesResponse(objects_to_push=wanted, session_id="old")

    def PushObject(self, _):
        return PushObjectResponse(stored=False)

    def close(self):
        self.closed = True


def test_an_answer_that_flower_no_longer_takes_does_not_end_the_client(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    letter = IncomingMessage.__new__(IncomingMessage)
    letter._client = TooLate()
    letter._heartbeat = SimpleNamespace(_stop_event=threading.Event())
    letter._message = Message(RecordDict(), 1, "query")
    letter._message.metadata.__dict__["_message_id"] = "1"
    letter._context = Context(1, 1, {}, RecordDict(), {})
    with pytest.raises(Disconnected, match="the deadline is over"):  # which clients expect
        letter.answer({"content": b"late"})
    assert letter._client.closed
    assert letter._heartbeat._stop_event.is_set()
