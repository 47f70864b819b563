"""Deadlines by key, against a simple model."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.groups.timers import TimerKey, Timers
from penstock.model import Millis

keys = st.integers(0, 5).map(lambda number: TimerKey("session", "g", str(number)))
steps = st.lists(
    st.one_of(
        st.tuples(keys, st.integers(0, 100)),
        st.tuples(keys, st.none()),
        st.integers(1, 30),
    ),
    max_size=60,
)


@given(steps)
@settings(deadline=None)
def test_a_key_is_due_exactly_when_its_last_deadline_has_come(
    taken: list[tuple[TimerKey, int | None] | int],
) -> None:
    timers, model, now = Timers(), dict[TimerKey, int](), 0
    for step in taken:
        if isinstance(step, int):
            now += step
            due = timers.due(Millis(now))
            assert set(due) == {key for key, at in model.items() if at <= now}
            assert [model[key] for key in due] == sorted(model[key] for key in due)
            timers.advance(Millis(now))
            model = {key: at for key, at in model.items() if at > now}
        else:
            key, after = step
            timers.put(key, None if after is None else Millis(now + after))
            model.pop(key, None)
            if after is not None:
                model[key] = now + after
        if model:
            wake_at = timers.wake_at()
            assert wake_at is not None
            assert wake_at <= min(model.values())
        assert len(timers) == len(model)


def test_moving_a_deadline_later_does_not_grow_the_queue() -> None:
    timers, key = Timers(), TimerKey("session", "g", "m")
    for at in range(10_000):
        timers.put(key, Millis(at))
    assert timers.wake_at() == 0
    timers.advance(Millis(5_000))
    assert timers.wake_at() == 9_999
