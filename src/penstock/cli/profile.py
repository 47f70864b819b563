"""`penstock profile …`: name the clusters that commands use."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.error_output import fail
from penstock.cli.options import AsJson
from penstock.cli.output import cell, show_json, show_table
from penstock.cli.profiles import (
    KEYS,
    ProfileError,
    Profiles,
    is_valid_name,
    profiles_path,
    read_profiles,
    write_profiles,
)

app: Final = typer.Typer(
    help="Name the clusters that commands use: which broker, registry and login.",
    no_args_is_help=True,
)
ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a profile.")]


@app.command()
def create(
    name: ProfileName,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", help="A broker of the cluster: host:port.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option("--registry", "-r", help="URL of the schema registry.")
    ] = None,
    kafka_config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            resolve_path=True,
            help="Properties file with what the cluster requires of clients: TLS, login.",
        ),
    ] = None,
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace one that exists.")
    ] = False,
) -> None:
    """Create a profile. What it does not name has the default of each command."""
    given = {"bootstrap": bootstrap, "registry": registry, "kafka_config": kafka_config}
    values = {key: str(value) for key, value in given.items() if value is not None}
    if not is_valid_name(name):
        raise typer.BadParameter(f"{name!r}: use letters, digits, '.', '_' and '-'")
    if not values:
        raise typer.BadParameter("name at least one of --bootstrap, --registry, --kafka-config")
    profiles = _read()
    if name in profiles.by_name and not overwrite:
        fail(f"profile {name} exists; replace it with --overwrite.")
    profiles.by_name[name] = values
    profiles.current = name if use_it else profiles.current
    _write(profiles)
    typer.echo(f"created {name}{', which is used from now on' if use_it else ''}")


@app.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; * marks the one in use."""
    profiles = _read()
    rows = [
        {
            "profile": name,
            "in_use": name == profiles.current,
            **{key.name: values.get(key.name) for key in KEYS},
        }
        for name, values in sorted(profiles.by_name.items())
    ]
    if as_json:
        show_json(rows)
    elif rows:
        titles = ["", "PROFILE", "BOOTSTRAP", "REGISTRY", "KAFKA CONFIG"]
        shown = [["*" if row.pop("in_use") else "", *map(cell, row.values())] for row in rows]
        show_table(titles, shown)
    else:
        typer.echo("No profiles. Create one with `penstock profile create NAME --bootstrap …`.")


@app.command()
def use(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of a profile.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
) -> None:
    """Use a profile in all commands from now on."""
    if (name is None) != none:
        raise typer.BadParameter("name a profile, or none with --none")
    profiles = _read()
    if name is not None:
        _find(profiles, name)
    profiles.current = name
    _write(profiles)
    typer.echo("no profile is in use" if name is None else f"using {name}")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of a profile.", show_default="the one in use"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a profile."""
    profiles = _read()
    chosen = name or profiles.current
    if chosen is None:
        fail("no profile is in use; `penstock profile list` lists them.")
    values = _find(profiles, chosen)
    if as_json:
        show_json({"profile": chosen, **values})
        return
    typer.echo(f"profile: {chosen}")
    for key, value in values.items():
        typer.echo(f"{key.replace('_', ' ')}: {value}")


@app.command()
def delete(name: ProfileName) -> None:
    """Delete a profile."""
    profiles = _read()
    _find(profiles, name)
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    _write(profiles)
    typer.echo(f"deleted {name}")


def _read() -> Profiles:
    try:
        return read_profiles(profiles_path())
    except ProfileError as error:
        fail(str(error))


def _find(profiles: Profiles, name: str) -> dict[str, str]:
    try:
        return profiles.find(name)
    except ProfileError as error:
        fail(str(error))


def _write(profiles: Profiles) -> None:
    path = profiles_path()
    try:
        write_profiles(path, profiles)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
