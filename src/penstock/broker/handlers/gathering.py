"""Answering a request that asked machines: one response when all have decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from penstock.broker.handler import Answer, Answered
from penstock.errors import Refused


def when_decided(
    decided: asyncio.Future[Any],
    answer: Callable[[Any], Answered],
    refuse: Callable[[Refused], Answered],
) -> Answer:
    """The response made of what one machine decides: at once if it has, else when it has."""

    def settled(results: list[Any]) -> Answered:
        (result,) = results
        return refuse(result) if isinstance(result, Refused) else answer(result)

    return when_all_decided([decided], settled)


def when_all_decided(
    decided: Sequence[asyncio.Future[Any]], answer: Callable[[list[Any]], Answered]
) -> Answer:
    """The response made of all results, in order; a refusal is a result like any other."""
    waiting = [future for future in decided if not future.done()]
    if not waiting:
        return answer([result_of(future) for future in decided])
    pending: asyncio.Future[Any] = waiting[0].get_loop().create_future()
    left = len(waiting)

    def settle(_: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not pending.done():
            pending.set_result(answer([result_of(future) for future in decided]))

    for future in waiting:
        future.add_done_callback(settle)
    return pending


def result_of(future: asyncio.Future[Any]) -> Any:
    """What a machine has decided: a refusal is a result like any other."""
    refusal = future.exception()
    return refusal if isinstance(refusal, Refused) else future.result()
