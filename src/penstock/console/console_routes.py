"""The routers of the console, by the application that they belong to."""

from fastapi import APIRouter

from penstock.console.console_node import ConsoleNode
from penstock.console.routes.find_routes import find_routes
from penstock.console.routes.group_routes import group_routes
from penstock.console.routes.live_routes import live_routes
from penstock.console.routes.overview_routes import overview_routes
from penstock.console.routes.pipeline_routes import pipeline_routes
from penstock.console.routes.quarantine_routes import quarantine_routes, redrive_routes
from penstock.console.routes.record_routes import histogram_routes, record_routes
from penstock.console.routes.schema_routes import schema_routes
from penstock.console.routes.sql_routes import sql_routes
from penstock.console.routes.topic_routes import topic_routes


def console_routers(node: ConsoleNode) -> list[APIRouter]:
    """Those with first path segments of the console's own."""
    return [
        overview_routes(node),
        topic_routes(node),
        group_routes(node),
        schema_routes(node),
        quarantine_routes(node),
        redrive_routes(node),
        pipeline_routes(node),
        find_routes(node),
        sql_routes(node),
        live_routes(node.live),
    ]


def topic_routers(node: ConsoleNode) -> list[APIRouter]:
    """Those below `/topics`, which are routes of the gateway's application."""
    return [record_routes(node), histogram_routes(node)]
