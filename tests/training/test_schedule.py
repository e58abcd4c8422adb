"""The schedule by a number of updates, which fine-tuning has too, and by time."""

import numpy as np
import pytest

from kbert.training.schedule import LinearSchedule


def by_time(warmup, seconds_an_update=1.0, budget=100.0):
    """The rates of all updates, each of which takes so long."""
    schedule, used, rates = LinearSchedule(1.0, None, warmup, budget), 0.0, []
    while schedule.share(len(rates), used) < 1:
        rates.append(schedule(len(rates), used))
        used += seconds_an_update
    return rates


@pytest.mark.parametrize("warmup", [0.1, 0.0, 1.0, 10, 0])
def test_no_update_within_a_time_has_rate_zero(warmup):
    rates = by_time(warmup)
    assert len(rates) == 100 and min(rates) > 0 and max(rates) <= 1


def test_within_a_time_the_rate_rises_and_falls_by_the_share_that_is_used():
    rates = by_time(0.1)
    # Warm-up of ten updates; the first one does not know yet how long an update takes.
    assert rates[1:10] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert 0 < rates[0] <= rates[1] and rates[10] == 1
    assert np.diff(rates[10:]) == pytest.approx(-1 / 90)


def test_within_a_time_a_warmup_in_updates_is_over_after_so_many():
    rates = by_time(4)
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0] and rates[4:] == pytest.approx(1 - np.arange(4, 100) / 100)


@pytest.mark.parametrize("budget", [dict(n_updates=10), dict(n_updates=None, seconds=10.0)])
@pytest.mark.parametrize(
    "warmup, plain", [(np.int64(4), 4), (np.int32(0), 0), (np.float32(0.5), 0.5), (np.float64(0.5), 0.5), (True, 1)]
)
def test_numbers_of_numpy_count_as_what_they_are(warmup, plain, budget):
    schedule, expected = LinearSchedule(1.0, warmup=warmup, **budget), LinearSchedule(1.0, warmup=plain, **budget)
    assert type(schedule.warmup) is type(plain)
    assert [schedule(i, 1.0 * i) for i in range(10)] == [expected(i, 1.0 * i) for i in range(10)]
    assert schedule(9, 9.0) < 0.5 or plain == 0.5


def test_the_budget_is_one_of_two():
    for wrong in (dict(n_updates=None), dict(n_updates=3, seconds=3.0)):
        with pytest.raises(ValueError, match="n_updates or seconds"):
            LinearSchedule(1.0, **wrong)
