"""Views are filled from rows, and a default stands in its row only."""

from dataclasses import MISSING, fields
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from penstock.broker.settings import (
    AdmissionSettings,
    BrokerSettings,
    GroupConfig,
    NetworkSettings,
    OffsetsTopicSettings,
    TransactionTopicSettings,
)
from penstock.config.broker_keys import BROKER_KEYS, GROUP_KEYS
from penstock.config.resolve import Row
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.transactions import TransactionSettings
from penstock.log.settings import LogSettings, RetentionSettings
from penstock.upkeep.settings import CompactionSettings, UpkeepSettings
from tests.support.settings import default_settings

OF_A_TOPIC = (AdmissionSettings, CompactionSettings, LogSettings, RetentionSettings)
OF_A_BROKER = (
    BrokerSettings,
    ControllerSettings,
    GroupSettings,
    NetworkSettings,
    OffsetsTopicSettings,
    TransactionSettings,
    TransactionTopicSettings,
    UpkeepSettings,
)
VIEWS = [
    *((view, TOPIC_KEYS) for view in OF_A_TOPIC),
    *((view, BROKER_KEYS) for view in OF_A_BROKER),
    (GroupConfig, GROUP_KEYS),
]
every_view = pytest.mark.parametrize(
    ("view_class", "keys"), VIEWS, ids=[view.__name__ for view, _ in VIEWS]
)


def rows_of(view_class: Any) -> dict[str, tuple[Any, Row]]:
    hints = get_type_hints(view_class, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }


@every_view
def test_every_row_of_a_view_is_in_the_table(view_class: Any, keys: dict[str, Any]) -> None:
    rows = rows_of(view_class)
    assert rows
    assert {row.key for _, row in rows.values()} <= keys.keys()


@every_view
def test_a_view_has_no_defaults(view_class: Any, keys: object) -> None:
    for field in fields(view_class):
        assert field.default is field.default_factory is MISSING, field.name


@every_view
def test_every_field_has_the_type_that_it_declares(view_class: Any, keys: object) -> None:
    rows = rows_of(view_class)
    given = {field.name: None for field in fields(view_class) if field.name not in rows}
    defaults = default_settings(view_class, **given)
    for name, (declared, _) in rows.items():
        value = getattr(defaults, name)
        types = [getattr(each, "__supertype__", each) for each in get_args(declared) or [declared]]
        if get_origin(declared) is tuple:
            types = [tuple]
        assert type(value) in types, name
        assert value is not None or NoneType in types, name
