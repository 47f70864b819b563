"""docs/apis.md: what the broker serves, made from the table that serves it."""

from penstock.broker.handler import ApiTable
from penstock.protocol.kio_codec import api_name, known_versions


def apis_page(table: ApiTable) -> str:
    """The page as Markdown: one row per API, and what Apache Kafka has beside it."""
    lines = [
        "# The APIs",
        "",
        "What the broker serves, made from its table of handlers (`pytest --rewrite` writes this",
        "page anew). A client is told these ranges and takes what both sides know; what is not",
        "listed is not advertised. The last column is what the protocol's definitions know, Apache",
        "Kafka 4.3's own.",
        "",
        "| key | API | versions | known |",
        "|---|---|---|---|",
    ]
    for row in table.rows:
        least, most = row.advertised
        shown = f"{least}-{most}"
        if row.advertised != row.versions:
            shown += f" (served from {row.versions[0]})"
        known = known_versions(row.api_key)
        name = (api_name(row.api_key) or "").replace("_", " ")
        lines.append(f"| {row.api_key} | {name} | {shown} | {known[0]}-{known[-1]} |")
    return "\n".join(lines) + "\n"
