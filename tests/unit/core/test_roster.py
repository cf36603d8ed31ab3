from __future__ import annotations

import pytest
from tests.helpers import (
    tiny_federation,
    two_task_federation,
    unlike_labels_federation,
    unlike_models_federation,
)

from consort.core.params import Params
from consort.errors import UsageError


def test_it_knows_every_client_its_tasks_and_its_initial_model():
    federation = two_task_federation(clients=4)
    roster = federation.roster
    assert roster.ids == ("c0", "c1", "c2", "c3")
    assert roster.tasks["c0"] == roster.tasks["c2"] == ("colour",)
    assert roster.tasks["c1"] == roster.tasks["c3"] == ("colour", "shape")
    for client in roster.ids:
        model = federation.blueprint(client).fresh()
        assert roster.model(client).equals(Params.of(model))


def test_clients_of_one_architecture_share_one_model():
    roster = tiny_federation(clients=50).roster
    assert len(roster.initial) == 1
    assert roster.model("c7") is roster.model("c49")
    assert len(two_task_federation(clients=10).roster.initial) == 2


def test_the_whole_model_is_shared_among_equals():
    roster = tiny_federation().roster
    assert roster.shared().equals(roster.model("c0"))
    assert roster.shared("encoder").keys() == roster.model("c0").only("encoder").keys()


def test_unlike_clients_share_the_parts_they_have_in_common():
    roster = two_task_federation().roster
    common = roster.shared("encoder", "heads.colour")
    assert common.equals(roster.model("c0"))
    assert common.equals(roster.model("c1").without("heads.shape"))


@pytest.mark.usefixtures("normed_encoder")
def test_an_encoder_with_statistics_is_shared_with_them():
    encoder = tiny_federation(model={"name": "normed"}).roster.shared("encoder")
    assert len(encoder.only("buffers")) > 0


def test_a_missing_task_is_an_error_that_names_two_clients_and_a_parameter():
    with pytest.raises(
        UsageError,
        match=r"needs one whole model for all, but clients c0 and c1 .*'heads\.shape\.bias'",
    ):
        two_task_federation().roster.shared()


def test_other_label_spaces_are_an_error_where_heads_are_shared():
    roster = unlike_labels_federation().roster
    assert len(roster.shared("encoder")) == 2
    with pytest.raises(
        UsageError,
        match=r"encoder and heads for all, but clients c0 and c1 differ in 'heads\.classify\.bias'",
    ):
        roster.shared("encoder", "heads")


def test_other_architectures_are_an_error_with_a_way_out():
    roster = unlike_models_federation().roster
    with pytest.raises(UsageError, match="one architecture and the same tasks, or choose"):
        roster.shared("encoder")
    assert roster.shared("nothing").shapes == {}


def test_starts_are_the_usual_one_and_others_drawn_independently():
    starts = tiny_federation().roster.starts(3)
    again = tiny_federation().roster.starts(4)
    assert starts[0].equals(tiny_federation().roster.shared())
    assert all(one.equals(other) for one, other in zip(starts, again, strict=False))
    distances = [(starts[i] - starts[j]).norm() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(distances) > 0.5 * starts[0].norm()


def test_unlike_clients_have_no_common_starts():
    with pytest.raises(UsageError, match="c0 and c1 differ"):
        unlike_models_federation().roster.starts(2)
