"""The page on compatibility, written from the results of the lab, and the list of its runs.

Every number on the page is taken from a result file; the sentences are here. The page in the docs
is exactly what this module makes of the results beside it. Of `rollout` and `replay` it cites the
run at full scale if there is one.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.lab.order_schemas import CHANGES

_LEVELS: Final = ("BACKWARD", "FORWARD", "FULL")
_NEEDED: Final = ("matrix", "order", "bakeoff", "aliases", "overhead", "fuzz", "rollout", "replay")


def load_results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results in a folder, by the name of their files."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def missing_results(results: Mapping[str, Any]) -> list[str]:
    """What must be run before the page can be written."""
    return [name for name in _NEEDED if name not in results]


def findings_page(results: Mapping[str, dict[str, Any]]) -> str:
    """The whole page."""
    numbers = {name: result["numbers"] for name, result in results.items()}
    rollout, replay = (_largest(results, name) for name in ("rollout", "replay"))
    sections = [
        _HEAD,
        _matrix(numbers["matrix"]),
        _orders(numbers["order"], numbers[rollout], rollout),
        _defaults(numbers["matrix"], results["matrix"]["config"], numbers["bakeoff"]),
        _recommendations(numbers["bakeoff"], numbers["aliases"]),
        _post_mortem(numbers["order"]),
        _costs(numbers["overhead"], numbers[replay], replay, numbers["fuzz"]),
    ]
    return "\n".join(sections)


def _largest(results: Mapping[str, Any], name: str) -> str:
    full = f"{name}-full"
    return full if full in results else name


def index_with_runs(index: str, results: Mapping[str, dict[str, Any]]) -> str:
    """The index of the lab with the list of runs that are not at the default scale."""
    before, mark, rest = index.partition(_RUNS_START)
    assert mark, f"the index has the line {_RUNS_START}"
    _, end, after = rest.partition(_RUNS_END)
    rows = [
        _row([f"[{stem}]({stem}.md)", f"{one['seconds'] / 60:.0f} min",
              f"{sum(claim['holds'] for claim in one['claims'])} of {len(one['claims'])}"])
        for stem, one in results.items()
        if stem != one["name"]
    ]  # fmt: skip
    table = [_row(["run", "took", "claims that hold"]), _row(["---"] * 3), *rows]
    return "\n".join([f"{before}{mark}", *(table if rows else ["None yet."]), f"{end}{after}"])


_RUNS_START: Final = "<!-- runs: written by `penstock lab findings` -->"
_RUNS_END: Final = "<!-- end of runs -->"


_HEAD: Final = """\
# Compatibility: what the lab found

Written by `penstock lab findings` from the results of [the lab](lab/index.md); a test compares
this page with them, and looks up every number below in the result files. The event is an order with
line items and an enum, in Avro, Protobuf and JSON Schema.
"""


def _matrix(numbers: Mapping[str, Any]) -> str:
    lines = [
        "## Which change passes at which level\n",
        "*accepted* and *refused* are the registry's answer. A mark (!) says that events behave"
        " otherwise: *accepted!* means that a value arrives different, *refused!* that the events"
        f" of the lab could be read all the same. Answer and events agree in {numbers['agreeing']}"
        f" of {numbers['cells']} cells, the transitive levels included; [matrix](lab/matrix.md)"
        " gives the reasons for the others, and the exact errors.\n",
        _row(["change", *(f"{name}: {level}" for name in _LANGUAGES for level in _LEVELS)]),
        _row(["---"] * (1 + len(_LANGUAGES) * len(_LEVELS))),
    ]
    for change in CHANGES:
        cells = [
            numbers[f"{language} {change} {level}"]
            for language in _LANGUAGES.values()
            for level in _LEVELS
        ]
        lines.append(_row([change, *cells]))
    return "\n".join([*lines, ""])


_LANGUAGES: Final = {"Avro": "AVRO", "Protobuf": "PROTOBUF", "JSON": "JSON"}


def _orders(order: Mapping[str, Any], rollout: Mapping[str, Any], page: str) -> str:
    rows = [
        ("BACKWARD", "consumers first", "new readers read old events; old readers cannot read new"
         " ones"),
        ("FORWARD", "producers first, then wait until old events are read", "old readers read new"
         " events; new readers cannot read old ones"),
        ("FULL", "any", "both directions work"),
    ]  # fmt: skip
    lines = [
        "## The order of an upgrade\n",
        _row(["level", "order", "why", "errors, consumers first", "errors, producers first"]),
        _row(["---"] * 5),
    ]
    lines += [
        _row([level, safe, why, *(str(order[f"{level} {side} first"])
              for side in ("consumers", "producers"))])
        for level, safe, why in rows
    ]  # fmt: skip
    full = rollout["FULL"]
    lines.append(
        f"\nThe errors are from [order](lab/order.md): the wrong order breaks, the right one does"
        f" not. Under load ([{page}](lab/{page}.md)), {full['events']:,} events were written"
        f" under FULL while every process was upgraded in arbitrary order: {full['errors']} errors,"
        f" with both versions in use for {full['coexistence_s']} s. BACKWARD in its order:"
        f" {rollout['BACKWARD']['errors']} errors in {rollout['BACKWARD']['events']:,} events;"
        f" FORWARD: {rollout['FORWARD']['errors']} in {rollout['FORWARD']['events']:,}.\n"
    )
    return "\n".join(lines)


def _defaults(
    matrix: Mapping[str, Any], config: Mapping[str, Any], bakeoff: Mapping[str, Any]
) -> str:
    required = "add a required field"
    return f"""\
