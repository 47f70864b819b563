"""What a person changes through the pages, checked at the server."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from penstock.serde.errors import Reason
from penstock.serde.frame import write_prefix
from penstock.testing.platform import Platform
from tests.console.conftest import quarantine
from tests.console.pages.conftest import BOTH_SERVERS, OpenPage, Watch, create_topic

pytestmark = pytest.mark.slow
SERVERS = BOTH_SERVERS
WAIT_S = 20
KEEP_VERDICTS = """() => {
  const verdict = document.querySelector(".verdict");
  window.seen = [];
  new MutationObserver(() => seen.push(verdict.textContent)).observe(verdict, { childList: true });
}"""


@pytest.fixture
def http(console: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.registry_url, timeout=30) as client:
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def make(http: httpx.Client, topic: str, records: int = 0) -> str:
    create_topic(http, topic)
    if records:
        body = {"records": [{"key": f"k{n}", "value": {"n": n}} for n in range(records)]}
        http.post(f"/topics/{topic}/produce", json=body).raise_for_status()
    return topic


def test_a_topic_is_created_with_its_settings(open_page: OpenPage, http: httpx.Client) -> None:
    page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    create = page.get_by_role("button", name="Create", exact=True)
    assert create.is_disabled()
    page.get_by_label("Name").fill("created")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Settings").fill("cleanup.policy=compact")
    create.click()
    page.get_by_role("heading", name="created").wait_for()
    found = http.get("/topics/created").json()
    assert len(found["partitions"]) == 2
    assert found["configs"]["cleanup.policy"] == "compact"


def test_a_refusal_of_the_server_is_shown_in_the_dialog(open_page: OpenPage, watch: Watch) -> None:
    watch.expected.append("409")
    page = open_page("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Create", exact=True).click()
    assert "orders" in page.locator("dialog .problem:not(:empty)").inner_text()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


def test_a_record_is_written_through_the_form_of_its_schema(
    open_page: OpenPage, http: httpx.Client
) -> None:
    topic = make(http, "formed")
    latest = http.get("/subjects/orders-value/versions/latest").json()["schema"]
    path = f"/subjects/{topic}-value/versions"
    http.post(path, json={"schema": latest}).raise_for_status()
    page = open_page(f"/topics/{topic}/produce")
    page.get_by_label("order_id").fill("from-a-form")
    page.get_by_label("city").fill("oslo")
    page.get_by_label("cents").fill("9007199254740993")
    page.get_by_label("status").select_option("PAID")
    page.get_by_label("Key", exact=True).fill("customer-1")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("The record is valid").wait_for()
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("link", name="Show it").click()
    page.locator(".detail pre").wait_for()
    text = page.locator(".detail pre").inner_text()
    assert '"order_id": "from-a-form"' in text
    assert '"cents": "9007199254740993"' in text  # beyond what a number of a page can hold
    assert '"note": null' in text


def test_a_value_that_does_not_fit_the_schema_is_refused_by_the_server(
    open_page: OpenPage,
) -> None:
    page = open_page("/topics/orders/produce")
    page.get_by_label("order_id").fill("x")
    page.get_by_label("cents").fill("many")
    page.get_by_role("button", name="Check").click()
    assert "cents" in page.locator(".verdict.bad").inner_text()


def test_a_record_is_produced_again(open_page: OpenPage, http: httpx.Client) -> None:
    topic = make(http, "again", 1)
    page = open_page(f"/topics/{topic}/records?open=0%3A0")
    page.get_by_role("link", name="Produce again").click()
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("link", name="Show it").wait_for()
    events = http.get(f"/topics/{topic}/partitions/0/events?offset=0").json()["events"]
    assert [(each["key"], each["value"]) for each in events] == [("k0", {"n": 0})] * 2


def test_a_setting_is_checked_while_it_is_typed_and_then_changed(
    open_page: OpenPage, http: httpx.Client, watch: Watch
) -> None:
    watch.expected.append("400")
    topic = make(http, "settings")
    page = open_page(f"/topics/{topic}/config")
    page.locator(".vrow", has_text="retention.ms").filter(has_not_text="delete.").first.wait_for()
    page.get_by_label("Filter settings").fill("max.message.bytes")
    page.locator(".vrow").first.click()
    page.get_by_label("Value").fill("-7")
    page.locator("dialog .verdict.bad").wait_for()
    assert page.get_by_role("button", name="Save").is_disabled()
    page.get_by_label("Value").fill("2000000")
    page.locator("dialog .verdict.good").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("set for this topic").wait_for()
    assert http.get(f"/topics/{topic}").json()["configs"]["max.message.bytes"] == "2000000"


def test_a_topic_is_deleted_only_after_its_name_was_typed(
    open_page: OpenPage, http: httpx.Client
) -> None:
    topic = make(http, "doomed")
    page = open_page(f"/topics/{topic}/partitions")
    page.get_by_role("button", name="Delete topic").click()
    confirm = page.locator("dialog").get_by_role("button", name="Delete topic")
    page.get_by_label("Type doomed to confirm").fill("doome")
    assert confirm.is_disabled()
    page.get_by_label("Type doomed to confirm").fill("doomed")
    confirm.click()
    page.get_by_role("heading", name="Topics").wait_for()
    until(lambda: http.get(f"/topics/{topic}").status_code == 404)


def test_offsets_are_reset_after_a_table_of_before_and_after(
    open_page: OpenPage, http: httpx.Client
) -> None:
    topic = make(http, "to-reset", 10)
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 7}]}
    http.put("/consumer-groups/a group%2F1/offsets", json=body).raise_for_status()
    page = open_page("/groups/a%20group%2F1/reset")
    page.get_by_role("button", name="Show before and after").click()
    page.get_by_text("7 records read again").wait_for()
    page.get_by_role("button", name="Reset these offsets").click()
    page.get_by_label("Type a group/1 to confirm").fill("a group/1")
    page.locator("dialog").get_by_role("button", name="Reset offsets").click()
    page.get_by_role("heading", name="a group/1").wait_for()
    assert page.url.endswith("/console/groups/a%20group%2F1")
    (committed,) = http.get("/consumer-groups/a group%2F1/offsets").json()["offsets"]
    assert committed["offset"] == 0


def test_a_list_is_sorted_and_filtered_in_its_address(
    open_page: OpenPage, http: httpx.Client
) -> None:
    for number in (3, 9, 5):
        make(http, f"sorted-{number}", number)
    page = open_page("/topics?q=sorted-")
    page.locator(".vrow").nth(2).wait_for()
    page.get_by_role("button", name="Records").click()
    page.get_by_role("button", name="Records").click()
    names = [text.split()[0] for text in page.locator(".vrow").all_inner_texts()]
    assert names == ["sorted-9", "sorted-5", "sorted-3"]
    page.get_by_label("Filter topics").fill("PAY")
    page.wait_for_url("**/topics?q=PAY&sort=-records")
    page.reload()
    page.locator(".vrow").first.wait_for()
    assert [text.split()[0] for text in page.locator(".vrow").all_inner_texts()] == ["payments"]


def test_times_switch_between_utc_and_local(open_page: OpenPage) -> None:
    page = open_page("/topics/payments/records")
    page.locator(".vrow").first.wait_for()
    page.get_by_role("button", name="Time zone: UTC").click()
    page.get_by_role("button", name="Time zone: local").wait_for()
    page.get_by_text("From (local time)").wait_for()
    page.reload()
    page.get_by_role("button", name="Time zone: local").wait_for()


def test_a_theme_is_kept(open_page: OpenPage) -> None:
    page = open_page("/topics")
    page.locator(".vrow").first.wait_for()
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate(background) != light
    page.reload()
    page.locator(".vrow").first.wait_for()
    assert page.evaluate(background) != light


def test_a_breaking_change_is_shown_with_an_event_and_what_to_do(open_page: OpenPage) -> None:
    page = open_page("/schemas/orders-value/propose")
    schema = page.get_by_label("Schema")
    schema.fill(schema.input_value().replace('"cents"', '"euros"'))
    page.get_by_role("button", name="Check").click()
    page.get_by_text("Breaking. The registry would refuse this version.").wait_for()
    assert '"cents":' in page.locator(".findings pre").first.inner_text()
    schema.fill("{")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("This is not a valid schema.").wait_for()


def test_a_redrive_says_first_what_it_would_send(open_page: OpenPage) -> None:
    page = open_page("/quarantine/orders")
    page.locator(".event").first.click()
    page.get_by_role("link", name="orders, partition").first.wait_for()
    assert page.get_by_role("button", name="Send again").is_disabled()
    page.get_by_role("button", name="Show what would be sent").click()
    page.locator(".verdict.good", has_text="0 records would be sent").wait_for()
    assert page.get_by_role("button", name="Send again").is_disabled()


def test_quarantined_records_are_sent_again_with_progress(
    open_page: OpenPage, console: Platform, http: httpx.Client
) -> None:
    topic = make(http, "poisoned")
    schema = {"schema": '"string"'}
    known = http.post(f"/subjects/{topic}-value/versions", json=schema).json()["id"]
    event = (Reason.UNKNOWN_SCHEMA, write_prefix(known) + b"\x02a")
    quarantine(console.bootstrap, topic, [event] * 40)
    page = open_page(f"/quarantine/{topic}")
    page.locator(".event").first.wait_for()
    page.evaluate(KEEP_VERDICTS)
    send = page.get_by_role("button", name="Send again")
    page.get_by_role("button", name="Show what would be sent").click()
    page.locator(".verdict.good", has_text="40 records would be sent").wait_for()
    page.get_by_label("Of group").fill("another")
    assert send.is_disabled()  # what is sent was counted before
    page.get_by_label("Of group").fill("billing")
    page.get_by_role("button", name="Show what would be sent").click()
    page.locator(".verdict.good", has_text="40 records would be sent").wait_for()
    send.click()
    page.locator(".verdict.good", has_text="40 records sent").wait_for()
    assert any(text.startswith("Sending: ") for text in page.evaluate("() => seen"))
    page.get_by_text("No record here.").wait_for()
    found = http.post(f"/topics/{topic}/search", json={"limit": 100}).json()
    assert [record["value"]["data"] for record in found["records"]] == ["a"] * 40


def test_a_query_is_cancelled_by_its_button(open_page: OpenPage) -> None:
    page = open_page("/sql")
    page.get_by_label("Query").fill("select count(*) from range(1000000000000) a, range(1000000) b")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("Running for").wait_for()
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as cancelled:
        page.get_by_role("button", name="Cancel").click()
    assert cancelled.value.status == 204
    page.get_by_text("The query was cancelled.").wait_for()
    assert page.get_by_role("button", name="Run").is_enabled()
    page.get_by_label("Query").fill("select 42 as answer")
    page.get_by_role("button", name="Run").click()
    page.locator(".vrow", has_text="42").wait_for()


def test_rows_of_a_query_are_shown_and_errors_too(open_page: OpenPage, watch: Watch) -> None:
    watch.expected.append("400")
    page = open_page("/sql")
    page.get_by_label("Query").fill("select count(*) as n from payments")
    page.keyboard.press("Control+Enter")
    page.locator(".vrow", has_text="750").wait_for()
    page.get_by_label("Query").fill("select nothing from payments")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("The query failed.").wait_for()


def test_a_query_reads_a_range_of_offsets_or_times(open_page: OpenPage, http: httpx.Client) -> None:
    topic = make(http, "ranged", 10)
    page = open_page(f"/sql?q=select%20count(*)%20as%20n%20from%20{topic}&from=3&until=7")
    page.locator(".vrow", has_text="4").wait_for()
    assert page.get_by_label("From: offset").input_value() == "3"
    page.get_by_label("Until", exact=True).select_option("The end")
    page.get_by_role("button", name="Run").click()
    page.locator(".vrow", has_text="7").wait_for()
    page.get_by_label("From", exact=True).select_option("Time")
    page.get_by_label("From: time").fill("2100-01-01T00:00:00")
    page.get_by_role("button", name="Run").click()
    page.locator(".vrow", has_text="0").wait_for()
    assert "from=%404102444800000" in page.url
    page.reload()
    page.locator(".vrow", has_text="0").wait_for()
    assert page.get_by_label("From: time").input_value().startswith("2100-01-01T00:00")


def test_a_bad_filter_says_where_it_is_wrong(open_page: OpenPage, watch: Watch) -> None:
    watch.expected.append("400")
    page = open_page("/topics/orders/records?filter=value.cents%20%3E%3E%203")
    page.get_by_text("The filter cannot be used.").wait_for()
    assert "column" in page.locator(".state.failed").inner_text()
