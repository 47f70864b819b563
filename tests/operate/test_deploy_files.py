"""The alert rules and the dashboard: valid, tested, and only about metrics that exist."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.metrics.metrics_page import ALL_ROWS
from penstock.metrics.row import MetricType

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = ROOT / "deploy" / "prometheus" / "alerts.test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "penstock.json"
OPERATIONS = ROOT / "docs" / "operations"

SUFFIXES = {MetricType.HISTOGRAM: ("_bucket", "_sum", "_count")}
NAMES = {row.name + suffix for row in ALL_ROWS for suffix in SUFFIXES.get(row.kind, ("",))}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Of all panels and annotations of the dashboard, as Grafana sends them."""
    dashboard = json.loads(DASHBOARD.read_text())
    texts = [row["expr"] for row in dashboard["annotations"]["list"]]
    texts += [each["expr"] for panel in dashboard["panels"] for each in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "1m").replace("$job", "penstock") for text in texts]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bpenstock_\w+", expression))


def test_the_rules_name_only_metrics_that_exist() -> None:
    assert {name for rule in rules() for name in names_in(rule["expr"])} <= NAMES


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    used = {name for expression in expressions() for name in names_in(expression)}
    assert used <= NAMES
    assert len(used) > 25


def test_an_alert_has_a_severity_and_a_page_that_exists() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert (OPERATIONS / rule["annotations"]["page"]).is_file(), rule["alert"]
        text = (OPERATIONS / rule["annotations"]["page"]).read_text()
        assert rule["alert"] in text, "the page names the alert"


@pytest.mark.usefixtures("prometheus")
def test_promtool_accepts_and_tests_the_rules() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULE_TESTS)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_seen_to_fire_and_to_clear() -> None:
    fires: set[str] = set()
    clears: set[str] = set()
    for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]:
        firing: set[str] = set()
        for check in sorted(test["alert_rule_test"], key=lambda row: int(row["eval_time"][:-1])):
            name = check["alertname"]
            if check.get("exp_alerts"):
                firing.add(name)
            elif name in firing:
                clears.add(name)
        fires |= firing
    assert fires == clears == {rule["alert"] for rule in rules()}
