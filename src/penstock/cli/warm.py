"""`penstock warm`: compile all kernels now instead of at their first use."""

import time

import typer

from penstock.cli.options import AsJson
from penstock.cli.output import show_json


def warm(
    as_json: AsJson = False,
) -> None:
    """Compile the kernels for columns and compaction ahead of their first use.

    The result is cached: beside the installed package if that can be written to, else in the
    user's cache folder, or in NUMBA_CACHE_DIR if that is set. Run it again after an upgrade.
    """
    from penstock.columns.warm import warm as compile_all

    start_s = time.perf_counter()
    kernels = list(compile_all())
    seconds = round(time.perf_counter() - start_s, 1)
    compiled = sum(kernel.is_compiled for kernel in kernels)
    cached = all(kernel.is_cached for kernel in kernels)
    if as_json:
        document = {
            "kernels": len(kernels),
            "compiled": compiled,
            "cached": cached,
            "seconds": seconds,
        }
        show_json(document)
        return
    typer.echo(f"{len(kernels)} kernels are ready: {compiled} compiled in {seconds} s")
    if not cached:
        typer.echo(
            "they are not cached, so each process compiles them again: set NUMBA_CACHE_DIR to a "
            "folder that can be written to",
            err=True,
        )
