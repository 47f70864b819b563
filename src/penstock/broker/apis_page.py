"""docs/apis.md: the APIs that the broker serves, generated from the table of handlers."""

from penstock.broker.handler import ApiTable
from penstock.protocol.api import api_name, known_versions


def apis_page(table: ApiTable) -> str:
    """The page as Markdown: one row per API."""
    lines = [
        "# The APIs",
        "",
        "What the broker serves, generated from its table of handlers (`pytest --rewrite`).",
        "ApiVersions advertises these versions; an API that is not listed is not served.",
        "*Defined* are the versions of Apache Kafka 4.3. *Permission* is the right that a client",
        "will need once there are ACLs, in Kafka's terms: on a resource as a whole, or on each one",
        "that the request names, where those that are denied are refused on their own.",
        "",
        "| key | API | versions | defined | permission |",
        "|---|---|---|---|---|",
    ]
    for row in table.rows:
        least, most = row.advertised
        shown = f"{least}-{most}"
        if row.advertised != row.versions:
            shown += f" (served from {row.versions[0]})"
        known = known_versions(row.api)
        name = (api_name(row.api) or "").replace("_", " ")
        defined = f"{known[0]}-{known[-1]}"
        lines.append(f"| {int(row.api)} | {name} | {shown} | {defined} | {row.allow} |")
    return "\n".join(lines) + "\n"
