"""Every method of confluent-kafka's registry clients, the plain one and the asynchronous one."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel

Record = Callable[..., str]
WITHOUT_REQUESTS = {
    "clear_caches",
    "clear_latest_caches",
    "close",
    "aclose",
    "config",
    "new_client",
}
ASSOCIATIONS = {"create_association", "delete_associations", "get_associations_by_resource_name"}


class Caller:
    """Calls methods of either client by name, and remembers which."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.called: set[str] = set()

    async def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.called.add(name)
        answer = getattr(self.client, name)(*arguments, **options)
        return await answer if inspect.isawaitable(answer) else answer

    async def declined(self, name: str, *arguments: Any) -> int:
        with pytest.raises(SchemaRegistryError) as caught:
            await self(name, *arguments)
        return int(caught.value.error_code)


async def use_versions(call: Caller, subject: str, record: Record) -> None:
    first, second = Schema(record("a:int"), "AVRO"), Schema(record("a:int", "b:int=1"), "AVRO")
    schema_id = await call("register_schema", subject, first)
    assert (await call("get_schema", schema_id)).schema_type == "AVRO"
    found = await call("lookup_schema", subject, first)
    assert (found.subject, found.schema_id, found.version) == (subject, schema_id, 1)
    assert (await call("get_schema_by_guid", found.guid)).schema_str
    assert await call("test_compatibility", subject, second)
    assert await call("test_compatibility_all_versions", subject, second)
    assert not await call("test_compatibility", subject, Schema(record("a:int", "c:int"), "AVRO"))
    tagged = Schema(
        record("a:int", "b:int=1"),
        "AVRO",
        metadata=Metadata(None, MetadataProperties({"owner": "till"}), None),
    )
    full = await call("register_schema_full_response", subject, tagged)
    assert (await call("get_latest_version", subject)).version == 2
    assert (await call("get_version", subject, 2)).schema_id == full.schema_id
    assert (await call("get_latest_with_metadata", subject, {"owner": "till"})).version == 2
    assert await call("get_versions", subject) == [1, 2]
    assert subject in await call("get_subjects")
    assert subject in await call("get_subjects_by_schema_id", schema_id)
    places = await call("get_schema_versions", schema_id)
    assert (subject, 1) in {(one.subject, one.version) for one in places}
    assert set(await call("get_schema_types")) == {"AVRO", "JSON", "PROTOBUF"}
    assert "." in await call("get_contexts")


async def use_references(call: Caller, subject: str, record: Record) -> None:
    outer = Schema(record("r:R", name="Outer"), "AVRO", [SchemaReference("R", subject, 1)])
    schema_id = await call("register_schema", f"{subject}/outer", outer)
    assert await call("get_referenced_by", subject, 1) == [schema_id]
    await call("delete_subject", f"{subject}/outer")
    assert await call("delete_subject", f"{subject}/outer", permanent=True) == [1]


async def use_settings(call: Caller, subject: str) -> None:
    assert await call("set_compatibility", subject, "FULL") is not None
    assert await call("get_compatibility", subject) == "FULL"
    level = ConfigCompatibilityLevel.FORWARD
    await call("set_config", subject, ServerConfig(level, compatibility_group="major"))
    config = await call("get_config", subject)
    assert (config.compatibility_level, config.compatibility_group) == (level, "major")
    await call("delete_config", subject)
    assert await call("update_mode", subject, "READONLY") is not None
    assert await call("get_mode", subject) == "READONLY"
    await call("delete_mode", subject)
    assert await call.declined("get_mode", subject) == 40409
    await call("update_global_mode", "READWRITE")
    assert await call("get_global_mode") == "READWRITE"


async def use_everything(call: Caller, subject: str, record: Record) -> None:
    await use_versions(call, subject, record)
    await use_references(call, subject, record)
    await use_settings(call, subject)
    assert await call("delete_version", subject, 1) == 1
    assert await call("delete_subject", subject) == [2]
    assert await call("delete_subject", subject, permanent=True) == [1, 2]
    await call("clear_caches")
    assert await call.declined("get_latest_version", subject) == 40401
    assert await call.declined("get_associations_by_resource_name", "orders", "-") == 404
    offered = {name for name in dir(call.client) if not name.startswith("_")}
    assert offered - call.called <= WITHOUT_REQUESTS | ASSOCIATIONS


def test_the_plain_client(node: Any, subject: str, record: Record) -> None:
    with SchemaRegistryClient({"url": node.url}) as client:
        asyncio.run(use_everything(Caller(client), subject, record))


def test_the_asynchronous_client(node: Any, subject: str, record: Record) -> None:
    async def use() -> None:
        async with AsyncSchemaRegistryClient({"url": node.url}) as client:
            await use_everything(Caller(client), subject, record)

    asyncio.run(use())
