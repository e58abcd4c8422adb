"""Steps that are not finite: when they are told of, when training ends, and float16's loss scale."""

import warnings

import pytest

from kbert.errors import DivergedError
from kbert.training.bad_steps import BadSteps

NAN, INFINITE = float("nan"), float("inf")


def looked_at(losses, float16=False):
    """What is known after these losses."""
    bad_steps = BadSteps(float16, "again")
    for step, loss in enumerate(losses, 1):
        bad_steps.look_at(step, loss, stacklevel=1)
    return bad_steps


def test_the_first_of_a_row_is_told_of_where_the_caller_stands():
    with pytest.warns(UserWarning, match="step 2 ") as found:
        looked_at([1.0, NAN, INFINITE, -INFINITE, 1.0])
    assert len(found) == 1 and found[0].filename == __file__


@pytest.mark.filterwarnings("ignore:The loss of step")
def test_the_fifth_in_a_row_ends_it():
    looked_at([NAN] * 4 + [1.0] + [NAN] * 4)
    with pytest.raises(DivergedError, match="5 steps in a row. Try again"):
        looked_at([NAN] * 5)


def test_float16_tries_every_smaller_scale_before_it_ends():
    first = BadSteps(True, "").loss_scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert looked_at([1.0, NAN, 1.0, NAN], float16=True).loss_scale == first / 4
        assert looked_at([NAN] * 12, float16=True).loss_scale == first / 2**12 == 1
    with pytest.raises(DivergedError, match="13 steps"):
        looked_at([NAN] * 13, float16=True)


def test_the_scale_grows_again_with_good_steps_to_a_bound():
    first = BadSteps(True, "").loss_scale
    assert looked_at([1.0] * 1999, float16=True).loss_scale == first
    assert looked_at([1.0] * 2000, float16=True).loss_scale == 2 * first
    assert looked_at([1.0] * 1999 + [NAN] + [1.0] * 1999, float16=True).loss_scale == first / 2
    assert looked_at([1.0] * 20_000, float16=True).loss_scale == 2.0**16
    assert looked_at([1.0] * 2000).loss_scale == 1


def test_the_state_goes_on():
    one = looked_at([1.0] * 1990 + [NAN] + [1.0] * 1990, float16=True)
    other = BadSteps(True, "")
    other.restore(one.state())
    for bad_steps in (one, other):
        for step in range(10):
            bad_steps.look_at(step, 1.0, stacklevel=1)
    assert one.state() == other.state() and other.loss_scale == 2.0**12


def test_another_type_goes_on_with_its_own_scale():
    float32, float16 = BadSteps(False, ""), BadSteps(True, "")
    float32.restore(looked_at([NAN, NAN], float16=True).state())
    float16.restore(looked_at([1.0]).state())
    assert float32.loss_scale == 1 and float16.loss_scale == 2.0**12
