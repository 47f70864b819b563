"""The registry's HTTP interface as clients and tools meet it."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

Record = Callable[..., str]
MEDIA = "application/vnd.schemaregistry.v1+json"


def register(http: httpx.Client, subject: str, schema: str, **more: Any) -> dict[str, Any]:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def code(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


def test_a_schema_is_registered_and_found_every_way(
    http: httpx.Client, subject: str, record: Record
) -> None:
    made = register(http, subject, record("a:int"))
    schema_id, guid = made["id"], made["guid"]
    assert set(made) == {"id", "version", "guid", "schemaType"}
    canonical = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    whole = http.get(f"/subjects/{subject}/versions/latest").json()
    assert (whole["subject"], whole["version"], whole["id"]) == (subject, 1, schema_id)
    assert whole["schemaType"] == "AVRO"
    assert http.get(f"/subjects/{subject}/versions/1").json() == whole
    assert http.get(f"/subjects/{subject}/versions/-1").json() == whole
    assert http.get(f"/subjects/{subject}/versions/LATEST").json() == whole
    assert http.get(f"/subjects/{subject}/versions/1/schema").text == canonical
    assert http.get(f"/schemas/ids/{schema_id}").json()["schema"] == canonical
    assert http.get(f"/schemas/ids/{schema_id}/schema").text == canonical
    named = http.get(f"/schemas/ids/{schema_id}", params={"subject": subject}).json()
    assert (named["subject"], named["version"]) == (subject, 1)
    assert subject in http.get(f"/schemas/ids/{schema_id}/subjects").json()
    assert {"subject": subject, "version": 1} in http.get(
        f"/schemas/ids/{schema_id}/versions"
    ).json()
    assert http.get(f"/schemas/guids/{guid}").json()["schema"] == canonical
    assert {"context": ".", "id": schema_id} in http.get(f"/schemas/guids/{guid}/ids").json()
    assert http.post(f"/subjects/{subject}", json={"schema": record("a:int")}).json() == whole
    assert http.get(f"/schemas/ids/{schema_id}?fetchMaxId=True").json()["maxId"] >= schema_id


def test_answers_have_the_type_that_was_asked_for(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, '"string"')["id"]
    for path in (f"/schemas/ids/{schema_id}", "/subjects"):
        for accept, given in (
            ("*/*", MEDIA),
            ("application/json", "application/json"),
            (f"text/plain, {MEDIA}, application/json", MEDIA),
            ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        ):
            answer = http.get(path, headers={"accept": accept})
            assert answer.headers["content-type"] == given
        refused = http.get(path, headers={"accept": "image/png"})
        assert code(refused) == (406, 406)


def test_a_body_of_another_type_is_refused(http: httpx.Client, subject: str) -> None:
    answer = http.post(f"/subjects/{subject}/versions", data={"schema": "x"})
    assert code(answer) == (415, 415)
    octets = {"content-type": "application/octet-stream"}
    body = json.dumps({"schema": '"int"'}).encode()
    assert http.post(f"/subjects/{subject}/versions", content=body, headers=octets).is_success


@pytest.mark.parametrize(
    "name", ["with/slash", "a b", "ümlaut", "per%cent", "plus+sign", "a%2Fb", "q?x#y", "dot.s"]
)
def test_a_subject_is_one_segment_whatever_is_in_it(http: httpx.Client, name: str) -> None:
    from urllib.parse import quote

    path = f"/subjects/{quote(name, safe='')}"
    assert http.post(f"{path}/versions", json={"schema": '"int"'}).is_success
    assert http.get(f"{path}/versions/").json() == [1]
    assert name in http.get("/subjects/").json()
    assert http.get(f"{path}/versions/1").json()["subject"] == name


def test_slashes_at_the_end_do_not_matter(http: httpx.Client, subject: str) -> None:
    register(http, subject, '"int"')
    for path in ("/config", "/mode", "/subjects", "/contexts", f"/subjects/{subject}/versions"):
        assert http.get(f"{path}/").json() == http.get(path).json()


def test_booleans_are_read_in_any_case(http: httpx.Client, subject: str) -> None:
    register(http, subject, '"int"')
    http.delete(f"/subjects/{subject}")
    assert subject not in http.get("/subjects?deleted=False").json()
    assert subject in http.get("/subjects?deleted=True").json()
    assert subject in http.get("/subjects?deletedOnly=TRUE").json()
    assert subject not in http.get("/subjects?deleted=maybe").json()


def test_lists_come_in_pages(http: httpx.Client, subject: str) -> None:
    http.put(f"/config/{subject}", json={"compatibility": "NONE"})
    for kind in ("int", "long", "string"):
        register(http, subject, f'"{kind}"')
    path = f"/subjects/{subject}/versions"
    assert http.get(path, params={"offset": 1, "limit": 1}).json() == [2]
    assert http.get(path, params={"offset": 1, "limit": -1}).json() == [2, 3]
    assert http.get(path, params={"offset": 9}).json() == []
    assert code(http.get(path, params={"offset": "x"})) == (404, 404)
    found = http.get("/schemas", params={"subjectPrefix": subject, "latestOnly": "true"}).json()
    assert [(one["subject"], one["version"]) for one in found] == [(subject, 3)]
    assert len(http.get("/schemas", params={"subjectPrefix": subject}).json()) == 3


def test_what_is_not_there_is_said_in_confluents_words(http: httpx.Client, subject: str) -> None:
    missing = http.get("/subjects/unknown/versions/1")
    assert missing.json() == {"error_code": 40401, "message": "Subject 'unknown' not found."}
    register(http, subject, '"int"')
    version = http.get(f"/subjects/{subject}/versions/9")
    assert version.json() == {"error_code": 40402, "message": "Version 9 not found."}
    schema = http.get("/schemas/ids/99999999")
    assert schema.json() == {"error_code": 40403, "message": "Schema 99999999 not found"}
    assert code(http.get("/schemas/guids/00000000-0000-0000-0000-000000000000")) == (404, 40403)
    assert code(http.get("/schemas/guids/x")) == (404, 40403)
    other = http.post(f"/subjects/{subject}", json={"schema": '"long"'})
    assert other.json() == {"error_code": 40403, "message": "Schema not found"}
    assert code(http.post("/subjects/unknown", json={"schema": '"long"'})) == (404, 40401)
    level = http.get(f"/config/{subject}")
    assert level.json()["message"] == (
        f"Subject '{subject}' does not have subject-level compatibility configured"
    )
    assert code(http.get(f"/mode/{subject}")) == (404, 40409)
    assert code(http.get("/nothing/here")) == (404, 404)
    assert code(http.put("/subjects")) == (405, 405)
    assert code(http.get("/associations/resources/ns/topic")) == (404, 404)


def test_a_deletion_goes_softly_first(http: httpx.Client, subject: str) -> None:
    schema_id = register(http, subject, '{"type":"fixed","name":"F","size":3}')["id"]
    assert http.delete(f"/subjects/{subject}/versions/latest").json() == 1
    assert code(http.get(f"/subjects/{subject}/versions/1")) == (404, 40401)
    assert http.get(f"/subjects/{subject}/versions/1?deleted=true").json()["deleted"] is True
    assert http.get(f"/schemas/ids/{schema_id}").is_success
    assert code(http.get(f"/schemas/ids/{schema_id}/subjects")) == (404, 40403)
    assert http.get(f"/schemas/ids/{schema_id}/subjects?deleted=true").json() == [subject]
    asked = {"deletedAsNegative": "true"}
    assert http.get(f"/subjects/{subject}/versions", params=asked).json() == [-1]
    assert http.delete(f"/subjects/{subject}?permanent=true").json() == [1]
    assert code(http.get(f"/schemas/ids/{schema_id}")) == (404, 40403)


def test_an_incompatible_schema_is_refused_with_reasons(
    http: httpx.Client, subject: str, record: Record
) -> None:
    register(http, subject, record("a:int"))
    body = {"schema": record("a:int", "b:string")}
    refused = http.post(f"/subjects/{subject}/versions", json=body)
    assert code(refused) == (409, 40901)
    said = refused.json()["message"]
    assert said.startswith(
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        "details: [{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'"
    )
    path = f"/compatibility/subjects/{subject}/versions"
    assert http.post(f"{path}/latest", json=body).json() == {"is_compatible": False}
    verbose = http.post(f"{path}/1?verbose=true", json=body).json()
    assert verbose["messages"][1:3:2] == ["{oldSchemaVersion: 1}"]
    assert code(http.post(f"{path}/9", json=body)) == (404, 40402)
    fine = {"schema": record("a:int", 'b:string="x"')}
    assert http.post(f"{path}?verbose=true", json=fine).json() == {
        "is_compatible": True,
        "messages": [],
    }
    unknown = http.post("/compatibility/subjects/unknown/versions/latest", json=body)
    assert unknown.json() == {"is_compatible": True}
    assert http.post(f"/subjects/{subject}/versions?force=true", json=body).is_success


def test_a_transitive_level_looks_at_every_version(
    http: httpx.Client, subject: str, record: Record
) -> None:
    http.put(f"/config/{subject}", json={"compatibility": "NONE"})
    register(http, subject, record("a:int"))
    register(http, subject, record("a:int", "b:int=0"))
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD"})
    path = f"/compatibility/subjects/{subject}/versions?verbose=true"
    body = {"schema": record("a:int", "b:int")}
    assert http.post(path, json=body).json()["is_compatible"] is True
    http.put(f"/config/{subject}", json={"compatibility": "BACKWARD_TRANSITIVE"})
    assert "{oldSchemaVersion: 1}" in http.post(path, json=body).json()["messages"]


def test_versions_are_compared_within_their_group(
    http: httpx.Client, subject: str, record: Record
) -> None:
    http.put(f"/config/{subject}", json={"compatibilityGroup": "major"})

    def propose(schema: str, major: str) -> int:
        body = {"schema": schema, "metadata": {"properties": {"major": major}}}
        return http.post(f"/subjects/{subject}/versions", json=body).status_code

    assert propose(record("a:int"), "1") == 200
    assert propose(record("a:int", "b:int"), "1") == 409
    assert propose(record("a:int", "b:int"), "2") == 200
    assert propose(record("a:int", "c:int=0"), "1") == 200


def test_settings_are_read_changed_and_cleared(http: httpx.Client, subject: str) -> None:
    path = f"/config/{subject}"
    assert http.get(f"{path}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    made = http.put(path, json={"compatibility": "full", "compatibilityGroup": "g"})
    assert made.json() == {"compatibility": "full", "compatibilityGroup": "g"}
    assert http.get(path).json() == {"compatibilityLevel": "FULL", "compatibilityGroup": "g"}
    http.put(path, json={"compatibilityGroup": None, "normalize": True})
    assert http.get(path).json() == {"compatibilityLevel": "FULL", "normalize": True}
    assert code(http.put(path, json={"compatibility": "SOME"})) == (422, 42203)
    assert code(http.put(path, json={})) == (422, 42203)
    assert http.delete(path).json() == {"compatibilityLevel": "FULL", "normalize": True}
    assert code(http.delete(path)) == (404, 40401)
    assert http.get("/config").json() == {"compatibilityLevel": "BACKWARD"}


def test_a_normalised_schema_is_found_in_any_order(http: httpx.Client, subject: str) -> None:
    one = '{"type":"int","b":1,"a":2}'
    register(http, subject, one)
    assert http.get(f"/subjects/{subject}/versions/1").json()["schema"] == one
    http.post(f"/subjects/{subject}-2/versions?normalize=True", json={"schema": one})
    normal = http.get(f"/subjects/{subject}-2/versions/1").json()["schema"]
    assert normal == '{"type":"int","a":2,"b":1}'


def test_modes_are_read_changed_and_cleared(http: httpx.Client, subject: str) -> None:
    path = f"/mode/{subject}"
    assert http.get(f"{path}?defaultToGlobal=true").json() == {"mode": "READWRITE"}
    assert http.put(path, json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    refused = http.post(f"/subjects/{subject}/versions", json={"schema": '"int"'})
    assert code(refused) == (422, 42205)
    assert refused.json()["message"] == f"Subject {subject} in context . is in read-only mode"
    assert code(http.put(path, json={"mode": "SLEEP"})) == (422, 42204)
    assert http.delete(path).json() == {"mode": "READONLY"}
    assert code(http.delete(path)) == (404, 40401)


def test_an_import_keeps_ids(http: httpx.Client, subject: str) -> None:
    http.put(f"/mode/{subject}", json={"mode": "IMPORT"})
    body = {"schema": '{"type":"fixed","name":"Imported","size":1}', "id": 70001, "version": 5}
    made = http.post(f"/subjects/{subject}/versions", json=body).json()
    assert (made["id"], made["version"]) == (70001, 5)
    clash = http.post(f"/subjects/{subject}/versions", json={**body, "schema": '"int"'})
    assert code(clash) == (422, 42205)


def test_contexts_are_worlds_of_their_own(http: httpx.Client, subject: str) -> None:
    context = f".c{subject[8:-6]}"
    made = http.post(f"/contexts/{context}/subjects/{subject}/versions", json={"schema": '"int"'})
    assert made.json()["id"] == 1
    qualified = f":{context}:{subject}"
    assert context in http.get("/contexts").json()
    assert http.get(f"/contexts/{context}/subjects").json() == [qualified]
    assert http.get(f"/subjects?subjectPrefix=:{context}:").json() == [qualified]
    assert http.get(f"/contexts/{context[1:]}/schemas/ids/1").json()["schema"] == '"int"'
    assert http.get(f"/schemas/ids/1?subject=:{context}:").json()["subject"] == qualified
    assert http.get(f"/subjects/{subject}/versions/1").json()["subject"] == qualified
    http.put(f"/contexts/{context}/config", json={"compatibility": "NONE"})
    assert http.get(f"/config/:{context}:").json() == {"compatibilityLevel": "NONE"}
    inside = http.get(f"/contexts/{context}/config/{subject}?defaultToGlobal=true").json()
    assert inside == {"compatibilityLevel": "NONE"}
    assert http.get(f"/contexts/{context}/subjects/{subject}/versions").json() == [1]
    assert len(http.get(f"/contexts/{context}/schemas").json()) == 1


def test_an_alias_stands_for_its_subject(http: httpx.Client, subject: str) -> None:
    register(http, subject, '"int"')
    http.put(f"/config/{subject}-alias", json={"alias": subject})
    assert http.get(f"/subjects/{subject}-alias/versions/1").json()["subject"] == subject
    listed = http.get("/schemas", params={"subjectPrefix": subject, "aliases": "true"}).json()
    assert listed[0]["aliases"] == [f"{subject}-alias"]


def test_references_are_kept_and_hold_what_they_refer_to(
    http: httpx.Client, subject: str, record: Record
) -> None:
    base = f"{subject}-base"
    register(http, base, record("x:int", name="Base"))
    references = [{"name": "Base", "subject": base, "version": -1}]
    made = register(http, subject, record("b:Base", name="Outer"), references=references)
    pinned = [{"name": "Base", "subject": base, "version": 1}]
    assert http.get(f"/schemas/ids/{made['id']}").json()["references"] == pinned
    assert http.get(f"/subjects/{base}/versions/1/referencedby").json() == [made["id"]]
    resolved = http.get(f"/subjects/{subject}/versions/1?format=resolved").json()["schema"]
    assert '"name":"Base"' in resolved
    held = http.delete(f"/subjects/{base}/versions/1")
    assert held.json() == {
        "error_code": 42206,
        "message": "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={base},version=1}}.",
    }
    inline = record(
        'b:{"type":"record","name":"Base","fields":[{"name":"x","type":"int"}]}', name="Outer"
    )
    assert http.post(f"/subjects/{subject}", json={"schema": inline}).json()["version"] == 1
    dangling = [{"name": "Base", "subject": "unknown", "version": 1}]
    refused = http.post(
        f"/subjects/{subject}/versions", json={"schema": record("b:Base"), "references": dangling}
    )
    assert code(refused) == (422, 42201)
    assert 'No schema reference found for subject "unknown"' in refused.json()["message"]


def test_metadata_and_rules_are_stored_and_served(http: httpx.Client, subject: str) -> None:
    rule = {
        "name": "positive", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "v > 0",
    }  # fmt: skip
    metadata = {"properties": {"owner": "shop"}, "tags": {"a": ["PII"]}, "sensitive": ["owner"]}
    made = register(http, subject, '"int"', metadata=metadata, ruleSet={"domainRules": [rule]})
    found = http.get(f"/schemas/ids/{made['id']}").json()
    assert found["metadata"] == metadata
    assert found["ruleSet"] == {"domainRules": [{**rule, "disabled": False}]}
    params = {"key": "owner", "value": "shop"}
    assert http.get(f"/subjects/{subject}/metadata", params=params).json()["version"] == 1
    params["value"] = "else"
    assert code(http.get(f"/subjects/{subject}/metadata", params=params)) == (404, 40403)
    prefix = {"subjectPrefix": subject}
    assert len(http.get("/schemas", params={**prefix, "ruleType": "CEL"}).json()) == 1
    assert http.get("/schemas", params={**prefix, "ruleType": "JSONATA"}).json() == []


def test_a_response_has_what_settings_added_to_the_schema(http: httpx.Client, subject: str) -> None:
    owner = {"properties": {"owner": "shop"}}
    http.put(f"/config/{subject}", json={"defaultMetadata": owner})
    made = register(http, subject, '{"type": "int"}')
    assert (made["schema"], made["metadata"]) == ('{"type": "int"}', owner)


def complete_usage(http: httpx.Client, subject: str) -> Any:
    """A node that has just started serves before it knows what the others have seen."""
    give_up_at = time.monotonic() + 30
    while True:
        usage = http.get(f"/subjects/{subject}/usage").json()
        if usage["complete"] or time.monotonic() > give_up_at:
            return usage
        time.sleep(0.1)


def test_usage_names_the_clients_of_a_schema(http: httpx.Client, subject: str) -> None:
    schema = '{"type":"fixed","name":"Used","size":9}'
    writer = {"penstock-client": "checkout"}
    made = http.post(f"/subjects/{subject}/versions", json={"schema": schema}, headers=writer)
    schema_id = made.json()["id"]
    for name in ("audit", "audit", "till; role=producer"):
        http.get(f"/schemas/ids/{schema_id}", headers={"penstock-client": name})
    http.get(f"/schemas/ids/{schema_id}?format=resolved", headers={"user-agent": "old-client/1"})
    usage = complete_usage(http, subject)
    uses = [(one["client"], one["role"], one["count"]) for one in usage["uses"]]
    assert sorted(uses) == [  # they come by time, and these are of one moment
        ("audit", "consumer", 2),
        ("checkout", "producer", 1),
        ("old-client/1", "consumer", 1),
        ("till", "producer", 1),
    ]
    assert {(one["id"], one["version"]) for one in usage["uses"]} == {(schema_id, 1)}
    assert usage["unusedVersions"] == []
    assert usage["complete"] is True
    http.post(f"/subjects/{subject}-2/versions", json={"schema": '"long"'})
    assert http.get("/subjects/unknown/usage").json()["error_code"] == 40401


def test_a_node_describes_itself(http: httpx.Client) -> None:
    assert http.get("/").json() == http.post("/").json() == {}
    assert sorted(http.get("/schemas/types").json()) == ["AVRO", "JSON", "PROTOBUF"]
    scope = http.get("/v1/metadata/id").json()["scope"]
    assert scope["path"] == []
    assert set(scope["clusters"]) == {"kafka-cluster", "schema-registry-cluster"}
    assert "version" in http.get("/v1/metadata/version").json()
    assert "penstock_registry_primary 1\n" in http.get("/metrics").text
    assert "/subjects/{subject}/versions" in http.get("/openapi.json").json()["paths"]


def test_the_reference_lists_every_path_and_loads_nothing(http: httpx.Client) -> None:
    answer = http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for path in http.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in answer.text
    for way_out in ("http://", "https://", "<script", "<link", "<img", "@import", "url("):
        assert way_out not in answer.text


def test_tags_are_put_into_the_text_and_taken_out_again(
    http: httpx.Client, subject: str, record: Record
) -> None:
    def tags(kind: str, path: str, *names: str) -> dict[str, Any]:
        return {"schemaEntity": {"entityType": kind, "entityPath": path}, "tags": names}

    added = [tags("sr_record", "R", "A", "B"), tags("SR_FIELD", "R.a", "PII")]
    assert register(http, subject, record("a:int"), schemaTagsToAdd=added)["version"] == 1
    first = http.get(f"/subjects/{subject}/versions/1").json()
    text = json.loads(first["schema"])
    assert text["confluent:tags"] == ["A", "B"]
    assert text["fields"][0]["confluent:tags"] == ["PII"]
    assert first["metadata"]["properties"] == {"confluent:version": "1"}
    removed = [tags("sr_record", "R", "B"), tags("sr_field", "R.a", "PII")]
    register(http, subject, first["schema"], schemaTagsToRemove=removed)
    second = http.get(f"/subjects/{subject}/versions/2").json()
    assert json.loads(second["schema"]) == {**json.loads(record("a:int")), "confluent:tags": ["A"]}
    assert second["metadata"]["properties"] == {"confluent:version": "2"}


def test_tags_of_what_is_not_there_are_refused(
    http: httpx.Client, subject: str, record: Record
) -> None:
    for entity, expected in (
        ({"entityType": "sr_field", "entityPath": "R.b"}, (422, 42201)),
        ({"entityType": "sr_field", "entityPath": ""}, (422, 42201)),
        ({"entityType": "sr_enum", "entityPath": "R"}, (400, 400)),
        ("R", (400, 400)),
    ):
        body = {
            "schema": record("a:int"),
            "schemaTagsToAdd": [{"schemaEntity": entity, "tags": ["A"]}],
        }
        assert code(http.post(f"/subjects/{subject}/versions", json=body)) == expected
    assert code(http.get(f"/subjects/{subject}/versions")) == (404, 40401)
