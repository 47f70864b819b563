"""The pytest fixtures, as users of Penstock use them."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer as PlainProducer

from penstock.client.errors import DeliveryError

if TYPE_CHECKING:
    from penstock.testing.platform import Platform

pytest_plugins = "pytester"

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pytest.md"
SOON_S = 60  # a client gives up long before
IMPATIENT = {"message.timeout.ms": 1500}


def test_events_with_a_schema_are_written_and_read(
    penstock_schema: Any, penstock_producer: Any, penstock_consumer: Any
) -> None:
    order = penstock_schema(ORDER)
    penstock_producer(value=order).send({"cents": 1250}, key="berlin").result(SOON_S)
    (event,) = penstock_consumer().take(1, SOON_S)
    assert (event.key, event.value) == (b"berlin", {"cents": 1250})


def test_bytes_without_a_schema_are_written_and_read(
    penstock_producer: Any, penstock_consumer: Any
) -> None:
    penstock_producer().send(b"\x00raw").result(SOON_S)
    assert penstock_consumer().take(1, SOON_S)[0].value == b"\x00raw"


def test_a_schema_may_be_in_any_language(penstock: "Platform", penstock_schema: Any) -> None:
    subject = penstock.name("subject")
    proto = 'syntax = "proto3"; message M { int64 cents = 1; }'
    contract = penstock_schema(proto, subject=subject, type="PROTOBUF")
    known = penstock.registry.latest(subject)
    assert (str(known.source.type), known.version) == ("PROTOBUF", 1)
    assert contract.schema == proto


def test_topics_and_names_are_unique(penstock: "Platform", penstock_topic: str) -> None:
    made = penstock.make_topic(partitions=3, settings={"cleanup.policy": "compact"})
    names = [penstock_topic, made, penstock.name("a b/c"), penstock.name("a b/c")]
    assert len(set(names)) == 4
    assert all(name.startswith(f"{penstock.prefix}-") for name in names)
    known = PlainProducer({"bootstrap.servers": penstock.bootstrap}).list_topics(timeout=20).topics
    assert (len(known[penstock_topic].partitions), len(known[made].partitions)) == (1, 3)


def test_a_killed_broker_has_all_that_it_acknowledged_after_a_restart(
    penstock: "Platform", penstock_producer: Any, penstock_consumer: Any
) -> None:
    producer = penstock_producer()
    producer.send(b"before").result(SOON_S)
    penstock.kill()
    penstock.restart()
    producer.send(b"after").result(SOON_S)
    consumer = penstock_consumer()
    seen: list[bytes] = []
    while len(seen) < 2:
        seen += [event.value for event in consumer.take(2, SOON_S)]
    assert seen == [b"before", b"after"]


def test_a_test_may_end_with_a_killed_broker(penstock: "Platform") -> None:
    penstock.kill()


def test_a_test_may_end_with_several_faults(penstock: "Platform") -> None:
    penstock.add_latency(10)
    penstock.fill_disk()
    penstock.pause()


def test_the_next_test_has_a_broker_without_faults(penstock_producer: Any) -> None:
    penstock_producer(settings=IMPATIENT).send(b"x").result(SOON_S)


def test_a_paused_broker_responds_when_it_is_resumed(
    penstock: "Platform", penstock_producer: Any
) -> None:
    producer = penstock_producer()
    producer.send(b"warm").result(SOON_S)
    penstock.pause()
    waiting = producer.send(b"x")
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    penstock.resume()
    waiting.result(SOON_S)


def test_a_full_disk_refuses_writes_until_it_has_space(
    penstock: "Platform", penstock_producer: Any, penstock_consumer: Any
) -> None:
    penstock_producer().send(b"first").result(SOON_S)
    penstock.fill_disk()
    refused = penstock_producer(settings=IMPATIENT).send(b"lost")
    with pytest.raises(DeliveryError):
        refused.result(SOON_S)
    penstock.free_disk()
    penstock_producer().send(b"second").result(SOON_S)
    consumer = penstock_consumer()
    seen: list[bytes] = []
    while len(seen) < 2:
        seen += [event.value for event in consumer.take(2, SOON_S)]
    assert seen == [b"first", b"second"]


def test_latency_is_added_and_removed(penstock: "Platform", penstock_producer: Any) -> None:
    address = penstock.bootstrap
    penstock.add_latency(400)
    assert penstock.bootstrap == address
    slow = penstock_producer().send(b"x")
    with pytest.raises(TimeoutError):
        slow.result(0.3)  # the shortest way there and back takes 800 ms
    slow.result(SOON_S)
    penstock.add_latency(0)
    penstock_producer().send(b"y").result(SOON_S)


def test_a_run_without_the_fixtures_loads_nothing_else_of_penstock() -> None:
    code = "import sys, penstock.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    ours = {name for name in loaded.stdout.split() if name.partition(".")[0] == "penstock"}
    facades = {"penstock", "penstock.lazy", "penstock.version", "penstock.testing"}
    assert ours == {*facades, "penstock.testing.plugin"}
    assert not {"confluent_kafka", "numpy", "pyarrow", "fastapi", "kio"} & set(
        loaded.stdout.split()
    )


def pasted() -> list[str]:
    """Each Python block of the page about pytest."""
    blocks = PAGE.read_text().split("```python\n")[1:]
    return [block.partition("```")[0] for block in blocks]


def test_the_six_lines_of_the_page_work_when_pasted(pytester: pytest.Pytester) -> None:
    (first, *_) = pasted()
    assert len(first.strip().splitlines()) == 6
    pytester.makepyfile(first)
    pytester.runpytest_subprocess("-q", "-W", "error").assert_outcomes(passed=1)


@pytest.mark.slow
def test_every_block_of_the_page_works_when_pasted_and_in_parallel(
    pytester: pytest.Pytester,
) -> None:
    blocks = pasted()
    tests = "\n\n".join(blocks).count("\ndef test_") + 1
    for number, block in enumerate(blocks):
        (pytester.path / f"test_block_{number}.py").write_text(block)
    done = pytester.runpytest_subprocess("-q", "-n", "2", "-p", "no:randomly", timeout=100)
    done.assert_outcomes(passed=tests)