## Avro defaults and Protobuf presence

In Avro a field without a default is required of every writer: BACKWARD says
*{matrix[f"AVRO {required} BACKWARD"]}* to a new one. In proto3 nothing is required, so Protobuf
says *{matrix[f"PROTOBUF {required} BACKWARD"]}*, and a reader gets an empty value where the writer
had none: it cannot tell "empty" from "not sent" unless the field is `optional`. Of
{config["changes"]} changes, {bakeoff["PROTOBUF"]["changes"]} are safe in both directions in
Protobuf, {bakeoff["AVRO"]["changes"]} in Avro and {bakeoff["JSON"]["changes"]} in JSON Schema.
That is tolerance, not safety: under FORWARD `int to long` is
*{matrix["PROTOBUF int to long FORWARD"]}* in Protobuf, where an old reader drops the
upper half of a large number without an error, and
*{matrix["AVRO int to long FORWARD"]}* in Avro.
"""


def _recommendations(bakeoff: Mapping[str, Any], aliases: Mapping[str, Any]) -> str:
    prepared = aliases["aliases in both, readers prepared first"]
    rows = [
        ("events between teams that deploy on their own", "Avro", "FULL_TRANSITIVE",
         "any order, any age of events"),
        ("a topic that is kept and replayed for years", "Avro", "BACKWARD_TRANSITIVE",
         "the newest reader reads everything"),
        ("services that share .proto files with RPC", "Protobuf", "FULL",
         "numbers never change; mark fields optional"),
        ("events that browsers and partners write", "JSON Schema", "FORWARD",
         f"readable as it is, {bakeoff['JSON']['bytes']} bytes instead of"
         f" {bakeoff['AVRO']['bytes']}"),
    ]  # fmt: skip
    lines = [
        "## What to use\n",
        _row(["use case", "language", "level", "why"]),
        _row(["---"] * 4),
        *map(_row, rows),
        "\nTo rename a field in Avro, first give the readers an alias for the new name, then rename"
        " with an alias for the old one. New readers of old events:"
        f" *{prepared['new reads old']}*; old readers of new events: *{prepared['old reads new']}*."
        " An alias in the new schema alone helps new readers only; see"
        " [aliases](lab/aliases.md).\n",
    ]
    return "\n".join(lines)


def _post_mortem(order: Mapping[str, Any]) -> str:
    return f"""\
## Post-mortem: the required field

*What happened.* The required field `channel` was added to the order. The subject had FORWARD, so
the registry accepted the schema, rightly: old readers can skip the field. The consumers were
upgraded first, as is right under BACKWARD. In [the lab's run](lab/order.md) of exactly this,
{order["FORWARD consumers first"]} reads failed, because new readers met events without `channel`;
with the producers first there were {order["FORWARD producers first"]}.

*Why nothing stopped it.* A level permits a change only together with an order of upgrades. The
registry sees schemas, not deployments.

*What prevents it.* Give the field a default, which makes the change FULL and the order irrelevant
({order["FULL consumers first"]} and {order["FULL producers first"]} errors). Where that is
impossible: upgrade producers first, wait until the old events are read or expired, then upgrade
consumers. Readers that are declared (`Consumer(reader=…)`) make the registry refuse a change that
breaks them, and `penstock contract check` names the safe order before the change is merged.
"""


def _costs(
    overhead: Mapping[str, Any], replay: Mapping[str, Any], page: str, fuzz: Mapping[str, Any]
) -> str:
    encode, decode = overhead["encode, batches"], overhead["decode, batches"]
    return f"""\
## What it costs

A contract costs {encode["p50_us"]} us per event to encode and {decode["p50_us"]} us to decode in
batches (medians, [overhead](lab/overhead.md)), and {overhead["requests_per_id"]} request to the
registry per schema and process. A replay of {replay["events"]:,} events of mixed versions
through Spark decoded {replay["decoded"]:,} of them, with {replay["errors"]} errors
([{page}](lab/{page}.md)). Of {fuzz["damaged"]:,} damaged frames {fuzz["refused"]:,} were refused,
and all {fuzz["read"]:,} good ones between them were read ([fuzz](lab/fuzz.md)).
"""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
