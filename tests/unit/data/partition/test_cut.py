import pytest
from pydantic import ValidationError

from consort.data.partition import Cut

SCHEMES = ("iid", "dirichlet", "classes", "quantity", "natural", "domain", "task")


def test_defaults():
    assert Cut() == Cut(by="iid", min_examples=10, validation=0.15, test=0.15)


@pytest.mark.parametrize("by", SCHEMES)
@pytest.mark.parametrize(
    ("option", "value", "schemes"),
    [
        ("alpha", 0.3, ("dirichlet", "quantity")),
        ("balanced", True, ("dirichlet",)),
        ("classes_per_client", 3, ("classes",)),
        ("min_examples", 4, SCHEMES),
        ("test", 0.3, SCHEMES),
    ],
)
def test_an_option_is_refused_where_it_means_nothing(by, option, value, schemes):
    table = {"by": by, option: value}
    if by in schemes:
        assert getattr(Cut(**table), option) == value
    else:
        with pytest.raises(ValidationError, match=f'{option} belongs to by = .*not to by = "{by}"'):
            Cut(**table)


@pytest.mark.parametrize(
    "table",
    [
        {"by": "iod"},
        {"alhpa": 1},
        {"by": "dirichlet", "alpha": 0},
        {"by": "dirichlet", "alpha": float("inf")},
        {"by": "dirichlet", "balanced": "no"},
        {"by": "classes", "classes_per_client": 0},
        {"min_examples": 0},
        {"validation": 0},
        {"validation": 0.5, "test": 0.5},
    ],
)
def test_nonsense_is_refused(table):
    with pytest.raises(ValidationError):
        Cut(**table)


@pytest.mark.parametrize("by", SCHEMES)
def test_what_is_written_can_be_read_again(by):
    cut = Cut(by=by, min_examples=4)
    assert Cut(**cut.model_dump()) == cut
    assert Cut.model_validate_json(cut.model_dump_json()) == cut


def test_a_cut_stays_as_it_is():
    with pytest.raises(ValidationError):
        Cut().by = "task"
