"""`penstock gen …`: write generated events under a contract."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.connect import check_reachable
from penstock.cli.error_output import fail
from penstock.cli.options import LOCAL_BOOTSTRAP, LOCAL_REGISTRY, AsJson, Bootstrap, RegistryUrl
from penstock.cli.output import show_json
from penstock.errors import Refused
from penstock.extras import require
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaType
from penstock.serde.errors import ClientError

if TYPE_CHECKING:
    from penstock.lab.order_fleet import WrittenOrders
    from penstock.lab.order_writer import OrderPlan

app: Final = typer.Typer(no_args_is_help=True, help="Write generated events.")


@app.callback()
def _commands() -> None:
    """Write generated events."""


@app.command()
def orders(
    topic: Annotated[str, typer.Argument(help="Topic to write to; it must exist.")],
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Number of orders.")
    ] = 1_000_000,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            "-v",
            help="Version of the Order: v1 to v6, or a change of v1 such as"
            " add-a-required-field; v1,v3 writes them in turn.",
        ),
    ] = "v1",
    seed: Annotated[int, typer.Option("--seed", help="The same seed writes the same orders.")] = 1,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, help="Orders per second, of all instances.")
    ] = None,
    instances: Annotated[
        int,
        typer.Option(
            "--instances", min=1, max=64, help="Processes that write, each to its own partitions."
        ),
    ] = 1,
    language: Annotated[
        SchemaType, typer.Option("--format", help="Schema language.", case_sensitive=False)
    ] = SchemaType.AVRO,
    compression: Annotated[
        str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    bootstrap: Bootstrap = LOCAL_BOOTSTRAP,
    registry: RegistryUrl = LOCAL_REGISTRY,
    as_json: AsJson = False,
) -> None:
    """Write orders: deterministic, of about 512 bytes, in one or several versions."""
    require("arrow")
    from penstock.lab.order_writer import OrderPlan

    if compression.upper() not in Codec.__members__:
        raise typer.BadParameter(f"--compression {compression} is unknown")
    check_reachable(bootstrap)
    plan = OrderPlan(
        topic, _shapes(version), language, seed, count, rate,
        Codec[compression.upper()], instances=instances,
    )  # fmt: skip
    written = _write(plan, bootstrap, registry)
    if as_json:
        show_json(
            {
                "orders": written.orders,
                "seconds": round(written.seconds, 3),
                "cpu_seconds": round(written.cpu_seconds, 3),
            }
        )
        return
    typer.echo(
        f"{written.orders:,} orders in {written.seconds:.1f} s:"
        f" {written.per_second:,.0f} per second, {written.cpu_us:.2f} CPU us each"
    )


def _shapes(version: str) -> tuple[str, ...]:
    """The names of the shapes of the Order that the option names."""
    from penstock.lab.order_schemas import SHAPES

    known = {name.replace(" ", "-"): name for name in SHAPES}
    names = version.split(",")
    if not set(names) <= set(known):
        raise typer.BadParameter(f"--version {version}: choose from {', '.join(known)}")
    return tuple(known[name] for name in names)


def _write(plan: "OrderPlan", bootstrap: str, registry: str) -> "WrittenOrders":
    """Write with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from penstock.lab.lab_platform import LabError
    from penstock.lab.order_fleet import write_orders

    console = Console(stderr=True)
    try:
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"orders to {plan.topic}", total=plan.count)
            return write_orders(
                plan, bootstrap, registry, lambda done: progress.update(task, completed=done)
            )
    except (ClientError, LabError, Refused) as failure:
        fail(str(failure))
