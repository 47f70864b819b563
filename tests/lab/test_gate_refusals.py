"""Which parts of a refusal name a field."""

import json

from penstock.lab.gate_refusals import gate_descriptions, registry_descriptions


def test_a_schema_that_the_registry_shows_does_not_name_the_field() -> None:
    message = (
        "Schema being registered is incompatible with an earlier schema; details: ["
        "{errorType:'TYPE_MISMATCH', description:'A type (path '/fields/6/type') of a field in"
        " the new schema does not match with the old schema', additionalInfo:'reader: {\"name\""
        ':"Status"}\'}, {errorType:"TYPE_CHANGED", description:"A type at path'
        " '#/properties/cents' is different\"}, {oldSchemaVersion: 1}, {oldSchema: '{\"name\":"
        ' "street", "description":"x"}\'}, {validateFields: \'false\'}]'
    )
    described = registry_descriptions(message)
    assert "/fields/6/type" in described
    assert "#/properties/cents" in described
    assert "Status" not in described
    assert "street" not in described


def test_schemas_and_events_that_the_gate_shows_do_not_name_the_field() -> None:
    change = {"path": "/fields/11", "message": "The field 'channel' is new", "before": "street"}
    report = json.dumps({"results": [{"findings": [change], "events": ["email"]}]})
    described = gate_descriptions(report)
    assert "'channel'" in described
    assert "street" not in described
    assert "email" not in described
    assert gate_descriptions("no JSON") == ""
