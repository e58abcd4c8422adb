"""Updates that are not finite: when they are warned of, when training ends, and float16's loss scale."""

import warnings

import pytest

from kbert.errors import DivergedError
from kbert.training.non_finite import NonFiniteGuard

NAN, INFINITE = float("nan"), float("inf")


def read(losses, float16=False):
    """The guard after these losses."""
    guard = NonFiniteGuard(float16, "again")
    for update, loss in enumerate(losses, 1):
        guard.record(update, loss)
    guard.read_all()
    return guard


def test_the_first_of_a_row_is_warned_of_where_the_caller_stands():
    with pytest.warns(UserWarning, match="step 2 ") as found:
        read([1.0, NAN, INFINITE, -INFINITE, 1.0])
    assert len(found) == 1 and found[0].filename == __file__


@pytest.mark.filterwarnings("ignore:The loss of step")
def test_the_fifth_in_a_row_ends_it():
    read([NAN] * 4 + [1.0] + [NAN] * 4)
    with pytest.raises(DivergedError, match="5 steps in a row. Try again"):
        read([NAN] * 5)


def test_float16_tries_every_smaller_scale_before_it_ends():
    first = NonFiniteGuard(True, "").loss_scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read([1.0, NAN, 1.0, NAN], float16=True).loss_scale == first / 4
        assert read([NAN] * 12, float16=True).loss_scale == first / 2**12 == 1
    with pytest.raises(DivergedError, match="13 steps"):
        read([NAN] * 13, float16=True)


def test_the_scale_grows_again_with_good_steps_to_a_bound():
    first = NonFiniteGuard(True, "").loss_scale
    assert read([1.0] * 1999, float16=True).loss_scale == first
    assert read([1.0] * 2000, float16=True).loss_scale == 2 * first
    assert read([1.0] * 1999 + [NAN] + [1.0] * 1999, float16=True).loss_scale == first / 2
    assert read([1.0] * 20_000, float16=True).loss_scale == 2.0**16
    assert read([1.0] * 2000).loss_scale == 1


def test_the_state_goes_on():
    one = read([1.0] * 1990 + [NAN] + [1.0] * 1990, float16=True)
    other = NonFiniteGuard(True, "")
    other.restore(one.state())
    for guard in (one, other):
        for update in range(10):
            guard.record(update, 1.0)
    assert one.state() == other.state() and other.loss_scale == 2.0**12


def test_another_type_goes_on_with_its_own_scale():
    float32, float16 = NonFiniteGuard(False, ""), NonFiniteGuard(True, "")
    float32.restore(read([NAN, NAN], float16=True).state())
    float16.restore(read([1.0]).state())
    assert float32.loss_scale == 1 and float16.loss_scale == 2.0**12


def test_losses_are_read_some_updates_late_and_in_order_but_at_once_under_float16():
    for float16, delay in ((False, 8), (True, 0)):
        guard, found = NonFiniteGuard(float16, ""), []
        for update in range(1, 21):
            guard.record(update, [float(update), 0.5], on_read=found.append)
            assert len(found) == max(0, update - delay)
        guard.read_all()
        assert [values.tolist() for values in found] == [[update, 0.5] for update in range(1, 21)]


def test_numbers_are_handed_on_before_training_ends():
    found = []
    guard = NonFiniteGuard(False, "")
    with warnings.catch_warnings(), pytest.raises(DivergedError):
        warnings.simplefilter("ignore")
        for update in range(1, 20):
            guard.record(update, NAN, on_read=found.append)
    assert len(found) == 5
